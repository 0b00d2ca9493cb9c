"""Whose output it is, and what becomes of it: faults S17-S21 and S30 of the tutorial's launcher."""

from __future__ import annotations

import dataclasses
import errno
import os
import threading
from pathlib import Path

import pytest
from builders import pod, pod_environment, podlist

import start_paddle
from start_paddle import Decision, JobRecord, LauncherConfig, Waiting, decide_start

IDS = start_paddle.getIdMap(podlist(pod("10.0.0.1"), pod("10.0.0.2"), pod("10.0.0.3")))


def record(job: str = "this", passes: int = 10, finished: bool = False, config: str = "digits") -> JobRecord:
    return JobRecord(job, passes, finished, attempt=1, pod_uids=["a", "b", "c"], start_pass=0, config=config)


def decide(
    found: JobRecord | None, saved: int, passes: int = 10, resume: bool = True, has_output: bool = True
) -> Decision:
    return decide_start(found, list(range(saved)), has_output, record(passes=passes), resume)


STARTS = {
    "nothing there": (decide(None, 0, has_output=False), (0, False, False)),
    "output of nobody knows whom": (decide(None, 3), (0, True, False)),
    "our own, three passes saved": (decide(record(), 3), (3, False, False)),
    "our own, none saved": (decide(record(), 0), (0, False, False)),
    "our own, all saved": (decide(record(), 10), (10, False, True)),
    "our own, RESUME=0: a retry goes on all the same": (decide(record(), 3, resume=False), (3, False, False)),
    "an earlier Job's with another config": (decide(record("old", config="mine"), 3), (0, True, False)),
    "an earlier Job's, unfinished": (decide(record("old"), 3), (3, False, False)),
    "an earlier Job's, unfinished, RESUME=0": (decide(record("old"), 3, resume=False), (0, True, False)),
    "an earlier Job's, finished": (decide(record("old", finished=True), 10), (0, True, False)),
    "an earlier Job's, finished, more wanted now": (
        decide(record("old", finished=True), 10, passes=15),
        (10, False, False),
    ),
    "an earlier Job's, all saved but not marked": (decide(record("old"), 10), (0, True, False)),
    "an earlier Job's, finished, the last pass not saved": (decide(record("old", finished=True), 9), (0, True, False)),
    "an earlier Job's, finished, no pass saved": (decide(record("old", finished=True), 0), (0, True, False)),
    "an earlier Job's, unfinished, fewer wanted now": (decide(record("old"), 5, passes=3), (0, True, False)),
    "an earlier Job's, unfinished, as many wanted now": (decide(record("old"), 5, passes=5), (0, True, False)),
}


@pytest.mark.parametrize(("decision", "expected"), STARTS.values(), ids=STARTS.keys())
def test_S19_the_output_that_is_found_decides(decision: Decision, expected: tuple[int, bool, bool]) -> None:
    """The original wrote into whatever was there: old and new passes mixed, logs overwritten, never a resume."""
    assert (decision.start_pass, decision.archive, decision.done) == expected


def test_going_on_warns_that_only_parameters_are_carried_over() -> None:
    assert "WARNING: only the parameters" in decide(record(), 3).message


@pytest.fixture
def config(tmp_path: Path) -> LauncherConfig:
    return LauncherConfig.from_env(pod_environment(JOB_PATH=str(tmp_path), SERVICE_ACCOUNT_DIR=str(tmp_path / "none")))


def save_pass(output: Path, number: int, *, done: bool = True) -> None:
    directory = output / f"pass-{number:05d}"
    directory.mkdir(parents=True)
    (directory / "_w").write_text(str(number))
    if done:
        (directory / "done").touch()


def agree(config: LauncherConfig, trainer_id: int, passes: int = 10) -> JobRecord:
    own = dataclasses.replace(config, pod_ip=start_paddle.in_id_order(IDS)[trainer_id])
    decided = start_paddle.agree(own, IDS, passes, Waiting(5.0))
    assert decided
    return decided


def test_a_pass_without_marker_is_not_complete(config: LauncherConfig) -> None:
    save_pass(config.output, 0)
    save_pass(config.output, 1, done=False)
    assert start_paddle.complete_passes(config.output) == [0]


def test_the_other_pods_follow_trainer_0(config: LauncherConfig) -> None:
    followed: list[JobRecord] = []
    follower = threading.Thread(target=lambda: followed.append(agree(config, 1)))
    follower.start()
    decided = agree(config, 0)
    follower.join(10)
    assert followed == [decided]


