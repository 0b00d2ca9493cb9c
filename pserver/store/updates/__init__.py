"""How the values of a shard change: steps of all elements or of some rows, lazy rows, decay and sums for averages."""
