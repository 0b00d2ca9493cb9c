"""The data set's shards: which trainer trains which, and their copies in ./data."""
