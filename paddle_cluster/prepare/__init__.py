"""The data job creates a job's directory on the shared volume, with one shard of the training data for each trainer."""
