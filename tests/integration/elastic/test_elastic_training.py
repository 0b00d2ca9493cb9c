"""A job of `hvd` from its start to its end, with a worker that is killed and a host that joins."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from forked import server

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