def test_a_record_of_another_set_of_pods_is_not_followed(config: LauncherConfig) -> None:
    config.output.mkdir(parents=True)
    start_paddle.write_record(config.output, record())
    assert start_paddle.agree(dataclasses.replace(config, pod_ip="10.0.0.2"), IDS, 10, Waiting(0.2)) is None


def test_a_finished_earlier_job_is_moved_aside_whole(config: LauncherConfig) -> None:
    save_pass(config.output, 9)
    (config.output / "node_0").mkdir()
    (config.output / "run-1").mkdir()
    start_paddle.write_record(config.output, record("old", finished=True))
    assert agree(config, 0).start_pass == 0
    assert (config.output / "run-2" / "pass-00009" / "_w").read_text() == "9"
    assert not (config.output / "pass-00009").exists() and not (config.output / "node_0").exists()


def test_every_attempt_has_its_own_name(config: LauncherConfig) -> None:
    first, second = agree(config, 0), agree(config, 0)
    save_pass(config.output, 0)
    third = agree(config, 0)
    assert (first.attempt, second.attempt, third.attempt) == (1, 2, 3)
    assert third.start_pass == 1 and third.name != first.name


@pytest.mark.parametrize("text", ["", "{", "[]", '{"job_uid": "x"}', "null"])
def test_a_damaged_record_is_no_record(config: LauncherConfig, text: str) -> None:
    config.output.mkdir(parents=True)
    (config.output / "job.json").write_text(text)
    assert start_paddle.read_record(config.output) is None


def test_a_late_replacement_sees_that_its_job_has_finished(config: LauncherConfig) -> None:
    config.output.mkdir(parents=True)
    start_paddle.write_record(config.output, record(finished=True))
    assert start_paddle.is_finished(config.output, "this", 10)
    assert not start_paddle.is_finished(config.output, "another", 10)
    assert not start_paddle.is_finished(config.output, "this", 11)


def test_S17_pods_may_create_the_output_at_the_same_time(config: LauncherConfig) -> None:
    """The original tested for the directory and then made it: the slower pod died with OSError."""
    failures: list[BaseException] = []
    together = threading.Barrier(8)

    def prepare(number: int) -> None:
        together.wait(10)
        try:
            start_paddle.prepare_node_dir(config, number, 1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=prepare, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not failures and len(list(config.output.glob("node_*"))) == 8


def test_S18_a_second_attempt_keeps_the_logs_of_the_first(config: LauncherConfig) -> None:
    """The original failed on the existing directory, later it overwrote the logs."""
    node = start_paddle.prepare_node_dir(config, 0, 1)
    for attempt in (2, 3):
        (node / "train.log").write_text(f"of attempt {attempt - 1}")
        start_paddle.prepare_node_dir(config, 0, attempt)
    assert (node / "train.log.1").read_text() == "of attempt 1"
    assert (node / "train.log.2").read_text() == "of attempt 2"
    assert not (node / "train.log").exists()


def test_S30_an_output_that_cannot_be_written_is_named_before_training(config: LauncherConfig) -> None:
    """The original trained for a pass before it noticed."""
    config.job_dir.mkdir(parents=True)
    config.output.write_text("a file where the directory should be")
    with pytest.raises(start_paddle.VolumeError, match=r"runs as uid \d+, .* belongs to uid \d+ with mode 0\d{3}"):
        start_paddle.prepare_node_dir(config, 0, 1)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "make room"),
        (errno.EROFS, "mount it read-write"),
        (errno.EACCES, "chown"),
        (errno.EEXIST, "in the way"),
    ],
    ids=["full", "read-only", "forbidden", "something else of that name"],
)
def test_S30_a_volume_error_says_what_to_do(tmp_path: Path, number: int, advice: str) -> None:
    problem = OSError(number, os.strerror(number), str(tmp_path / "x"))
    assert advice in start_paddle.describe_volume_error(tmp_path, problem)


def test_S30_a_volume_error_describes_what_was_refused_and_not_what_lies_above_it(tmp_path: Path) -> None:
    """Moving aside an earlier Job's node_0 of another user named output/, which was this user's."""
    tmp_path.chmod(0o750)
    (tmp_path / "node_0").mkdir(mode=0o701)
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / "node_0"))
    text = start_paddle.describe_volume_error(tmp_path, refused)
    assert f"{tmp_path / 'node_0'} belongs to uid {os.getuid()} with mode 0701" in text


