"""Keep in memory the pods that the API lists, with one common resourceVersion, and with snapshots for paging."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StoredPod:
    """A pod at one resourceVersion; `body` is its API object, and `encoded` is its JSON text as a list item."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    body: Mapping[str, Any]
    encoded: bytes


@dataclass(frozen=True)
class PodListSnapshot:
    """All pods at one resourceVersion, sorted by name."""

    version: int
    pods: tuple[StoredPod, ...]


class PodStore:
    """Holds pods by namespace and name.

    Thread safety: any thread can call any method. A snapshot never changes; it is created once per version and shared
    by all readers. The store keeps the newest snapshots, because all pages of a list must show the same version.
    """

    SNAPSHOTS_KEPT = 64

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[tuple[str, str], StoredPod] = {}
        self._version = 1000
        self._snapshots: OrderedDict[int, PodListSnapshot] = OrderedDict()

    def put(self, pod: Mapping[str, Any]) -> None:
        """Add a pod, or replace the pod with this name; the store sets its resourceVersion."""
        metadata = pod["metadata"]
        key = (metadata.get("namespace", "default"), metadata["name"])
        with self._lock:
            self._version += 1
            body = {**pod, "metadata": {**metadata, "namespace": key[0], "resourceVersion": str(self._version)}}
            # the items of an API list have no kind and no apiVersion
            item = {name: value for name, value in body.items() if name not in ("kind", "apiVersion")}
            encoded = json.dumps(item, separators=(",", ":")).encode()
            self._pods[key] = StoredPod(key[1], key[0], metadata.get("labels") or {}, body, encoded)

    def remove(self, name: str, namespace: str = "default") -> bool:
        """Remove a pod; return whether it existed."""
        with self._lock:
            found = self._pods.pop((namespace, name), None)
            self._version += 1 if found else 0
        return found is not None

    def get(self, name: str, namespace: str = "default") -> StoredPod | None:
        """Return a pod, or None."""
        with self._lock:
            return self._pods.get((namespace, name))

    def snapshot(self, version: int | None = None) -> PodListSnapshot | None:
        """Return the current pods, or the pods at a version (None if the version's snapshot is no longer kept)."""
        with self._lock:
            if version is not None and version != self._version:
                return self._snapshots.get(version)
            found = self._snapshots.get(self._version)
            if found is None:
                pods = tuple(self._pods[key] for key in sorted(self._pods))
                found = self._snapshots[self._version] = PodListSnapshot(self._version, pods)
                while len(self._snapshots) > self.SNAPSHOTS_KEPT:
                    self._snapshots.popitem(last=False)
            return found
