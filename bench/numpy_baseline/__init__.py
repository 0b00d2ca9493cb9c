"""The training steps of bench/train.py, written by hand in plain numpy; `__main__` describes how to run them."""
