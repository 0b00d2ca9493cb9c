"""Train with workers of `paddle elastic run` that join and leave. The workers divide every batch and lose no sample."""
