"""The trainings of bench/train.py and bench/nodes.py in torch; `__main__` describes how to run them."""
