"""Layers of images. No I/O."""