def test_the_shard_of_this_trainer_is_copied(config: LauncherConfig, tmp_path: Path) -> None:
    """S21: the original needed ./data to exist already."""
    shard = config.job_dir / "1" / "data"
    (shard / "sub").mkdir(parents=True)
    (shard / "train.txt").write_text("1")
    (shard / "sub" / "more.txt").write_text("2")
    assert start_paddle.stage_data(config, 1, tmp_path / "data") == 2
    assert (tmp_path / "data" / "sub" / "more.txt").read_text() == "2"


@pytest.mark.parametrize("exists", [False, True], ids=["missing", "empty"])
def test_S20_a_missing_or_empty_shard_is_an_error(config: LauncherConfig, tmp_path: Path, exists: bool) -> None:
    """The original ignored cp's status and trained on whatever lay in ./data."""
    if exists:
        (config.job_dir / "0" / "data").mkdir(parents=True)
        (config.job_dir / "0" / "data" / ".complete").touch()
    with pytest.raises(
        start_paddle.MissingInputError, match=r"0/data, the shard of trainer 0.*data job makes .*SPLIT_COUNT=3"
    ):
        start_paddle.stage_data(config, 0, tmp_path / "data")


def test_S20_what_is_unstaged_leaves_the_configs_own_data(config: LauncherConfig, tmp_path: Path) -> None:
    """Without an index a pod may get another id, and so another shard, when the set of pods changes."""
    shard, data = config.job_dir / "0" / "data", tmp_path / "data"
    for directory in (shard / "sub", data):
        directory.mkdir(parents=True)
    for path in (shard / "part-0", shard / "sub" / "part-0", data / "dict.txt"):
        path.touch()
    start_paddle.stage_data(config, 0, data)
    start_paddle.unstage_data(config, 0, data)
    assert [path.name for path in data.rglob("*") if path.is_file()] == ["dict.txt"]


def test_S20_a_file_of_the_shard_that_cannot_be_read_is_missing_input(config: LauncherConfig, tmp_path: Path) -> None:
    """It was taken for a full work directory, which is worth a retry."""
    (config.job_dir / "0" / "data").mkdir(parents=True)
    (config.job_dir / "0" / "data" / "train.txt").symlink_to("nowhere")
    with pytest.raises(start_paddle.MissingInputError, match=r"train\.txt"):
        start_paddle.stage_data(config, 0, tmp_path / "data")


def test_S20_a_shard_of_another_user_is_missing_input(
    config: LauncherConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "listdir", refuse)  # root, who may run this test, is refused nothing
    with pytest.raises(start_paddle.MissingInputError, match=f"uid {os.getuid()} cannot read .*Permission denied"):
        start_paddle.stage_data(config, 0, tmp_path / "data")


def test_S24_data_split_for_another_number_of_trainers_are_refused(config: LauncherConfig, tmp_path: Path) -> None:
    """In the original SPLIT_COUNT and the number of trainers were independent: some data were never read (D5)."""
    (config.job_dir / "0" / "data").mkdir(parents=True)
    (config.job_dir / "0" / "data" / "train.txt").touch()
    (config.job_dir / "prepared.json").write_text('{"split_count": 4}')
    with pytest.raises(start_paddle.MissingInputError, match="split into 4 shards for 3 trainers"):
        start_paddle.stage_data(config, 0, tmp_path / "data")


def test_estale_is_retried_and_other_errors_are_not() -> None:
    """An NFS client answers ESTALE after a rename on another node."""
    problems = [OSError(errno.ESTALE, "stale")] * 3

    def read() -> str:
        if problems:
            raise problems.pop()
        return "text"

    assert start_paddle.on_volume(read) == "text"
    with pytest.raises(PermissionError):
        start_paddle.on_volume(lambda: (_ for _ in ()).throw(PermissionError(errno.EACCES, "no")))


def test_S24_the_number_of_trainers_is_checked_against_the_pods() -> None:
    """The original had it in four places and hung on any mismatch."""
    pods = [pod(f"10.0.0.{n}") for n in range(1, 5)]
    assert "make it equal to the Job's parallelism" in start_paddle.why_not_ready(
        start_paddle.parse_pods(podlist(*pods)), 3
    )
