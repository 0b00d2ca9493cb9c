"""`paddle elastic run` with processes of this machine, from the command line to its exit status."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import elastic_worker
import pytest
from forked import Forked, server
from waiting import until

from paddle_cluster.elastic.launching import durable

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 60.0
WORKER = [sys.executable, elastic_worker.__file__]
LOOP = """
import pathlib, threading
import paddle.elastic as hvd

hvd.init()

@hvd.elastic.run
def train(state):
    pathlib.Path("begun").write_text("1")
    threading.Event().wait(60)

train(hvd.elastic.ObjectState())
"""


@contextlib.contextmanager
def started(directory: Path, *flags: str, worker: list[str]) -> Iterator[Forked]:
    """A job with this worker; it is ended with the block."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HOROVOD_ELASTIC_TIMEOUT": "60"}
    with server().open(["paddle", "elastic", "run", *flags, *worker], directory, environ) as process:
        try:
            yield process
        finally:
            process.kill()
            process.communicate(LIMIT_S)  # until its workers have ended, too


def run(directory: Path, *flags: str, worker: list[str]) -> tuple[int, list[str], str]:
    """Run a job to its end; return its status, its output by line, sorted, and what it has logged."""
    with started(directory, *flags, worker=worker) as process:
        output, log = process.communicate(timeout=2 * LIMIT_S)
        return process.wait(LIMIT_S), sorted(output.splitlines()), log


def wait_for(path: Path) -> str:
    return until(lambda: path.exists() and path.read_text(), path)


def wait_for_end(pid: int) -> None:
    until(lambda: not Path(f"/proc/{pid}").exists(), f"the end of {pid}")


