"""Running a user's config script: Python 2 names, and errors that name the user's line."""
