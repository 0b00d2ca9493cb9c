"""Programs among the workers of `paddle elastic run` that come and go."""
