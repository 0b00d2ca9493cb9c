"""Collectives of a job's workers: all-reduce, all-gather, broadcast and barrier. A repeated sum has the same bits."""
