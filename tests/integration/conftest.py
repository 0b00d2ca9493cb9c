"""What the tests with processes share."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from etcd_process import EtcdProcess, require_etcd
from forked import ForkServer


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Starts programs of ours without a start of Python for each."""
    with contextlib.closing(ForkServer()) as server:
        yield server


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    """An etcd of its own."""
    require_etcd()
    with EtcdProcess(tmp_path) as process:
        yield process
