"""Layers over sequences, without state."""
