"""Layer functions over maps and volumes."""
