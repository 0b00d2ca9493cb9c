"""Colour and a progress bar on a terminal; a pipe, a file and the log of a pod get plain lines."""
