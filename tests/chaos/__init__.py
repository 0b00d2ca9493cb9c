"""Fault tests: a real three-pod job, harm at a seeded moment, and what must be true at its end (docs/testing.md)."""
