"""This process as a worker of a job: its place in a generation, its process sets, and its collectives."""
