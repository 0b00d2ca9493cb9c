"""The algorithms by which arrays pass between ranks over connections."""
