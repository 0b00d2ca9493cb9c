"""What the tests with processes share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from etcd_process import EtcdProcess, require_etcd
from forked import ForkServer, server


@pytest.fixture(scope="session")
def fork_server() -> ForkServer:
    """Starts programs of ours without a start of Python for each."""
    return server()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    """An etcd of its own."""
    require_etcd()
    with EtcdProcess(tmp_path) as process:
        yield process
