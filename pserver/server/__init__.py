"""The server process: listeners, sessions, admission, message handlers, checkpoints, statistics."""
