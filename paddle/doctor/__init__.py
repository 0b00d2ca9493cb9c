"""`paddle doctor` checks whether a job could run on this machine or in this pod, and prints what to do if not."""
