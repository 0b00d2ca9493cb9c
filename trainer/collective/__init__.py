"""Training among the workers of `paddle elastic run` that come and go: they divide every batch, and lose no sample."""
