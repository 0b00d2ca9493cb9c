"""Conversion of batches for a network."""

from trainer.v2.feeder import DataFeeder

__all__ = ["DataFeeder"]
