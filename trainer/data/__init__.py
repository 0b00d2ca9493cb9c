"""Data providers and data sources: they read samples, order them, and form batches."""
