"""Fault tests: a real job of three pods is harmed at a random moment (from a seed), and its end is checked
(docs/testing.md).
"""
