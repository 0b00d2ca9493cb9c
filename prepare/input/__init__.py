"""Reading what the data job is given: one file or folder, packed or not, mounted or fetched."""
