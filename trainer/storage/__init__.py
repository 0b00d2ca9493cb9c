"""Models and checkpoints as files, which are written atomically and checked when they are read."""
