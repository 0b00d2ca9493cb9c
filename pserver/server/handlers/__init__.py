"""The handlers of a joined trainer's requests: one class for each group of requests."""
