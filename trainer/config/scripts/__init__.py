"""Execution of a user's configuration script, which can use names of Python 2; an error names the script's line."""
