"""Samples from tables in Parquet and Arrow files. Slots are made of whole columns, not row by row."""
