"""`paddle_cluster.elastic.launch.run` with functions that are in no module: their workers are forked."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import errno
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elastic_agents import SECRET, started_agents
from ports import free_ports

import paddle.elastic as hvd
from paddle_base.runtime import glog
from paddle_base.runtime.errors import LostPeerError, UsageError
from paddle_cluster.elastic import launch
from paddle_cluster.elastic.job import run_job
from paddle_cluster.elastic.launching.forking import ForkServer
from paddle_cluster.elastic.launching.function import FunctionCall, run_function
from paddle_cluster.elastic.launching.processes import GuardedProcess, ProcessFiles
from paddle_cluster.elastic.membership.results import JobFailedError

ROOT = Path(__file__).resolve().parents[3]
DEADLINE = 60.0


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setenv("HOROVOD_ELASTIC_TIMEOUT", "60")


def run_on_two(func: Callable[..., Any], *args: Any, **options: Any) -> list[Any]:
    return launch.run(func, args, num_proc=2, hosts="localhost:2", **options)


def list_secret_files() -> list[str]:
    """Return the descriptors of this process that lead to a secret."""
    found = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return [name for name in found if "paddle-secret" in name]


def test_no_secret_of_an_earlier_job_is_open_in_the_driver_or_its_workers() -> None:
    """The garbage collector decided how many were."""
    for _ in range(2):
        assert run_on_two(list_secret_files) == [[], []]
        assert list_secret_files() == []


def test_run_elastic_takes_a_function_and_horovods_own_attributes_alone() -> None:
    """Horovod's `run` hands `_run_elastic` an object of its own, without the attributes that only our flags have."""
    given = {"num_proc": 2, "min_num_proc": 2, "max_num_proc": 2, "hosts": "localhost:2", "nics": None, "verbose": 2}
    assert launch._run_elastic(argparse.Namespace(**given, run_func=lambda: 7, executable=None)) == [7, 7]


def test_r2_run_with_discovery_script_and_a_local_function(tmp_path: Path) -> None:
    def place() -> tuple[int, int]:
        hvd.init()
        return hvd.rank(), hvd.size()

    script = tmp_path / "discover.sh"
    script.write_text("#!/bin/sh\necho localhost:2\necho 127.0.0.1:2\n")
    script.chmod(0o755)
    numbers = {"num_proc": 2, "min_num_proc": 2, "max_num_proc": 2}
    assert launch.run(place, host_discovery_script=str(script), **numbers) == [(0, 2), (1, 2)]


def test_a_lambda_has_the_array_of_its_closure_and_any_arguments() -> None:
    values = np.arange(1 << 20, dtype=np.float32)
    found = run_on_two(
        lambda path, lock: (float(values.sum()), path.name, lock.locked()), Path("a/b"), threading.Lock()
    )
    assert found == [(float(values.sum()), "b", False)] * 2


def end_with_three() -> None:
    sys.exit(3)


