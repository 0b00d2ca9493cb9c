"""Where the master keeps its state, and which master leads: a directory, etcd, or memory for tests."""
