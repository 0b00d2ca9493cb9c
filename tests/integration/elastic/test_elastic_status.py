"""`paddle status` of an all-reduce job: in the middle of a change, after its driver was killed, and at its end."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import elastic_worker
import pytest
from test_elastic_run import LIMIT_S, run, started, wait_for
from waiting import until

from paddle.command import main

WORKER = [sys.executable, elastic_worker.__file__, "1:fail-once", "failed", "0:pid", "pids", "0:see", "go", "0:ready"]
FLAGS = ["-np", "2", "--min-np", "2", "--output-filename", "out"]
FAILURE = "localhost[1], rank 1, ended with status 3"


class ToldStatus:
    """What `paddle status` says of a directory."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._directory, self._capsys = directory, capsys

    def lines(self) -> list[str]:
        self._capsys.readouterr()
        assert main(["status", str(self._directory)]) == 0
        return self._capsys.readouterr().out.splitlines()

    def wait_for(self, text: str) -> list[str]:
        """Return what it says as soon as a text is in its first line."""
        return until(lambda: found if text in (found := self.lines())[0] else None, text) or []


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> ToldStatus:
    return ToldStatus(tmp_path / "out", capsys)


def check_end(lines: list[str]) -> None:
    assert lines[0] == "finished; generation 2 of 2 workers"
    assert lines[1].startswith("the driver ended ")
    assert lines[2].startswith("1 change of workers took ")
    assert lines[3:6] == [
        "workers of generation 2:",
        "  rank 0: localhost[0], since generation 1, has done its work",
        "  rank 1: localhost[1], since generation 2, has done its work",
    ]
    assert "; came localhost[1]; went localhost[1]; " in lines[7]
    assert lines[8].endswith(f"; until {FAILURE}")
    assert len(lines) == 9


def test_a_change_is_told_while_it_lasts_and_after_the_driver_was_killed(
    tmp_path: Path, told: ToldStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLE_SECRET", "a secret of the test")
    flags = [*FLAGS, "--store-dir", "store"]
    with started(tmp_path, *flags, worker=WORKER) as process:
        wait_for(tmp_path / "pids.0")
        lines = told.wait_for("changes since ")
        assert lines[0].endswith(f": generation 1 of 2 workers, of which 1 still work, 1 have failed; {FAILURE}")
        assert lines[-1].endswith(f"; then {FAILURE}")
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_S)
    with monkeypatch.context() as patches:
        patches.setattr("paddle_base.runtime.status_files.LATE_S", 0.0)
        patches.setattr("paddle_base.runtime.status_files.WATCH_S", 0.5)
        lines = told.lines()
    assert ": it was killed, is frozen or cannot write here. Its workers continue for --driver-grace" in lines[0]
    assert lines[1].startswith("changes since ")
    (tmp_path / "go").touch()
    status, _, log = run(tmp_path, *flags, worker=WORKER)
    assert status == 0, log
    check_end(told.lines())


def test_the_end_is_told_with_its_status(tmp_path: Path, told: ToldStatus) -> None:
    (tmp_path / "go").touch()
    status, _, log = run(tmp_path, *FLAGS, worker=WORKER)
    assert status == 0, log
    check_end(told.lines())
    assert run(tmp_path, *FLAGS, worker=[*WORKER[:2], "exit", "5"])[0] == 5
    assert told.lines()[0].startswith("ended with status 5: localhost[")


def test_a_job_that_could_not_begin_says_why(tmp_path: Path, told: ToldStatus) -> None:
    found = ["--host-discovery-script", "echo localhost:1"]
    status, _, log = run(tmp_path, *FLAGS, "--elastic-timeout", "0.1", *found, worker=WORKER)
    assert status == 69, log
    assert told.lines()[0].startswith("ended with status 69: waited 0.1 s for 2 slots")
