"""The network of some layers."""

from trainer.v2.topology import Topology

__all__ = ["Topology"]
