"""The client of a job's master."""

from paddle.v2.master.client import client

__all__ = ["client"]
