"""The names of `horovod.common.exceptions` that a script catches."""

from paddle_cluster.elastic.errors import CollectiveMismatchError, HorovodInternalError, HostsUpdatedInterrupt

__all__ = ["CollectiveMismatchError", "HorovodInternalError", "HostsUpdatedInterrupt"]
