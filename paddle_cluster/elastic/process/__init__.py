"""This process as a worker of a job: its rank, its collectives, and the loop around the user's training function."""
