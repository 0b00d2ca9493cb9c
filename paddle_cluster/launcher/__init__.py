"""The launcher of one pod: the functions that start_paddle.py calls."""
