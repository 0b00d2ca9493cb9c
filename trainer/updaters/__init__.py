"""Updaters, which compute new values from gradients, in this process or on the parameter servers."""
