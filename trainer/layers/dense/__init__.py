"""Layers over rows of numbers."""
