"""The formats of the files that describe a run. Code that writes or reads these files uses this package."""
