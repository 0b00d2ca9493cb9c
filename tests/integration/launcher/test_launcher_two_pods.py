"""The launcher of one of two pods; the test is the launcher of the other."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import JOB, JOB_UID, pod, pod_environment, podlist
from launches import GOODBYE, ONCE, Launch, put_pod
from ports import free_ports

import start_paddle
from paddle_cluster.launcher.attempts import AttemptResult, JobRecord
from paddle_cluster.launcher.control.channel import ControlChannel
from paddle_cluster.launcher.control.job_record import write_record
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.localcluster import PodStore


@contextlib.contextmanager
def other_launcher(root: Path, ip: str, port: str) -> Iterator[ControlChannel]:
    """The launcher of another pod, as far as the one under test hears of it."""
    ours = {"POD_IP": ip, "POD_NAME": "far", "CONF_PADDLE_GRADIENT_NUM": "2", "CONF_PADDLE_CONTROL_PORT": port}
    channel = ControlChannel(LauncherConfig.from_env(pod_environment(JOB_PATH=str(root / "volume"), **ours)))
    channel.admit(["127.0.0.1", "127.0.0.2"])
    try:
        yield channel
    finally:
        channel.close()


class SecondOfTwo:
    """Starts the launcher of trainer 1 of 2, which has no pserver; this is the launcher of trainer 0."""

    def __init__(self, launch: Callable[..., Launch], root: Path, channel: ControlChannel, port: str) -> None:
        self.launch, self.root, self.channel, self.port = launch, root, channel, port

    def __call__(self, **changed: str) -> Launch:
        (self.root / "volume" / JOB / "1" / "data").mkdir(parents=True)
        (self.root / "volume" / JOB / "1" / "data" / "train.txt").write_text("1\tgood\n")
        self.channel.serve("127.0.0.1-uid", JOB_UID)
        self.begin(1)
        numbers = {"CONF_PADDLE_GRADIENT_NUM": "2", "CONF_PADDLE_PSERVER_NUM": "1", "POD_IP": "127.0.0.2"}
        return self.launch(**numbers, CONF_PADDLE_CONTROL_PORT=self.port, **changed)

    def record(self, number: int) -> JobRecord:
        ids = start_paddle.getIdMap(podlist(pod("127.0.0.1"), pod("127.0.0.2")))
        return JobRecord(JOB_UID, 3, False, number, ids.pod_uids, 0, "quick_start")

    def begin(self, number: int) -> None:
        self.channel.side.begin(self.record(number))

    def finish(self, number: int) -> None:
        self.channel.side.finish(self.record(number))


@pytest.fixture
def second_of_two(launch: Callable[..., Launch], store: PodStore, tmp_path: Path) -> Iterator[SecondOfTwo]:
    put_pod(store, "127.0.0.2")
    port = str(free_ports(1)[0])
    with other_launcher(tmp_path, "127.0.0.1", port) as channel:
        yield SecondOfTwo(launch, tmp_path, channel, port)


def test_a_pod_without_a_pserver_trains_and_stays_until_the_job_is_done(second_of_two: SecondOfTwo) -> None:
    """Left at once, it would have succeeded, and could never be had back for another attempt."""
    job = second_of_two()
    job.wait_for(lambda: "this pod's trainer has finished; waiting" in job.said)
    second_of_two.finish(1)
    assert job.wait() == 0, job.said
    probe, trainer = job.calls()
    assert probe.startswith("pserver --probe --pservers=127.0.0.1 ")
    assert "--pservers=127.0.0.1 " in trainer and "--trainer_id=1" in trainer


def test_a_message_that_ends_nothing_lets_the_probe_go_on(second_of_two: SecondOfTwo) -> None:
    """A probe that is begun anew costs the start of a program, and a list call."""
    job = second_of_two(PROBE="until [ -e up ]; do read -t 0.1 _ <>fifo; done; exit 0")
    job.wait_for(lambda: len(job.calls()) == 1)
    for _ in range(3):
        second_of_two.begin(1)
    (job.root / "work" / "up").touch()
    job.wait_for(lambda: "this pod's trainer has finished; waiting" in job.said)
    second_of_two.finish(1)
    assert job.wait() == 0, job.said
    assert len(job.calls()) == 2, job.calls()


def test_the_volume_tells_of_the_end_where_trainer_0s_launcher_has_ended(second_of_two: SecondOfTwo) -> None:
    job = second_of_two()
    job.wait_for(lambda: "this pod's trainer has finished; waiting" in job.said)
    second_of_two.channel.close()
    write_record(job.output, dataclasses.replace(second_of_two.record(1), finished=True))
    assert job.wait() == 0, job.said


def test_a_pod_without_a_pserver_takes_part_in_another_attempt_after_its_training(second_of_two: SecondOfTwo) -> None:
    job = second_of_two()
    job.wait_for(lambda: "this pod's trainer has finished; waiting" in job.said)
    second_of_two.begin(2)
    job.wait_for(lambda: sum(call.startswith("train ") for call in job.calls()) == 2)
    second_of_two.finish(2)
    assert job.wait() == 0, job.said


def test_who_still_waits_for_the_pservers_of_an_old_attempt_joins_the_new_one(
    second_of_two: SecondOfTwo, tmp_path: Path
) -> None:
    """Both would wait for each other until START_TIMEOUT."""
    job = second_of_two(PROBE="[ -e second ] || exit 69")
    job.wait_for(lambda: bool(job.calls()))
    second_of_two.begin(2)
    job.wait_for(lambda: "attempt 2 has begun without this pod" in job.said)
    (tmp_path / "work" / "second").touch()
    job.wait_for(lambda: "trainer 1 of 2, attempt 2." in job.said)
    second_of_two.finish(2)
    assert job.wait() == 0, job.said


def test_a_launcher_that_cannot_be_reached_is_a_pod_that_is_not_ready(
    launch: Callable[..., Launch], store: PodStore
) -> None:
    put_pod(store, "127.0.0.2")
    ours = {"CONF_PADDLE_GRADIENT_NUM": "2", "CONF_PADDLE_CONTROL_PORT": str(free_ports(1)[0]), "START_TIMEOUT": "3"}
    job = launch(**ours)
    assert job.wait() == 69, job.said
    assert "2 of 2 Running, but waiting for the launchers of trainer 1 at 127.0.0.2 (" in job.said
    assert not job.calls()


def test_a_failure_in_another_pod_ends_the_attempt_for_trainer_0(
    launch: Callable[..., Launch], store: PodStore, tmp_path: Path
) -> None:
    """A trainer that dies before it has met the others is missed by nobody: they waited for it to join."""
    put_pod(store, "127.0.0.2")
    port = str(free_ports(1)[0])
    job = launch(
        TRAINER=ONCE.format("mkfifo fifo2; echo waiting; read _ <>fifo2") + GOODBYE,
        RESTARTS="1",
        STOP_TIMEOUT="1",
        CONF_PADDLE_GRADIENT_NUM="2",
        CONF_PADDLE_CONTROL_PORT=port,
    )
    with other_launcher(tmp_path, "127.0.0.2", port) as other:
        other.join("127.0.0.1", pod("127.0.0.2")["metadata"]["uid"], JOB_UID)
        job.wait_for(lambda: "waiting\n" in job.said)
        assert other.newest
        other.report(other.newest, 1, AttemptResult(75, "trainer", "killed", "SIGKILL"))
        assert job.wait() == 0, job.said
        assert re.search(r"first failure reported: trainer 1 on far: trainer, exit status 75, .*: killed", job.said)
        assert other.newest.attempt == 2 and other.is_done(other.newest)
    record = json.loads((job.output / "job.json").read_text())
    assert record["attempts"][0]["failure"]["trainer_id"] == 1


def test_a_trainer_of_an_attempt_that_is_over_is_ended(second_of_two: SecondOfTwo) -> None:
    job = second_of_two(TRAINER=ONCE.format("mkfifo fifo2; echo waiting; read _ <>fifo2"), STOP_TIMEOUT="1")
    job.wait_for(lambda: "waiting\n" in job.said)
    second_of_two.begin(2)
    job.wait_for(lambda: "this pod's trainer has finished; waiting" in job.said)
    second_of_two.finish(2)
    assert job.wait() == 0, job.said
    assert "attempt 2 has begun without this pod" in job.said
