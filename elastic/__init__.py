"""Horovod's elastic life cycle: a driver, workers that fail, leave and join, and all-reduce among those that are there.

The modules of this folder have the names and signatures of Horovod 0.28's `horovod.runner.elastic`; what they need
more is in the packages below.
"""
