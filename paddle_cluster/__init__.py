"""The programs and protocols of a job on a cluster: launcher, master, all-reduce, local cluster and data job."""
