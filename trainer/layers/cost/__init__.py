"""Cost layers; training minimises the sum of their outputs."""
