"""Collectives among the workers of a job: all-reduce, all-gather, broadcast, barrier; sums repeat bit for bit."""
