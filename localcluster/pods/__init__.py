"""One pod: what it runs on this machine, and its processes."""
