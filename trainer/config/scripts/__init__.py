"""Execution of a user's configuration script: Python 2 names, and errors that name the line of the user's script."""
