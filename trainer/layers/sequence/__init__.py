"""Layers over sequences that keep no state from frame to frame."""
