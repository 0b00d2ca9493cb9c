"""Conversion of batches for a network."""

from trainer.v2.feeder import FrameFeeder as DataFeeder

__all__ = ["DataFeeder"]
