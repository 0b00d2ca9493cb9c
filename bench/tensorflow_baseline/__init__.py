"""The trainings of bench/train.py in TensorFlow; `__main__` describes how to run them."""
