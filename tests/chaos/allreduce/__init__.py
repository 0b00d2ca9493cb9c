"""Random trials (from a seed) of all-reduce jobs whose workers fail, leave and join: `python -m chaos.allreduce`."""
