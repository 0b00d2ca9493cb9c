"""A key-value registry of one job, in etcd or in a directory: programs find each other by its keys."""
