"""The data of a run: providers, sources, samples in their order, and batches."""
