"""A launcher as a process, with a real API over TLS and programs that are a line of shell each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import JOB, pod, pod_environment
from forked import Forked, server

from paddle_cluster.localcluster import ApiServer, PodStore

LAUNCHER = Path(__file__).parents[3] / "start_paddle.py"
DEADLINE_S = 60.0

# what `paddle` does, by its first words; each line of shell comes from the environment
PADDLE = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$1 $2" in
    "pserver --probe"*) eval "$PROBE" ;;
    pserver*) eval "$PSERVER" ;;
    train*) eval "$TRAINER" ;;
    report*) eval "$REPORT" ;;
esac
"""
# `1<>fifo` opens it for reading too, so that no writer waits for a reader that has ended meanwhile
UNTIL_GOODBYE = "echo server up; until [ -e goodbye ]; do read -t 1 _ <>fifo; done 2>/dev/null"
PATIENT = "trap 'exit 143' TERM; echo server up; while :; do read _ <>fifo; done"


class Launch:
    """One launcher process, its tree on the volume, and what its programs were called with.

    `is_whole`: it is started as the pod starts it; others are forked (tests/forked).
    """

    def __init__(self, root: Path, environ: dict[str, str], *flags: str, is_whole: bool = False) -> None:
        self.root, self.output = root, root / "volume" / JOB / "output"
        self.node = self.output / "node_0"
        self.stdout = root / "stdout"
        self.environ = environ
        flags = flags or ("--num_passes=3", "--config=config.py")
        self.process: subprocess.Popen[bytes] | Forked
        with self.stdout.open("ab") as log:
            if is_whole:
                argv = [sys.executable, str(LAUNCHER), *flags]
                self.process = subprocess.Popen(argv, cwd=root / "work", env=environ, stdout=log, stderr=log)
            else:
                self.process = server().start(["start_paddle", *flags], root / "work", environ, [log.fileno()] * 2)

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)

    @property
    def said(self) -> str:
        return self.stdout.read_text()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline and self.process.poll() is None, self.said
            time.sleep(0.01)

    def calls(self) -> list[str]:
        calls = self.root / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def error(self) -> dict:
        return json.loads((self.node / "error.json").read_text())


@pytest.fixture
def store() -> PodStore:
    """One Running pod of the job."""
    store = PodStore()
    put_pod(store, "127.0.0.1")
    return store


def put_pod(store: PodStore, ip: str) -> None:
    running = pod(ip)
    store.put({**running, "metadata": {**running["metadata"], "namespace": "default"}})


@pytest.fixture
def api(store: PodStore, tmp_path: Path) -> Iterator[ApiServer]:
    """An API server for the pods."""
    with ApiServer(store) as server:
        server.write_service_account(tmp_path / "account")
        yield server


@pytest.fixture
def launch(tmp_path: Path, api: ApiServer) -> Iterator[Callable[..., Launch]]:
    """Returns launch(*flags, TRAINER=..., PSERVER=..., ...), which starts a launcher as the only pod of a job."""
    for directory in ("work", "bin", f"volume/{JOB}/0/data"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "volume" / JOB / "0" / "data" / "train.txt").write_text("1\tgood\n")
    (tmp_path / "work" / "config.py").write_text("")
    os.mkfifo(tmp_path / "work" / "fifo")
    program = tmp_path / "bin" / "paddle"
    program.write_text(PADDLE.replace("/bin/sh", "/bin/bash"))
    program.chmod(0o755)
    launches: list[Launch] = []
    environ = pod_environment(
        JOB_PATH=str(tmp_path / "volume"),
        POD_IP="127.0.0.1",
        CONF_PADDLE_GRADIENT_NUM="1",
        KUBERNETES_SERVICE_HOST=api.host,
        KUBERNETES_SERVICE_PORT_HTTPS=str(api.port),
        SERVICE_ACCOUNT_DIR=str(tmp_path / "account"),
        STOP_TIMEOUT="5",
        RESTARTS="0",  # tests of one attempt; those of more say so
        CALLS=str(tmp_path / "calls"),
        PATH=f"{program.parent}:{os.environ['PATH']}",
        PSERVER=UNTIL_GOODBYE,
        TRAINER="echo trained; touch goodbye; echo 1<>fifo",
        PROBE="exit 0",
    )

    def start(*flags: str, is_whole: bool = False, **changed: str) -> Launch:
        launches.append(Launch(tmp_path, {**environ, **changed}, *flags, is_whole=is_whole))
        return launches[-1]

    try:
        yield start
    finally:
        for one in launches:
            one.process.kill()
            one.process.wait(DEADLINE_S)


SAVE_A_PASS = f'for k in 0 1; do d=$JOB_PATH/{JOB}/output/pass-0000$k; mkdir "$d"; touch "$d/done"; done'
ONCE = "[ -e failed ] || {{ touch failed; {}; }}; "  # what the first attempt does, and no later one
GOODBYE = "touch goodbye; echo 1<>fifo"
