"""The formats of the files that describe a run, for the code that writes or reads these files."""
