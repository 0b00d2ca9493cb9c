"""Which store the flags name."""

from __future__ import annotations

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

    Raises: ConfigError: it is etcd.
    """
    if directory is None:
        raise ConfigError(f"--etcd_endpoints={','.join(endpoints)}: etcd is not supported yet; use --store_dir")
    return DirectoryStore(directory / job, ttl)
