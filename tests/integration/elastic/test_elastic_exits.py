"""What `paddle elastic` says when it cannot run a job, and its exit status; spec/elastic.md 1.7. The statuses of jobs
that have begun are in test_elastic_run."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import elastic_worker
import pytest
from ports import free_ports
from test_elastic_run import LIMIT_S, started, wait_for

from paddle_base.runtime.errors import DirectoryInUseError, PortInUseError, UsageError, VolumeError
from paddle_cluster.elastic.launch import main
from paddle_cluster.elastic.launching.durable import DriverLock

COMMAND = ["true"]


class ToldEnd:
    """Runs `paddle elastic` in a directory; returns its status and its last line."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def of(self, *arguments: str) -> tuple[int, str]:
        self._capsys.readouterr()
        status = main(arguments)
        return status, self._capsys.readouterr().err.splitlines()[-1]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> ToldEnd:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PADDLE_SECRET", raising=False)
    monkeypatch.delenv("PADDLE_SECRET_FILE", raising=False)
    return ToldEnd(capsys)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["stop"], "there is no command 'paddle elastic stop'; there are 'run' and 'agent'"),
        (["run", "-np", "1"], "the command of a worker is missing, e.g. python train.py"),
        (
            ["run", "-np", "1", "--agents", *COMMAND],
            "agents and driver need the same secret; set PADDLE_SECRET or PADDLE_SECRET_FILE",
        ),
        (["run", "-np", "1", "--store-dir", "x", *COMMAND], "--store-dir needs PADDLE_SECRET"),
        (["run", "-np", "1", "--no-such-flag", *COMMAND], "'paddle elastic run --help' lists all flags"),
    ],
    ids=lambda one: " ".join(one)[:40] if isinstance(one, list) else "",
)
def test_64_what_the_user_asks_for_is_wrong(told: ToldEnd, arguments: list[str], why: str) -> None:
    status, line = told.of(*arguments)
    assert (status, why in line) == (UsageError.exit_code, True), line
    assert status == 64


def test_69_the_first_answer_of_the_discovery_is_none(told: ToldEnd) -> None:
    for script in ("exit 3", "echo a:b:c", "echo localhost:x"):
        status, line = told.of("run", "-np", "1", "--host-discovery-script", script, *COMMAND)
        assert (status, "the discovery of hosts has failed: " in line) == (69, True), line


def test_75_the_port_is_held(told: ToldEnd) -> None:
    (port,) = free_ports(1)
    with socket.socket() as held:
        held.bind(("127.0.0.1", port))
        held.listen()
        status, line = told.of("run", "-np", "1", "--port", str(port), *COMMAND)
    assert (status, f"the driver cannot listen on port {port}: " in line) == (PortInUseError.exit_code, True), line
    assert status == 75


def test_75_another_driver_has_the_workers(told: ToldEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_SECRET", "a secret of the test")
    lock = DriverLock(Path("job/workers"))
    try:
        status, line = told.of("run", "-np", "1", "--store-dir", "job", *COMMAND)
    finally:
        lock.close()
    assert (status, "; give this job another --store-dir" in line) == (DirectoryInUseError.exit_code, True), line
    assert status == 75


def test_75_another_driver_writes_into_the_directory(told: ToldEnd, tmp_path: Path) -> None:
    """Two drivers with the same --output-filename both ran, and destroyed each other's files."""
    worker = [sys.executable, elastic_worker.__file__, "say", "hello", "pid", "pids", "see", "go"]
    with started(tmp_path, "-np", "1", "--output-filename", "out", worker=worker) as process:
        wait_for(tmp_path / "pids.0")
        wait_for(tmp_path / "out/rank.0/stdout")
        status, line = told.of("run", "-np", "1", "--output-filename", "out", *COMMAND)
        assert (status, "another driver writes into out (pid " in line) == (75, True), line
        (tmp_path / "go").touch()
        assert process.wait(LIMIT_S) == 0
    assert (tmp_path / "out/rank.0/stdout").read_text() == "hello\n"
    assert told.of("run", "-np", "1", "--output-filename", "out", *COMMAND)[0] == 0


def test_74_the_output_cannot_be_written(told: ToldEnd) -> None:
    Path("file").write_text("")
    status, line = told.of("run", "-np", "1", "--output-filename", "file/output", *COMMAND)
    said = "--output-filename: file/output cannot be written: Not a directory; make room, or name another directory"
    assert (status, said in line) == (VolumeError.exit_code, True), line
    assert status == 74
