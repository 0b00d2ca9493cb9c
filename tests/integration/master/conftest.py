"""The stores that a master may have."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from etcd_process import BINARY, EtcdProcess


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    if not BINARY.exists():
        pytest.skip("tests/etcd/build compiles the etcd that this needs")
    with EtcdProcess(tmp_path) as process:
        yield process
