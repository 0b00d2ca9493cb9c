"""The published experiment of 2017 again: as a model in pure Python, on KWOK, and what is measured of both."""
