"""A job of PyTorch whose workers are forks of this process: a worker is killed, a host is added, a host is removed."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from chaos.allreduce import verdict
from chaos.allreduce.ledger import Ledger, WorkerRecord
from waiting import until

from paddle_cluster.elastic import launch

pytest.importorskip("torch", reason="the extra torch is not installed")

import torch_ddp

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests/chaos/allreduce/allreduce_torch.py"
LIMIT_S = 240.0
EPOCHS, SAMPLES, BATCH = 6, 192, 12
PACE_S = 1.0  # seconds of a step until all has happened; the job has 96 steps


def list_children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def write_hosts(directory: Path, text: str) -> None:
    (directory / "hosts.new").write_text(text)
    (directory / "hosts.new").replace(directory / "hosts")


class Job:
    """A job whose driver is a thread of this process.

    Args: flags: arguments of `launch.run`.  pace: seconds of a step.
    Attributes: ended: the results of the workers.  ledger: what the workers have written.
    """

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch, pace: float, **flags: Any) -> None:
        self.ledger, self.output = Ledger(directory / "ledger"), directory / "output"
        (directory / "ledger").mkdir()
        self._seen: set[int] = set()  # generations of earlier calls of `wait_for_size`
        environ = {
            "OMP_NUM_THREADS": "1", "HOROVOD_ELASTIC_TIMEOUT": "120", "PADDLE_ELASTIC_SILENCE_SECONDS": "1000",
            "CHAOS_LEDGER": directory / "ledger", "CHAOS_PACE": pace, "CHAOS_HURRY": directory / "hurry",
            "CHAOS_EPOCHS": EPOCHS, "CHAOS_SAMPLES": SAMPLES, "CHAOS_BATCH": BATCH,
        }  # fmt: skip
        for name, value in environ.items():
            patch.setenv(name, str(value))
        self.ended: Future[list[None]] = Future()

        def drive() -> None:
            try:
                self.ended.set_result(launch.run(work, num_proc=2, output_filename=str(self.output), **flags))
            except BaseException as exc:
                self.ended.set_exception(exc)

        # a daemon, because the workers of a job that hangs end with this process
        threading.Thread(target=drive, name="driver", daemon=True).start()

    def read_log(self) -> str:
        return "".join(path.read_text() for path in self.output.glob("*/stderr*"))

    def wait_for_size(self, size: int) -> list[WorkerRecord]:
        """Wait until a new generation of this size has committed a step; return its workers by rank."""

        def look() -> list[WorkerRecord]:
            assert not self.ended.done(), f"the job has ended: {self.read_log()}"
            self.ledger.look()
            newest = self.ledger.generation
            some = [one for one in self.ledger.begun if one.commits and one.commits[-1].generation == newest]
            if newest in self._seen:
                return []
            is_whole = len(some) == size and all(one.commits[-1].size == size for one in some)
            return sorted(some, key=lambda one: one.commits[-1].rank) if newest and is_whole else []

        found = until(look, f"a step of {size} workers in another generation than {self._seen}", LIMIT_S)
        self._seen.add(self.ledger.generation)
        return found


def work() -> None:
    """What a worker does; a script that Python starts has its directory in its path."""
    sys.path.insert(0, str(SCRIPT.parent))
    runpy.run_path(str(SCRIPT), run_name="__main__")


def read_ends(ledger: Ledger) -> list[list[float]]:
    """Return the weights with which each worker ended."""
    ledger.look()
    ends = [one.end for one in ledger.workers.values() if one.end is not None]
    return [[float.fromhex(text) for text in end["weights"]] for end in ends]


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """A job of two workers, of which one is killed; then a host comes, and a host goes.

    The process of the killed one's DataLoader is stopped, and so cannot end by itself. Nobody may wait for its end.
    """
    directory = tmp_path_factory.mktemp("life")
    write_hosts(directory, "localhost:2\n")
    flags = {"min_num_proc": 1, "max_num_proc": 3, "failures_per_host": 2}
    child = 0
    with pytest.MonkeyPatch.context() as patch:
        job = Job(directory, patch, PACE_S, host_discovery_script=f"cat {directory}/hosts", **flags)
        try:
            killed = job.wait_for_size(2)[1]
            (child,) = until(lambda: list_children(killed.pid), "the process of a DataLoader")
            os.kill(child, signal.SIGSTOP)
            os.kill(killed.pid, signal.SIGKILL)
            until(lambda: "training continues from the last commit: rank 1 is lost" in job.read_log())
            job.wait_for_size(2)
            write_hosts(directory, "localhost:2\n127.0.0.1:1\n")
            job.wait_for_size(3)
            write_hosts(directory, "127.0.0.1:1\nlocalhost:1\n")
            job.wait_for_size(2)
        finally:
            (directory / "hurry").touch()
            if child:
                with contextlib.suppress(ProcessLookupError):  # its guard may have ended it
                    os.kill(child, signal.SIGKILL)
        job.ended.result(LIMIT_S)
    job.ledger.look()
    yield job.ledger


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
def test_ddp_fixed_workers_and_workers_that_come_and_go_make_the_same_model(
    life: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch, 0.0, hosts="localhost:2")
    launch.run(torch_ddp.train, (tmp_path, EPOCHS, SAMPLES, BATCH), num_proc=2, hosts="localhost:2")
    job.ended.result(LIMIT_S)
    expected = json.loads((tmp_path / "weights").read_text())
    fixed, changing = read_ends(job.ledger), read_ends(life)
    assert len(fixed) == len(changing) == 2
    for found in fixed + changing:
        assert found == pytest.approx(expected, abs=verdict.TOLERANCE, rel=0)
