"""A job of `hvd` from its start to its end, with a worker that is killed and a host that joins."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import elastic_hold
import elastic_training
from elastic_agents import LIMIT_S
from forked import server
from test_elastic_run import run, started
from waiting import until

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 100.0
BATCHES = 40


def run_job(directory: Path, *command: str) -> str:
    """Returns what a job of 3 workers writes."""
    script = directory / "discover.sh"
    script.write_text(f"#!/bin/sh\ncat {directory}/hosts\n")
    script.chmod(0o755)
    (directory / "hosts").write_text("localhost:2\n127.0.0.1:1\n")
    flags = ["-np", "3", "--min-np", "2", "--max-np", "4", "--failures-per-host", "2"]
    driver = ["paddle", "elastic", "run", *flags, "--host-discovery-script", script, *command]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    ended = server().run(driver, directory, environ, merged=True, timeout=DEADLINE_S)
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def test_a_worker_is_killed_and_a_host_joins(tmp_path: Path) -> None:
    for name in ("kill", "add"):
        (tmp_path / name).touch()
    run_job(tmp_path, sys.executable, str(ROOT / "tests/elastic_trainer.py"), str(tmp_path), str(BATCHES))
    results = [json.loads((tmp_path / f"result.{rank}").read_text()) for rank in range(4)]
    # no committed batch is lost or counted twice, and the average of ones is one whoever takes part
    assert results == [{"size": 4, "weight": float(BATCHES), "seen": list(range(BATCHES))}] * 4


def test_the_example_learns(tmp_path: Path) -> None:
    output = run_job(tmp_path, sys.executable, str(ROOT / "examples/allreduce/train.py"))
    (last,) = [line for line in output.splitlines() if "epoch 3: 3 workers, error" in line]
    assert float(last.rpartition(" ")[2]) < 0.05


def test_a_loop_goes_on_when_a_worker_dies_and_when_another_one_comes(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost:2\n")
    flags = ["-np", "2", "--min-np", "1", "--host-discovery-script", "cat hosts", "--failures-per-host", "2"]
    status, lines, log = run(tmp_path, *flags, worker=[sys.executable, elastic_training.__file__, "8"])
    assert status == 0, log
    assert lines == [f"[{rank}]<stdout>:3 workers, steps lost or counted twice: 0" for rank in range(3)]
    assert re.search("generation [34] has 3 workers", log)  # the second has one, while a new worker starts


def test_a_worker_that_gets_sigterm_leaves_at_a_commit_and_the_other_one_goes_on(tmp_path: Path) -> None:
    flags = ["-np", "2", "--min-np", "1", "--failures-per-host", "1"]
    script = f"{sys.executable} {elastic_hold.__file__} {tmp_path}; s=$?; echo $s > ended.$HOROVOD_RANK; exit $s"
    size, ended = tmp_path / "size", tmp_path / "ended.1"
    with started(tmp_path, *flags, worker=["sh", "-c", script]) as process:
        until(lambda: size.exists() and size.read_text() == "2", "two workers")
        os.kill(int((tmp_path / "pids/localhost.1").read_text()), signal.SIGTERM)
        until(lambda: ended.exists() and bool(ended.read_text()), "the end of the worker")
        until(lambda: size.read_text() == "1", "one worker")
        (tmp_path / "stop").touch()
        _, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, log
    assert ended.read_text() == "143\n"
    assert "reports FAILURE" not in log
    assert "a collective failed" not in log
    assert "blacklisted" not in log


def test_a_worker_that_the_driver_has_removed_leaves_with_one_line_and_status_75(tmp_path: Path) -> None:
    """It left with the traceback of a RemovedFromJobError and status 1, as if its script had a fault."""
    (tmp_path / "hosts").write_text("localhost:2\n")
    flags = ["-np", "2", "--min-np", "1", "--host-discovery-script", "cat hosts", "--failures-per-host", "2"]
    script = f"{sys.executable} {elastic_hold.__file__} {tmp_path}; s=$?; echo $s > ended.$HOROVOD_RANK; exit $s"
    size, ended = tmp_path / "size", tmp_path / "ended.1"
    with started(tmp_path, *flags, worker=["sh", "-c", script]) as process:
        until(lambda: size.exists() and size.read_text() == "2", "two workers")
        (tmp_path / "hosts.new").write_text("localhost:1\n")
        (tmp_path / "hosts.new").replace(tmp_path / "hosts")
        until(lambda: ended.exists() and bool(ended.read_text()), "the end of the removed worker")
        (tmp_path / "stop").touch()
        output, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, log
    assert ended.read_text() == "75\n"
    lines = (output + log).splitlines()
    assert "Traceback" not in output + log
    (said,) = [line for line in lines if "removed from" in line]
    assert said.startswith("[1]<stderr>:W")
    assert said.endswith("localhost[1] was removed from the elastic job: the driver has no rank for it")
