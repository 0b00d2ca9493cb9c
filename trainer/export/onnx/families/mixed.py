"""Layers of mixed. No I/O."""
