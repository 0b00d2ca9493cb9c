"""The launcher of one pod: what start_paddle.py calls."""
