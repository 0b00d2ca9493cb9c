"""The trainings of bench/train.py in TensorFlow; `__main__` says how they are run."""
