"""Layers over sequences that have no state."""
