"""Execution of a user's configuration script: it can use names of Python 2, and an error names the script's line."""
