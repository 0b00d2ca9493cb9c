"""A job of PyTorch under `paddle elastic run`: a worker is killed, a host is added, a host is removed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from chaos.allreduce import verdict
from chaos.allreduce.ledger import Ledger, WorkerRecord
from forked import Forked, server
from waiting import until

pytest.importorskip("torch", reason="the extra torch is not installed")

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests/chaos/allreduce/allreduce_torch.py"
LIMIT_S = 240.0  # several processes import torch on a busy machine
EPOCHS, SAMPLES, BATCH = 6, 192, 12
PACE_S = 1.0  # seconds of a step until all has happened; the job has 96 steps


def list_children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def write_hosts(directory: Path, text: str) -> None:
    (directory / "hosts.new").write_text(text)
    (directory / "hosts.new").replace(directory / "hosts")


def wait_for_size(process: Forked, ledger: Ledger, size: int, log: Path, seen: set[int]) -> list[WorkerRecord]:
    """Wait until a new generation of this size has committed a step; return its workers by rank.

    Args: seen: the generations of earlier calls.
    """

    def look() -> list[WorkerRecord]:
        assert process.poll() is None, f"the job has ended: {log.read_text()}"
        ledger.look()
        newest = ledger.generation
        some = [one for one in ledger.begun if one.commits and one.commits[-1].generation == newest]
        if newest in seen:
            return []
        is_whole = len(some) == size and all(one.commits[-1].size == size for one in some)
        return sorted(some, key=lambda one: one.commits[-1].rank) if newest and is_whole else []

    found = until(look, f"a step of {size} workers in another generation than {seen}", LIMIT_S, log=log)
    seen.add(ledger.generation)
    return found


def start(directory: Path, *flags: str, pace: float) -> tuple[Forked, Ledger, Path]:
    """Start a job; return its process, the ledger of its workers, and the file of its output."""
    (directory / "ledger").mkdir()
    environ = {
        **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOROVOD_ELASTIC_TIMEOUT": "120",
        "CHAOS_LEDGER": str(directory / "ledger"), "CHAOS_PACE": str(pace), "CHAOS_HURRY": str(directory / "hurry"),
        "CHAOS_EPOCHS": str(EPOCHS), "CHAOS_SAMPLES": str(SAMPLES), "CHAOS_BATCH": str(BATCH),
        "PADDLE_ELASTIC_SILENCE_SECONDS": "1000",
    }  # fmt: skip
    log = directory / "log"
    command = ["paddle", "elastic", "run", *flags, "--gloo-timeout-seconds", "60", sys.executable, SCRIPT]
    with log.open("wb") as output:
        process = server().start(command, directory, environ, [output.fileno()] * 2)
    return process, Ledger(directory / "ledger"), log


def read_ends(ledger: Ledger) -> list[list[float]]:
    """Return the weights with which each worker ended."""
    ledger.look()
    ends = [one.end for one in ledger.workers.values() if one.end is not None]
    return [[float.fromhex(text) for text in end["weights"]] for end in ends]


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A job of two workers, of which one is killed; then a host comes, and a host goes.

    The process of the killed one's DataLoader is stopped, and so cannot end by itself. Nobody may wait for its end.
    """
    directory = tmp_path_factory.mktemp("life")
    write_hosts(directory, "localhost:2\n")
    flags = ["-np", "2", "--min-np", "1", "--max-np", "3", "--failures-per-host", "2"]
    process, ledger, log = start(directory, *flags, "--host-discovery-script", "cat hosts", pace=PACE_S)
    child, seen = 0, set[int]()
    try:
        killed = wait_for_size(process, ledger, 2, log, seen)[1]
        (child,) = until(lambda: list_children(killed.pid), "the process of a DataLoader")
        os.kill(child, signal.SIGSTOP)
        os.kill(killed.pid, signal.SIGKILL)
        until(lambda: "training continues from the last commit: rank 1 is lost" in log.read_text(), log=log)
        wait_for_size(process, ledger, 2, log, seen)
        write_hosts(directory, "localhost:2\n127.0.0.1:1\n")
        wait_for_size(process, ledger, 3, log, seen)
        write_hosts(directory, "127.0.0.1:1\nlocalhost:1\n")
        wait_for_size(process, ledger, 2, log, seen)
        (directory / "hurry").touch()
        assert process.wait(LIMIT_S) == 0, log.read_text()
    finally:
        process.kill()
        if child:
            with contextlib.suppress(ProcessLookupError):  # its guard may have ended it
                os.kill(child, signal.SIGKILL)
    ledger.look()
    return ledger


@pytest.mark.timeout(2 * LIMIT_S)
def test_a_model_goes_on_when_a_worker_is_killed_and_hosts_come_and_go(life: Ledger) -> None:
    """All have the same bits at each commit, and each sample counts once, though DataLoaders have read ahead."""
    workers = list(life.workers.values())
    steps = verdict.list_committed(workers)
    faults = verdict.check_agreement(workers) + verdict.check_generations(workers)
    faults += verdict.check_samples(steps, EPOCHS, SAMPLES, BATCH)
    faults += verdict.check_model(workers, steps, SAMPLES, is_torch=True)
    assert faults == []


@pytest.mark.timeout(2 * LIMIT_S)
def test_ddp_fixed_workers_and_workers_that_come_and_go_make_the_same_model(life: Ledger, tmp_path: Path) -> None:
    process, ledger, log = start(tmp_path, "-np", "2", pace=0.0)
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, ROOT / "tests/torch_ddp.py", tmp_path, str(EPOCHS), str(SAMPLES), str(BATCH)]
    try:
        subprocess.run(command, env=environ, timeout=LIMIT_S, check=True)
        assert process.wait(LIMIT_S) == 0, log.read_text()
    finally:
        process.kill()
    expected = json.loads((tmp_path / "weights").read_text())
    fixed, changing = read_ends(ledger), read_ends(life)
    assert len(fixed) == len(changing) == 2
    for found in fixed + changing:
        assert found == pytest.approx(expected, abs=verdict.TOLERANCE, rel=0)
