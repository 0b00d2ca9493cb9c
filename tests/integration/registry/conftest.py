"""The registries that a job may have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_base.registry.choice import open_registry
from paddle_base.registry.interface import Registry

TTL = 5.0


@pytest.fixture(params=["directory", "etcd"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What `opens` and registry_claimant.py take: a directory, or an endpoint."""
    if request.param == "directory":
        return str(tmp_path / "store")
    return str(request.getfixturevalue("etcd").endpoint)


@pytest.fixture
def opens(place: str) -> Callable[[], Registry]:
    is_etcd = place.startswith("http")
    return lambda: open_registry([place] if is_etcd else [], None if is_etcd else Path(place), "job", TTL)
