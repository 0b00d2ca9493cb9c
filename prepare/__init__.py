"""The data job: it creates a job's directory on the shared volume, with one shard of the training data per trainer."""
