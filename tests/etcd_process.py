"""Runs etcd for tests; tests/etcd/build compiles it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import requests
import trustme
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

    flags: Sequence[str] = ()  # more of them
    session: Any = requests  # by which the test asks etcd itself

    def __init__(self, directory: Path, protocol: str = "http") -> None:
        self._directory = directory
        self._ports = free_ports(2)
        self.endpoint = f"{protocol}://127.0.0.1:{self._ports[0]}"
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
                    *self.flags,
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
            answer = self.session.get(f"{self.endpoint}/health", timeout=1)
            return bool(answer.json().get("health") == "true")
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


class SecuredEtcd(EtcdProcess):
    """An etcd that asks for TLS, a client certificate, and a user; `environ` lets a program in.

    The files are in the directory: ca.crt, program.crt, program.key, and the password of the user `program`.
    """

    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(directory / "ca.crt")
        for name, identity in (("etcd", "127.0.0.1"), ("program", "program@example.org")):
            made = authority.issue_cert(identity)
            made.private_key_pem.write_to_path(directory / f"{name}.key")
            made.cert_chain_pems[0].write_to_path(directory / f"{name}.crt")
        (directory / "password").write_text("hush\n")
        self.flags = [
            f"--cert-file={directory / 'etcd.crt'}",
            f"--key-file={directory / 'etcd.key'}",
            "--client-cert-auth",
            f"--trusted-ca-file={directory / 'ca.crt'}",
        ]
        self.environ = {
            "PADDLE_ETCD_CA": str(directory / "ca.crt"),
            "PADDLE_ETCD_CERT": str(directory / "program.crt"),
            "PADDLE_ETCD_KEY": str(directory / "program.key"),
            "PADDLE_ETCD_USER": "program",
            "PADDLE_ETCD_PASSWORD_FILE": str(directory / "password"),
        }
        self.session = requests.Session()
        self.session.trust_env = False  # or REQUESTS_CA_BUNDLE takes the place of `verify`
        self.session.verify, self.session.cert = (
            str(directory / "ca.crt"),
            (str(directory / "program.crt"), str(directory / "program.key")),
        )
        super().__init__(directory, "https")
        for path, body in (
            ("user/add", {"name": "root", "password": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": "program", "password": "hush"}),
            ("user/grant", {"user": "program", "role": "root"}),
            ("enable", {}),
        ):
            self.session.post(f"{self.endpoint}/v3/auth/{path}", json=body, timeout=10).raise_for_status()
