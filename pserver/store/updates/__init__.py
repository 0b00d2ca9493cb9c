"""Changes of a shard's values: steps of all elements or of some rows, lazy rows, decay, and sums for averages.

No I/O.
"""
