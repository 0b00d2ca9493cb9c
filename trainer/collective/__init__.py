"""Training by workers of `paddle elastic run` that join and leave, divide every batch and lose no sample."""
