"""The server process: listeners, sessions, admission, handlers of messages, checkpoints, statistics."""
