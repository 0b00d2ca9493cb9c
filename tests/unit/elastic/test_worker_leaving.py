"""A worker that receives SIGTERM leaves at its next commit; the driver says whether it may."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_workers import LIMIT_S, ScriptedJob, ScriptedProcess
from waiting import until

from paddle_cluster.elastic.errors import LeftJobError, RemovedFromJobError
from paddle_cluster.elastic.hosts import SlotInfo, list_slot_variables
from paddle_cluster.elastic.http_server import RendezvousServer
from paddle_cluster.elastic.process import leaving, membership
from paddle_cluster.elastic.rendezvous import create_rendezvous_handler

# Prints how a forked child ends after SIGTERM; then ends itself by SIGTERM, with no driver at its port.
ALONE = """
import os, signal, sys, threading
from paddle_cluster.elastic.process import leaving
from paddle_cluster.elastic.process.membership import WORKER
from paddle_cluster.elastic.process.placement import WorkerSettings
from paddle_cluster.elastic.rendezvous_client import RendezvousClient

leaving.ANSWER_S = 0.2
WORKER.settings = WorkerSettings("127.0.0.1", 1, is_elastic=True)
WORKER.client = RendezvousClient("127.0.0.1", 1)
with leaving.leaving_on_sigterm():
    child = os.fork()
    if not child:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(1)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(60)
"""


class Job:
    """A job whose process `one` is this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.job = ScriptedJob({"a": 1, "b": 1}, waits=False)
        self.server = RendezvousServer(secret="s")
        self.port = self.server.start(create_rendezvous_handler(self.job.driver), address="127.0.0.1")
        self.first, self.one = self.job.start(2)
        self.worker = membership.WorkerMembership()
        monkeypatch.setattr(leaving, "WORKER", self.worker)
        self.monkeypatch = monkeypatch

    def take_place(self, process: ScriptedProcess, slot: SlotInfo) -> None:
        """Let this process be a worker."""
        environ = {
            **list_slot_variables(slot),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(self.port),
            "HOROVOD_ELASTIC": "1",
            "PADDLE_ELASTIC_INCARNATION": process.incarnation,
            "PADDLE_ELASTIC_GENERATION": str(process.generation),
            "PADDLE_SECRET": "s",
        }
        for name, value in environ.items():
            self.monkeypatch.setenv(name, value)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    one = Job(monkeypatch)
    yield one
    one.worker.end()
    one.server.stop()
    one.job.end()


@pytest.fixture
def worker_job(job: Job) -> Iterator[Job]:
    """The job, in which this process is a worker without a handler of SIGTERM."""
    job.take_place(job.one, SlotInfo("b", 1, 0, 1, 2, 1, 2))
    job.worker._begin()
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield job
    signal.signal(signal.SIGTERM, before)


def test_sigterm_leaves_at_the_next_commit(worker_job: Job) -> None:
    job = worker_job
    with leaving.leaving_on_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: job.worker.is_leaving, "the answer of the driver")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    job.job.wait_for_notice(0)
    with pytest.raises(LeftJobError, match=r"b\[0\] has left the job at a commit, after SIGTERM") as caught:
        job.worker._ask_for_place()
    assert caught.value.exit_code == 143
    assert job.job.ask(job.first).result(LIMIT_S) == (SlotInfo("a", 0, 0, 0, 1, 1, 1), 2)


def test_an_error_after_sigterm_is_no_failure(worker_job: Job) -> None:
    """The signal to the group of a worker ends the children of its DataLoader, which then raises an error."""
    with pytest.raises(KeyError, match="own"), leaving.leaving_on_sigterm():
        raise KeyError("own")  # without a signal
    what = r"b\[0\] has left .* with RuntimeError: a DataLoader worker"
    with pytest.raises(LeftJobError, match=what), leaving.leaving_on_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
        raise RuntimeError("a DataLoader worker is killed by signal: Terminated")
    assert worker_job.worker.is_leaving
    worker_job.job.wait_for_notice(0)  # the driver knows that the end is no failure


def test_a_worker_that_has_left_before_the_driver_answers_ends_with_143(job: Job) -> None:
    """The driver notifies rank 0 before it answers; if all were quick, the worker ended as removed, with status 75."""
    job.take_place(job.one, SlotInfo("b", 1, 0, 1, 2, 1, 2))
    job.worker._begin()
    errors: list[BaseException] = []

    class SlowClient(leaving.RendezvousClient):
        def leave(self, *place: Any) -> bool:
            answer = super().leave(*place)
            with pytest.raises(RemovedFromJobError) as caught:
                job.worker._ask_for_place()
            errors.append(caught.value)
            return answer

    job.monkeypatch.setattr(leaving, "RendezvousClient", SlowClient)
    leaving._LeavingHandler()._ask()
    assert [type(one) for one in errors] == [LeftJobError]


def test_a_handler_of_the_program_stays(job: Job) -> None:
    job.take_place(job.one, SlotInfo("b", 1, 0, 1, 2, 1, 2))
    job.worker._begin()
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with leaving.leaving_on_sigterm():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sigterm_ends_a_forked_child_and_a_worker_without_a_driver() -> None:
    """A child of a DataLoader has the handler of its worker; `terminate()` must end it."""
    root = Path(membership.__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=root, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("15\n", -15), done.stderr
