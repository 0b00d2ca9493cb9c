"""The trainings of bench/train.py in TensorFlow; `__main__` says how it is run."""
