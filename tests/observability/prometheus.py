"""A Prometheus under the tests' control, which scrapes the pods of a localcluster."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from chromium import LEASHED

LIMIT_S = 60.0  # on a busy machine
Series = dict[tuple[tuple[str, str], ...], float]


class Prometheus:
    """A running server; a context manager.

    Args: folder: for its files.  targets: host:port of what it scrapes, every second.  labels: of all their series.
    """

    def __init__(self, folder: Path, targets: Iterable[str], labels: Mapping[str, str]) -> None:
        scrape = {"job_name": "paddle", "static_configs": [{"targets": sorted(targets), "labels": dict(labels)}]}
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [scrape]}
        folder.mkdir()
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        command = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.address}",
        ]
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*LEASHED, *command], stdout=log, stderr=log)

    def __enter__(self) -> Prometheus:
        self.wait_for(self._is_ready, "Prometheus")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(LIMIT_S)

    def ask(self, path: str, **query: str) -> Any:
        """Return the data that the HTTP API answers. Raises: HTTPError: it refuses the question."""
        address = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=LIMIT_S) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> Series:
        """Return {labels: value} of an expression now."""
        result = self.ask("query", query=expression)["result"]
        return {tuple(sorted(one["metric"].items())): float(one["value"][1]) for one in result}

    def value(self, expression: str) -> float:
        """Return the value of an expression that has one; nan while there is none."""
        found = list(self.query(expression).values())
        assert len(found) <= 1, found
        return found[0] if found else float("nan")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until it holds; what is scraped comes a second later."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"waited {LIMIT_S:.0f} s for {what}: {self._log.read_text()[-3000:]}"
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=LIMIT_S):
                return True
        except OSError:
            return False