def end_by_signal() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def end_by_exception() -> None:
    raise ValueError("it does not like that")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (end_with_three, r"localhost\[0\] ended with status 3"),
        (end_by_signal, r"localhost\[0\] was ended by signal 15"),
        (end_by_exception, r"localhost\[0\] ended with status 1"),
        (sys.exit, "no worker has come|has not returned"),
    ],
)
def test_how_a_function_ends_is_how_its_worker_ends(
    how: Callable[[], None], why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(JobFailedError, match=why):
        launch.run(lambda: how(), num_proc=1)
    if how is end_by_exception:
        assert "[0]<stderr>:ValueError: it does not like that\n" in capfd.readouterr().err


def test_a_result_that_cannot_be_sent_fails_the_job_and_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(JobFailedError, match="status 64"):
        launch.run(lambda: object(), num_proc=1)
    assert "<lambda> cannot be sent to another process" in capfd.readouterr().err


def test_a_killed_worker_is_replaced_in_the_next_generation(tmp_path: Path) -> None:
    begun = []  # is filled in the workers alone

    @hvd.elastic.run
    def train(state: hvd.elastic.ArrayState) -> None:
        while state.batch < 8:
            state.weights += hvd.allreduce(np.ones(4, np.float32), name="gradient")
            state.batch += 1
            if state.batch == 3 and hvd.rank() == hvd.size() - 1 and not (tmp_path / "killed").exists():
                (tmp_path / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            state.commit()

    def work() -> tuple[float, int, int]:
        begun.append(os.environ["PADDLE_ELASTIC_GENERATION"])
        (tmp_path / f"begun-{os.getpid()}").write_text(begun[-1])
        hvd.init()
        state = hvd.elastic.ArrayState(weights=np.zeros(4, np.float32), batch=0)
        train(state)
        return float(state.weights[0]), state.batch, len(begun)

    assert run_on_two(work, min_num_proc=2, failures_per_host=2) == [(8.0, 8, 1)] * 2
    assert sorted(path.read_text() for path in tmp_path.glob("begun-*")) == ["1", "1", "2"]
    assert not begun


def test_a_worker_begins_as_a_process_of_its_own() -> None:
    class NotebookStream:
        """What a notebook has for sys.stdout: it has no buffer, and no descriptor."""

        def __init__(self) -> None:
            self.text = ""

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

        def flush(self) -> None:
            pass

    def look() -> dict[str, object]:
        print("looks")
        return {
            "handlers": [signal.getsignal(one) is signal.SIG_DFL for one in (signal.SIGTERM, signal.SIGUSR1)],
            "has_interrupts": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
            "exits": atexit._ncallbacks(),  # type: ignore[attr-defined]
            "stdin": sys.stdin.read(),
            "threads": threading.active_count(),
            "is_main": threading.current_thread() is threading.main_thread(),
            "numbers": (float(np.random.rand()), random.random()),
            "has_place": hvd.is_initialized(),
            "is_leader": os.getpgrp() == os.getppid(),
        }

    hvd.init()  # this process is a job of one worker
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    stream, sys.stdout = sys.stdout, NotebookStream()  # type: ignore[assignment]
    try:
        found = run_on_two(look)
        shown = sys.stdout.text  # type: ignore[attr-defined]
    finally:
        sys.stdout = stream
        signal.signal(signal.SIGUSR1, before)
        hvd.shutdown()
    assert sorted(shown.splitlines()) == ["[0]<stdout>:looks", "[1]<stdout>:looks"]
    numbers = {number for one in found for number in one.pop("numbers")}
    assert len(numbers) == 4
    assert (
        found
        == [
            {
                "handlers": [True, True],
                "has_interrupts": True,
                "exits": 0,
                "stdin": "",
                "threads": 1,
                "is_main": True,
                "has_place": False,
                "is_leader": True,
            }
        ]
        * 2
    )


@pytest.mark.parametrize("is_in_thread", [False, True])
def test_thread_pools_end_with_the_function_and_threads_are_waited_for(
    is_in_thread: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    def work() -> int:
        threading.Timer(0.05, lambda: print("a thread ends")).start()
        return ThreadPoolExecutor(2).submit(lambda: 3).result()

    with ThreadPoolExecutor(2) as pool:  # another one, which the worker has no threads of
        assert pool.submit(lambda: 4).result() == 4
        if is_in_thread:
            assert pool.submit(lambda: launch.run(work, num_proc=1)).result(DEADLINE) == [3]
        else:
            assert launch.run(work, num_proc=1) == [3]
    assert "[0]<stdout>:a thread ends\n" in capfd.readouterr().out


def test_a_job_may_run_in_a_thread_beside_another() -> None:
    found: dict[int, list[Any]] = {}

    def run(number: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found[number] = launch.run(lambda: number, num_proc=2, hosts="localhost:2")

    threads = [threading.Thread(target=run, args=(number,)) for number in (1, 2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(DEADLINE)
    assert found == {1: [1, 1], 2: [2, 2]}


def test_a_worker_waits_for_no_lock_of_a_thread_that_it_does_not_have(capfd: pytest.CaptureFixture[str]) -> None:
    has_ended = threading.Event()

    def log() -> None:
        while not has_ended.is_set():
            glog.info("another thread logs")
            np.random.rand(1000)

    def work() -> float:
        glog.info("the worker logs")
        return float(np.random.rand())

    threads = [threading.Thread(target=log) for _ in range(2)]
    for one in threads:
        one.start()
    try:
        for _ in range(5):
            assert 0 <= launch.run(work, num_proc=1)[0] < 1
    finally:
        has_ended.set()
        for one in threads:
            one.join(DEADLINE)
    assert "the worker logs" in capfd.readouterr().err


def test_a_worker_of_run_may_not_call_run() -> None:
    def nest() -> str:
        with pytest.raises(UsageError) as caught:
            launch.run(lambda: 0, num_proc=1)
        return str(caught.value)

    assert "a worker of run() has called run() itself" in launch.run(nest, num_proc=1)[0]


# ----- Nothing is left

SCRIPT = """
import os, signal
from paddle_cluster.elastic import launch

def sit():
    print("sits", os.getpid(), os.getppid(), flush=True)
    %s
    signal.pause()

if __name__ == "__main__":
    launch.run(lambda: sit(), num_proc=2, hosts="localhost:2", output_filename="output")
"""
IGNORE = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@contextmanager
def sitting(directory: Path, more: str = "pass") -> Iterator[tuple[subprocess.Popen[bytes], dict[int, int], list[int]]]:
    """A job whose two workers sit; yields its driver, descriptors of all other processes by pid, and a worker with its
    guard."""
    (directory / "job.py").write_text(SCRIPT % more)
    driver = subprocess.Popen(
        [sys.executable, "job.py"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert driver.stdout is not None
    descriptors: dict[int, int] = {}
    try:
        families = []
        while len(families) < 2:
            line = driver.stdout.readline()
            assert line, "the driver has ended"
            families.append([int(one) for one in line.split()[1:]])
        children = [path.read_text() for path in Path(f"/proc/{driver.pid}/task").glob("*/children")]  # of each thread
        found = {pid for family in families for pid in family} | {int(one) for one in " ".join(children).split()}
        descriptors = {pid: os.pidfd_open(pid) for pid in found}  # the fork server is among them
        yield driver, descriptors, families[0]
    finally:
        driver.kill()
        driver.wait(DEADLINE)
        driver.stdout.close()
        for descriptor in descriptors.values():
            os.close(descriptor)


def wait_for_end(descriptors: list[int]) -> None:
    for one in descriptors:
        poll = select.poll()
        poll.register(one, select.POLLIN)
        assert poll.poll(DEADLINE * 1000), "a process is left"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_is_left_when_the_driver_ends(tmp_path: Path, number: signal.Signals) -> None:
    with sitting(tmp_path) as (driver, descriptors, _):
        assert len(descriptors) == 5
        driver.send_signal(number)
        driver.wait(DEADLINE)
        wait_for_end(list(descriptors.values()))


def test_a_worker_that_ignores_sigterm_is_killed_after_its_driver(tmp_path: Path) -> None:
    with sitting(tmp_path, IGNORE) as (driver, descriptors, _):
        driver.kill()
        wait_for_end(list(descriptors.values()))


@pytest.mark.parametrize("which", [0, 1], ids=["worker", "guard"])
def test_the_job_ends_when_one_of_its_processes_is_killed(tmp_path: Path, which: int) -> None:
    with sitting(tmp_path) as (driver, descriptors, family):
        os.kill(family[which], signal.SIGKILL)
        assert driver.wait(DEADLINE) == 1
        wait_for_end(list(descriptors.values()))


@contextmanager
def forking(work: Callable[[], int]) -> Iterator[tuple[ForkServer, Callable[[], GuardedProcess]]]:
    """A fork server, and a function that starts a worker with the streams of this process."""
    held, watched = socket.socketpair()
    with contextlib.closing(ForkServer(work)) as forks, held, watched:
        yield forks, lambda: forks.start(os.environ, ProcessFiles(1, 2, watched.fileno()))


def test_a_worker_goes_on_without_its_fork_server_and_no_other_starts() -> None:
    """The end of the fork server ended the workers, too."""
    readable, writable = os.pipe()
    with forking(lambda: os.read(readable, 1)[0]) as (forks, start):
        worker = start()
        os.kill(forks._pid, signal.SIGKILL)
        with pytest.raises(LostPeerError, match="was killed"):
            start()
        with pytest.raises(LostPeerError, match="was killed"):
            start()
        os.write(writable, b"\x07")
        assert worker.wait() == 7
        worker.close()
    for one in (readable, writable):
        os.close(one)


def test_a_worker_that_cannot_be_forked_is_an_error_and_the_next_one_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    fork = os.fork

    def fork_later() -> int:
        if os.getpid() != here and select.select([readable], [], [], 0)[0]:
            os.read(readable, 1)
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return fork()

    here = os.getpid()
    monkeypatch.setattr(os, "fork", fork_later)
    with forking(lambda: 5) as (_, start):
        os.write(writable, b"x")
        with pytest.raises(OSError, match="temporarily unavailable"):
            start()
        worker = start()
        assert worker.wait() == 5
        worker.close()
    for one in (readable, writable):
        os.close(one)


def test_workers_of_a_driver_without_streams_have_theirs(tmp_path: Path) -> None:
    """The descriptors that the fork server got had the numbers of the streams, and the driver's copy failed."""
    (tmp_path / "job.py").write_text(
        "import os\nfrom paddle_cluster.elastic import launch\n"
        'launch.run(lambda: print("said"), num_proc=1, output_filename="output")\n'
    )
    command = 'exec "$0" job.py <&- >&- 2>&-'
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(["sh", "-c", command, sys.executable], cwd=tmp_path, env=environ, timeout=DEADLINE, check=True)
    assert (tmp_path / "output" / "rank.0" / "stdout").read_text() == "said\n"


# ----- Workers of agents


def run_by_agent(func: Callable[..., Any], port: int) -> list[Any]:
    flags = f"-np 1 -H 127.0.0.2:1 --agents --agent-port {port} --agent-timeout 60 --failures-per-host 1"
    settings = launch.make_settings(launch.parse_args(flags.split()))
    return run_function(FunctionCall(func, (3,), {}), None, lambda program: run_job(settings, program))


def test_an_agent_runs_a_function_by_its_name_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "of_an_agent.py").write_text("def double(number):\n    return 2 * number\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PADDLE_SECRET", SECRET)
    import of_an_agent  # type: ignore[import-not-found]

    with started_agents(tmp_path, free_ports(1)[0], "127.0.0.2") as agents:
        assert run_by_agent(of_an_agent.double, agents.port) == [6]
        with pytest.raises(JobFailedError):
            run_by_agent(lambda number: number, agents.port)
    wanted = "<lambda> to another machine or another Python, because a function is sent by its name"
    assert wanted in capfd.readouterr().err
