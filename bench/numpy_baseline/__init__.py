"""The training steps of bench/train.py, written by hand in plain numpy; `__main__` says how they are run."""
