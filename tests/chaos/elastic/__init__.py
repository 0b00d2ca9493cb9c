"""Seeded trials of jobs whose trainers come and go: `python -m chaos.elastic`."""
