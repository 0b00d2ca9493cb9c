"""`paddle master` as a process, with trainers over sockets: passes, other lists, secrets, ends."""

import contextlib
import queue
import signal
import time
from pathlib import Path

import pytest
import requests
from master_processes import MasterProcess, train, trainer
from ports import free_ports

from paddle_base.runtime.errors import DataError, StoppedError
from paddle_cluster.master.client import TaskGrant
from paddle_cluster.master.tasks.records import TaskView

FILES = [f"part-{number:02d}" for number in range(7)]


def test_one_trainer_gets_every_task_of_two_passes_once(tmp_path: Path) -> None:
    with MasterProcess(tmp_path / "log", f"--store_dir={tmp_path}/store", "--num_passes=2", is_whole=True) as process:
        with trainer(tmp_path / "store", "a") as master:
            given = [(task.pass_number, *task.files) for task in train(master, FILES)]
            assert given == [(number, name) for number in range(2) for name in FILES]
            status = master.status()
            assert status["phase"] == "done"
            assert [one["samples"] for one in status["passes"]] == [7, 7]
            master.leave()
        assert process.end() == 0
        assert "all passes are done" in process.text()


def test_a_trainer_that_has_left_waits_no_more_for_the_master_that_ended_because_of_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        MasterProcess(tmp_path / "log", f"--store_dir={tmp_path}/store", "--num_passes=1") as process,
        trainer(tmp_path / "store", "a") as master,
    ):
        assert len(list(train(master, FILES))) == len(FILES)
        master.leave()
        assert process.end() == 0
        began = time.monotonic()
        master.leave(60)
        assert time.monotonic() - began < 30
    assert "the master is not reached yet" not in capfd.readouterr().err


def test_a_signal_ends_the_master_with_its_status(tmp_path: Path) -> None:
    with MasterProcess(tmp_path / "log", f"--store_dir={tmp_path}/store") as process:
        process.wait_for("serving on")
        process.signal(signal.SIGTERM)
        assert process.end() == 143


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with MasterProcess(tmp_path / "log", f"--store_dir={tmp_path}/file") as process:
        assert process.end() == 74
        assert "file/job cannot be used: Not a directory" in process.text()


def test_an_etcd_that_is_away_ends_the_master_with_one_message(tmp_path: Path) -> None:
    with MasterProcess(tmp_path / "log", "--etcd_endpoints=http://127.0.0.1:1,http://127.0.0.1:2") as process:
        assert process.end() == 69
        fatal = [line for line in process.text().splitlines() if line.startswith("F")]
        assert len(fatal) == 1
        assert "no etcd answers: http://127.0.0.1:1: [Errno 111] Connection refused; http://127.0.0.1:2:" in fatal[0]


def test_a_job_whose_tasks_always_fail_ends_with_an_error(tmp_path: Path) -> None:
    flags = (f"--store_dir={tmp_path}/store", "--task_timeout_max=1", "--num_passes=3")
    with MasterProcess(tmp_path / "log", *flags) as process, trainer(tmp_path / "store", "a") as master:
        master.set_dataset(FILES[:2])
        with pytest.raises(DataError, match="all 2 tasks of pass 0 have failed"):
            for task in master.tasks(0):
                master.fail(task, "the file is no RecordIO file")
        master.leave()
        assert process.end() == 65
        assert (
            "task 1 (part-01) is discarded for pass 0: it has failed 2 times, at last because a.1 says: the file"
            in (process.text())
        )


def test_the_pages_of_a_master(tmp_path: Path) -> None:
    port, other = free_ports(2)
    flags = (f"--store_dir={tmp_path}/store", f"--metrics_port={port}")
    with MasterProcess(tmp_path / "log", *flags) as process, trainer(tmp_path / "store", "a") as master:
        process.wait_for("serving on")
        master.set_dataset(FILES)
        assert isinstance(master.get_task(0), TaskGrant)
        page = f"http://127.0.0.1:{port}"
        assert [requests.get(f"{page}/{name}", timeout=10).status_code for name in ("healthz", "readyz")] == [200, 200]
        metrics = requests.get(f"{page}/metrics", timeout=10).text
        assert 'paddle_master_tasks{status="todo"} 6.0' in metrics
        assert 'paddle_master_tasks{status="pending"} 1.0' in metrics
        assert "paddle_master_members 1.0" in metrics
        two = MasterProcess(tmp_path / "log2", f"--store_dir={tmp_path}/store", f"--metrics_port={other}")
        with two:
            two.wait_for("stands by")
            answer = requests.get(f"http://127.0.0.1:{other}/readyz", timeout=10)
            assert (answer.status_code, answer.text) == (
                503,
                "another master leads, or the leadership is not decided\n",
            )
            assert requests.get(f"http://127.0.0.1:{other}/healthz", timeout=10).status_code == 200


def test_trainers_have_numbers_and_hear_who_has_a_task(tmp_path: Path) -> None:
    with (
        MasterProcess(tmp_path / "log", f"--store_dir={tmp_path}/store", "--chunk_per_task=4", "--num_passes=3"),
        trainer(tmp_path / "store", "a") as first,
    ):
        heard: queue.SimpleQueue[TaskView] = queue.SimpleQueue()
        first.on_view(heard.put)
        assert (first.number, first.num_passes) == (0, 3)
        assert heard.get(timeout=10).members == ()
        first.set_dataset(FILES)
        held = first.get_task(0)
        assert isinstance(held, TaskGrant) and first.view.members == (0,)
        with trainer(tmp_path / "store", "b") as second:
            assert second.number == 1 and second.view == first.view
            assert isinstance(second.get_task(0), TaskGrant)
            assert second.view.members == (0, 1)
            second.leave()
        assert [heard.get(timeout=10).members for _ in range(3)] == [(0,), (0, 1), (0,)]
        assert first.finish(held, 1)
        assert first.view.members == (0,)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_trainer_may_be_told_to_stop_while_it_waits(tmp_path: Path, is_there: bool) -> None:
    """There is no master yet, or another trainer has the only task."""
    with contextlib.ExitStack() as stack:
        if is_there:
            stack.enter_context(MasterProcess(tmp_path / "log", f"--store_dir={tmp_path}"))
            other = stack.enter_context(trainer(tmp_path, "other"))
            other.get_task(other.set_dataset(["a"]))
        master = stack.enter_context(trainer(tmp_path, "one", patience=600))
        pass_number = master.set_dataset(["a"]) if is_there else 0
        looks: list[None] = []

        def look() -> None:
            looks.append(None)
            if len(looks) == 3:
                raise StoppedError("stopped by SIGTERM")

        master.look = look
        with pytest.raises(StoppedError):
            master.get_task(pass_number)
