"""The training steps of bench/train.py by hand in plain numpy; `__main__` says how it is run."""
