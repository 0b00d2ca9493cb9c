"""Data of the oldest configs: files of fixed forms instead of the user's code, and several sources at once."""
