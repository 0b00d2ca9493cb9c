"""Store models and checkpoints in files. The files are written atomically, and checked when they are read."""
