"""Opens the store that the flags name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paddle_base.registry.choice import import_etcd
from paddle_cluster.master.store.directory import DirectoryStore
from paddle_cluster.master.store.interface import MasterStore


def open_store(endpoints: Sequence[str], directory: Path | None, job: str, ttl: float) -> MasterStore:
    """Return the store of a job.

    Raises: UsageError: an endpoint is malformed.  ConfigError: the library for etcd is not installed.
    """
    if directory is not None:
        return DirectoryStore(directory / job, ttl)
    store: MasterStore = import_etcd("paddle_cluster.master.store.etcd").EtcdStore(endpoints, job, ttl)
    return store
