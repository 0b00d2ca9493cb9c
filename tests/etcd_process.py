"""Runs etcd for tests; tests/etcd/build compiles it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import requests
from ports import free_ports

BINARY = Path(os.environ.get("ETCD_DIR", "/var/tmp/paddle-etcd")) / "etcd"
START_S = 30.0


def require_etcd() -> None:
    """Skip the test if etcd was not compiled; in CI, fail."""
    if not BINARY.exists():
        reason = "tests/etcd/build compiles the etcd that this needs"
        assert not os.environ.get("ETCD_REQUIRED"), reason
        pytest.skip(reason)


class EtcdProcess:
    """One etcd member, which keeps its data between `stop` and `start`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = free_ports(2)
        self.endpoint = f"http://127.0.0.1:{self._ports[0]}"
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        peer = f"http://127.0.0.1:{self._ports[1]}"
        with (self._directory / "etcd.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    BINARY,
                    f"--data-dir={self._directory / 'etcd'}",
                    f"--listen-client-urls={self.endpoint}",
                    f"--advertise-client-urls={self.endpoint}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster=default={peer}",
                    "--log-level=warn",
                ],
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + START_S
        while not self._is_healthy():
            assert time.monotonic() < until and self.process.poll() is None, (self._directory / "etcd.log").read_text()
            time.sleep(0.05)

    def _is_healthy(self) -> bool:
        try:
            return requests.get(f"{self.endpoint}/health", timeout=1).json().get("health") == "true"
        except (requests.RequestException, ValueError):
            return False

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> EtcdProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
