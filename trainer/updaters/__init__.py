"""Updaters: they compute new values from gradients in this process, or by the parameter servers."""
