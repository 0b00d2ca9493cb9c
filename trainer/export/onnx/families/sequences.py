"""Layers of sequences. No I/O."""