def test_two_workers_end_with_their_work_done(tmp_path: Path) -> None:
    """As a user starts them; the drivers of the other tests are forked."""
    command = [sys.executable, "-m", "paddle", "elastic", "run", "-np", "2", "--min-np", "1"]
    ended = subprocess.run(
        [*command, *WORKER, "env", "1:say", "hello"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=2 * LIMIT_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == [
        "[0]<stdout>:localhost,0,2,0",
        "[1]<stdout>:hello",
        "[1]<stdout>:localhost,1,2,1",
    ]


def test_r1_run_with_hosts(tmp_path: Path) -> None:
    flags = ["-np", "4", "--min-num-proc", "4", "--max-num-proc", "4", "-H", "localhost:2,127.0.0.1:2"]
    status, lines, log = run(tmp_path, *flags, worker=[*WORKER, "env"])
    assert status == 0, log
    names = ["localhost,0,4,0", "localhost,1,4,1", "127.0.0.1,2,4,0", "127.0.0.1,3,4,1"]
    assert lines == [f"[{rank}]<stdout>:{name}" for rank, name in enumerate(names)]


def test_r2_run_with_discovery_script(tmp_path: Path) -> None:
    (tmp_path / "discover.sh").write_text("#!/bin/sh\necho localhost\necho 127.0.0.1\n")
    (tmp_path / "discover.sh").chmod(0o755)
    flags = ["-np", "4", "--host-discovery-script", "./discover.sh", "--slots-per-host", "2"]
    status, lines, log = run(tmp_path, *flags, worker=[*WORKER, "env"])
    assert status == 0, log
    assert [line.split(":")[1] for line in lines] == [
        "localhost,0,4,0",
        "localhost,1,4,1",
        "127.0.0.1,2,4,0",
        "127.0.0.1,3,4,1",
    ]


def test_a_worker_that_fails_is_started_again_beside_the_one_that_goes_on(tmp_path: Path) -> None:
    worker = [*WORKER, "1:fail-once", "failed", "0:see", "failed", "0:ready", "0:touch", "over", "1:see", "over", "env"]
    status, lines, log = run(tmp_path, "-np", "2", "--min-np", "2", worker=worker)
    assert status == 0, log
    assert lines == [
        "[0]<stdout>:generation 2: 0 of 2",
        "[0]<stdout>:localhost,0,2,0",
        "[1]<stdout>:localhost,1,2,1",
    ]


def test_a_host_that_comes_has_new_workers(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost:1\n")
    flags = ["-np", "1", "--min-np", "1", "--host-discovery-script", "cat hosts; test ! -e more || echo 127.0.0.1:1"]
    worker = [*WORKER, "0:touch", "more", "0:wait", "0:ready", "0:touch", "over", "1:init", "1:see", "over", "env"]
    status, lines, log = run(tmp_path, *flags, worker=worker)
    assert status == 0, log
    assert lines == [
        "[0]<stdout>:generation 2: 0 of 2",
        "[0]<stdout>:hosts have changed: 2",
        "[0]<stdout>:localhost,0,1,0",
        "[1]<stdout>:127.0.0.1,1,2,0",
        "[1]<stdout>:generation 2: 1 of 2",
    ]


def test_the_status_is_that_of_the_worker_that_failed_first(tmp_path: Path) -> None:
    worker = [*WORKER, "0:touch", "first", "0:exit", "5", "1:see", "first", "1:exit", "6"]
    assert run(tmp_path, "-np", "2", "--min-np", "2", worker=worker)[0] in (5, 6)
    status, _, log = run(tmp_path, "-np", "1", "--min-np", "1", worker=["sh", "-c", "kill -9 $$"])
    assert status == 75
    assert "localhost[0] was ended by signal 9" in log


def test_a_job_that_is_not_elastic_ends_with_its_first_failure(tmp_path: Path) -> None:
    status, _, log = run(tmp_path, "-np", "2", worker=[*WORKER, "0:hang", "1:exit", "7"])
    assert status == 7
    assert "localhost[1] ended with status 7" in log
    assert run(tmp_path, "-np", "2", worker=["sh", "-c", "test -z $HOROVOD_ELASTIC"])[0] == 0


def test_output_goes_to_the_files_of_each_rank_too(tmp_path: Path) -> None:
    flags = ["-np", "1", "--max-np", "11", "--output-filename", "output", "--prefix-output-with-timestamp"]
    status, lines, _ = run(tmp_path, *flags, "-H", "localhost:1", worker=[*WORKER, "say", "hello"])
    assert status == 0
    assert lines[0].endswith("[0]<stdout>:hello")
    assert len(lines[0]) > len("[0]<stdout>:hello")
    assert (tmp_path / "output/rank.00/stdout").read_text() == "hello\n"
    assert (tmp_path / "output/rank.00/stderr").read_text() == ""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_ends_the_workers_and_the_job(tmp_path: Path, number: int, status: int) -> None:
    worker = ["sh", "-c", "sleep 600 & echo $! > grandchild; echo $$ > child; wait"]
    with started(tmp_path, "-np", "1", "--min-np", "1", worker=worker) as process:
        child, grandchild = int(wait_for(tmp_path / "child")), int(wait_for(tmp_path / "grandchild"))
        process.send_signal(number)
        _, log = process.communicate(timeout=LIMIT_S)
        assert process.returncode == status, log
        assert "to go on, run the same command again: the workers begin with what the script loads" in log
    wait_for_end(child)
    wait_for_end(grandchild)


def test_workers_in_the_loop_end_at_once_with_the_job(tmp_path: Path) -> None:
    """They asked the driver whether their SIGTERM was the end, and waited 2 s for a server that was closed already."""
    (tmp_path / "loop.py").write_text(LOOP)
    with started(tmp_path, "-np", "1", "--min-np", "1", worker=[sys.executable, "loop.py"]) as process:
        wait_for(tmp_path / "begun")
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 143, log
        assert "the driver does not answer" not in log
        assert "localhost[0] ended by signal 15" in log


def test_workers_end_with_a_driver_that_is_killed(tmp_path: Path) -> None:
    worker = ["sh", "-c", "sleep 600 & echo $! > grandchild; echo $$ > child; wait"]
    with started(tmp_path, "-np", "1", "--min-np", "1", worker=worker) as process:
        child, grandchild = int(wait_for(tmp_path / "child")), int(wait_for(tmp_path / "grandchild"))
        process.kill()
        process.wait(LIMIT_S)
    wait_for_end(child)
    wait_for_end(grandchild)


@pytest.mark.parametrize("more", [[], ["--store-dir", "store"]], ids=["ends with the driver", "outlives it"])
def test_a_worker_whose_guard_is_killed_is_killed(
    tmp_path: Path, more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLE_SECRET", "a secret of the test")
    worker = ["sh", "-c", "sleep 600 & echo $PPID > guard; echo $$ > child; wait"]
    with started(tmp_path, "-np", "1", "--min-np", "1", *more, worker=worker) as process:
        child, guard = os.pidfd_open(int(wait_for(tmp_path / "child"))), int(wait_for(tmp_path / "guard"))
        os.kill(guard, signal.SIGKILL)
        _, log = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 75, log
    ended, _, _ = select.select([child], [], [], LIMIT_S)  # its number may belong to another process by now
    os.close(child)
    assert ended


def test_a_program_that_there_is_not_is_named(tmp_path: Path) -> None:
    status, _, log = run(tmp_path, "-np", "1", worker=["no-such-program"])
    assert status == 127
    assert "no-such-program cannot be run: No such file or directory" in log


def test_too_few_slots_end_the_job_with_69(tmp_path: Path) -> None:
    flags = ["-np", "2", "--elastic-timeout", "0.2", "--host-discovery-script", "echo localhost:1", "--min-np", "1"]
    status, _, log = run(tmp_path, *flags, worker=[*WORKER])
    assert status == 69
    assert "waited 0.2 s for 2 slots" in log


def test_a_host_that_is_another_machine_is_refused_without_a_secret(tmp_path: Path) -> None:
    status, _, log = run(tmp_path, "-np", "1", "-H", "192.0.2.1:1", worker=[*WORKER])
    assert status == 69
    assert "the host 192.0.2.1 is another machine" in log
    assert "to run workers there, start `paddle elastic agent` on it, and set PADDLE_SECRET" in log


def test_a_worker_is_killed_whose_guard_was_killed_before_the_driver_looked(tmp_path: Path) -> None:
    """It ran on without a guard and without a driver."""
    durable.start_guard(["sh", "-c", f"echo $$ > {tmp_path}/child; sleep 600"], os.environ, tmp_path, 60.0)
    child, found = os.pidfd_open(int(wait_for(tmp_path / "child"))), durable.read_guard(tmp_path)
    assert found is not None
    ended = os.pidfd_open(found[0])
    os.kill(found[0], signal.SIGKILL)
    assert select.select([ended], [], [], LIMIT_S)[0]
    assert not durable.wait_for_end(tmp_path, [])
    assert select.select([child], [], [], LIMIT_S)[0]
    for descriptor in (child, ended):
        os.close(descriptor)
