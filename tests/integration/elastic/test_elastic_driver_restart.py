"""N11 of ../shared/spec/elastic.md, section 2: a driver that was killed goes on with the workers that run (G1)."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import elastic_worker
import pytest
from test_elastic_run import LIMIT_S, run, started, wait_for, wait_for_end

WORKER = [sys.executable, elastic_worker.__file__]
FLAGS = ["-np", "2", "--min-np", "2", "--store-dir", "store"]


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_SECRET", "a secret of the test")


def test_n11_a_driver_that_was_killed_goes_on_with_its_workers(tmp_path: Path) -> None:
    worker = [*WORKER, "say", "begun", "pid", "pids", "see", "go", "ready", "env"]
    with started(tmp_path, *FLAGS, worker=worker) as process:
        first, second = wait_for(tmp_path / "pids.0"), wait_for(tmp_path / "pids.1")
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_S)
    (tmp_path / "go").touch()  # the workers ask for the next rank while there is no driver
    status, lines, log = run(tmp_path, *FLAGS, worker=worker)
    assert status == 0, log
    assert "generation 1 continues with 2 workers of a driver that has ended" in log
    assert (wait_for(tmp_path / "pids.0"), wait_for(tmp_path / "pids.1")) == (first, second), log
    shown = [line for line in lines if "begun" not in line]  # the first driver has shown that, or it has not
    assert shown == [
        "[0]<stdout>:generation 2: 0 of 2",
        "[0]<stdout>:localhost,0,2,0",
        "[1]<stdout>:generation 2: 1 of 2",
        "[1]<stdout>:localhost,1,2,1",
    ]


def test_a_worker_that_ended_while_there_was_no_driver_has_reported(tmp_path: Path) -> None:
    worker = [*WORKER, "pid", "pids", "see", "go", "1:fail-once", "failed", "0:see", "failed", "0:ready", "env"]
    with started(tmp_path, *FLAGS, worker=worker) as process:
        second = int(wait_for(tmp_path / "pids.1"))
        wait_for(tmp_path / "pids.0")
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_S)
    (tmp_path / "go").touch()
    wait_for_end(second)
    status, lines, log = run(tmp_path, *FLAGS, worker=worker)
    assert status == 0, log
    assert lines == ["[0]<stdout>:generation 2: 0 of 2", "[0]<stdout>:localhost,0,2,0", "[1]<stdout>:localhost,1,2,1"]


def test_workers_end_when_no_driver_comes(tmp_path: Path) -> None:
    worker = [*WORKER, "pid", "pids", "hang"]
    with started(tmp_path, *FLAGS, "--driver-grace", "1", worker=worker) as process:
        pids = [int(wait_for(tmp_path / f"pids.{rank}")) for rank in range(2)]
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_S)
    for pid in pids:
        wait_for_end(pid)


def test_a_job_that_has_ended_is_begun_anew(tmp_path: Path) -> None:
    for _ in range(2):
        status, lines, log = run(tmp_path, *FLAGS, worker=[*WORKER, "say", "hello"])
        assert status == 0, log
        assert lines == ["[0]<stdout>:hello", "[1]<stdout>:hello"]


def test_a_job_with_a_store_needs_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDLE_SECRET")
    status, _, log = run(tmp_path, *FLAGS, worker=WORKER)
    assert status == 64
    assert "--store-dir needs PADDLE_SECRET" in log
