"""Where the master keeps its state, and who leads: a directory, etcd, or memory for tests."""
