"""Keys of one job that programs find each other by, some of them with a lease: in etcd or in a directory."""
