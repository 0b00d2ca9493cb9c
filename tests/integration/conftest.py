"""What the tests with processes share."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bucket import Bucket
from etcd_process import EtcdProcess, require_etcd
from forked import ForkServer, server
from s3_process import FaultyProxy, S3Process, environ_of, require_s3


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


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Process]:
    """An S3 server for all tests of a process; each test makes its own buckets."""
    require_s3()
    process = S3Process(tmp_path_factory.mktemp("s3"))
    yield process
    process.stop()


@pytest.fixture
def bucket(s3_server: S3Process, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bucket]:
    folder = s3_server.root / "bucket"
    folder.mkdir()
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with FaultyProxy(s3_server.port).running() as proxy:
        for name, value in environ_of(proxy.endpoint).items():
            monkeypatch.setenv(name, value)
        yield Bucket(folder, proxy)
    shutil.rmtree(folder)
