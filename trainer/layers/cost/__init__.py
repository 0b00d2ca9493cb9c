"""Cost layers, whose sum training minimises."""
