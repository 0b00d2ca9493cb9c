"""Horovod's elastic life cycle: a driver, workers that fail, leave and join, and all-reduce among the present workers.

The modules of this folder have the names and signatures of Horovod 0.28's `horovod.runner.elastic`. The subpackages
hold the parts that have no counterpart in Horovod.
"""
