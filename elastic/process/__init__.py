"""This process as a worker of a job: its rank, its collectives, and the loop around what the user trains."""
