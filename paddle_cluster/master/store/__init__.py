"""The stores of the master's state, which also elect the leader: a directory, etcd, or memory for tests."""
