"""The data of a run: data providers, data sources, the order of samples, and batches."""
