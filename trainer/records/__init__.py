"""The formats of the files that describe a run, for their writers and readers."""
