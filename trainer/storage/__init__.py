"""Models and checkpoints as files: written atomically, and checked when they are read."""
