"""The key-value registry of a job, in etcd or in a directory, through which the programs of the job find each other."""
