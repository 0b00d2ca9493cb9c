"""The sources of data. Each source converts its input to samples and to further files."""
