"""Training by workers of `paddle elastic run` that join and leave: they divide every batch, and lose no sample."""
