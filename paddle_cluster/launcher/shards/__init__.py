"""The shards of the data set: their assignment to trainers, and their copies in ./data."""
