"""Layers of recurrent. No I/O."""
