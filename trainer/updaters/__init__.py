"""From gradients to new values: in this process, or on the parameter servers."""
