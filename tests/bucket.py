"""A bucket for tests, on the server of `s3_process`, behind the proxy that answers wrongly."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from s3_process import FaultyProxy

from paddle_base.remote.addresses import parse_address
from paddle_base.remote.interface import Store
from paddle_base.remote.patience import Patience
from paddle_base.remote.stores import open_store


class Bucket:
    """A bucket on the server, reached through the proxy."""

    def __init__(self, folder: Path, proxy: FaultyProxy) -> None:
        self.folder, self.proxy = folder, proxy
        self.waits: list[float] = []
        self.said: list[str] = []

    def patience(self, **more: Any) -> Patience:
        return Patience("DATA_PATH", **{"seconds": 20.0, "say": self.said.append, "wait": self.waits.append, **more})

    @functools.cached_property
    def store(self) -> Store:
        return open_store(parse_address("s3://bucket", "DATA_PATH"))

    def put(self, key: str, content: bytes) -> None:
        """Upload an object as a client does, which gives it an ETag."""
        store: Any = self.store
        store.system.pipe_file(f"bucket/{key}", content)
