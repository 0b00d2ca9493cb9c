"""The store of a master, as programs name it."""

from __future__ import annotations

import re
from typing import Any

from paddle_base.runtime.errors import UsageError

_ENDPOINTS = re.compile(r"\w+://.*|[^/,]+:\d+(,[^/,]+:\d+)*")


def store_flags(store: str) -> dict[str, Any]:
    """Return the flags that name a store of a master: endpoints of etcd, or the path of a directory.

    Raises: UsageError: there is no text.
    """
    if not isinstance(store, str) or not store.strip():
        raise UsageError(f"etcd_endpoints is {store!r}; it must be http://host:port,... or the path of --store_dir")
    if not _ENDPOINTS.fullmatch(store.strip()):
        return {"store_dir": store, "etcd_endpoints": ""}
    parts = [one.strip() for one in store.split(",") if one.strip()]
    endpoints = ",".join(one if "://" in one else f"http://{one}" for one in parts)
    return {"store_dir": "", "etcd_endpoints": endpoints}
