"""One pod: its resources on this machine, and its processes."""
