"""The Job: its manifest as data, what is decided about its pods, and the controller that does it."""
