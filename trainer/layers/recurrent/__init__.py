"""Layers with a state from step to step, recurrent groups, and generation."""
