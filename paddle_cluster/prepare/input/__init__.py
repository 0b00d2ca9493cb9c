"""Reads the data job's input: a file or a directory, packed or not, mounted or downloaded."""
