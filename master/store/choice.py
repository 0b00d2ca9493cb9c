"""Which store the flags name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from master.store.directory import DirectoryStore
from master.store.interface import AddressBook, LeaderStore
from runtime.errors import ConfigError


class MasterStore(LeaderStore, AddressBook, Protocol):
    """A store that masters write to and trainers look for them in."""


def open_store(endpoints: Sequence[str], directory: Path | None, job: str, ttl: float) -> MasterStore:
    """Return the store of a job.

    Raises: UsageError: an endpoint is none.  ConfigError: the library for etcd is not installed.
    """
    if directory is not None:
        return DirectoryStore(directory / job, ttl)
    try:
        etcd = importlib.import_module("master.store.etcd")
    except ModuleNotFoundError as exc:
        raise ConfigError(
            f"--etcd_endpoints needs the package etcd3gw ({exc}); install it with "
            "pip install 'paddle-on-kubernetes[etcd]', or use --store_dir"
        ) from exc
    store: MasterStore = etcd.EtcdStore(endpoints, job, ttl)
    return store
