"""Random trials (from a seed) of jobs whose trainers come and go: `python -m chaos.tasks`."""
