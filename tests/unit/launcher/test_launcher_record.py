"""Whose output it is, and what becomes of it: faults S17-S21 and S30 of the tutorial's launcher."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import crafted
import pytest
from builders import pod, pod_environment, podlist
from launching import agree, make_launcher

import start_paddle
from paddle_base.runtime.errors import StoppedError, VolumeError
from paddle_cluster.launcher.attempts import AttemptHistory, AttemptResult, JobRecord, Meeting, is_later
from paddle_cluster.launcher.checkpoints import find_saved
from paddle_cluster.launcher.cluster.pods import IdMap, in_id_order, parse_pods
from paddle_cluster.launcher.cluster.waiting import WaitPolicy
from paddle_cluster.launcher.command_lines import resumed_flags, wanted_passes
from paddle_cluster.launcher.control.ending import pause_before_next
from paddle_cluster.launcher.control.job_record import read_record, write_record
from paddle_cluster.launcher.control.watch import AttemptWatch
from paddle_cluster.launcher.errors import NEVER_RETRY, GivenUpError, NotReadyError
from paddle_cluster.launcher.failures import give_up, write_error
from paddle_cluster.launcher.rendezvous import Rendezvous
from paddle_cluster.launcher.resume import (
    Decision,
    Saved,
    choose_origin,
    decide_start,
    is_finished,
    pause_after,
    position,
)
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.supervisor import prepare_node_dir
from trainer.flags import parse_flags
from trainer.storage.save_directory import SaveDirectory

IDS = start_paddle.getIdMap(podlist(pod("10.0.0.1"), pod("10.0.0.2"), pod("10.0.0.3")))


def record(job: str = "this", passes: int = 10, finished: bool = False, config: str = "digits") -> JobRecord:
    return JobRecord(job, passes, finished, attempt=1, pod_uids=["a", "b", "c"], start_pass=0, config=config)


def decide(
    found: JobRecord | None,
    saved: int,
    passes: int = 10,
    resume: bool = True,
    has_output: bool = True,
    states: tuple[str, ...] = (),
    gradient_num: int = 0,
) -> Decision:
    wanted = dataclasses.replace(record(passes=passes), gradient_num=gradient_num)
    return decide_start(found, Saved(tuple(range(saved)), states), has_output, wanted, resume)


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


# passes saved, checkpoints -> the checkpoint and the first pass that the next attempt gets
ORIGINS = {
    "a checkpoint inside a pass": (2, ("pass-00001", "pass-00002-003"), "pass-00002-003", 0),
    "the newest save inside a pass, beyond 999": (2, ("pass-00002-999", "pass-00002-1000"), "pass-00002-1000", 0),
    "the end of a pass comes after the saves inside it": (2, ("pass-00002-003", "pass-00002"), "pass-00002", 0),
    "a pass and its checkpoint: the checkpoint has more in it": (3, ("pass-00002",), "pass-00002", 0),
    "a pass whose own checkpoint is missing: the last one inside it": (3, ("pass-00002-003",), "pass-00002-003", 0),
    "a pass whose own checkpoint is missing: that of the pass before": (3, ("pass-00001",), "pass-00001", 0),
    "passes that are newer than all checkpoints": (3, ("pass-00000", "pass-00000-003"), "", 3),
    "checkpoints, and no pass saved": (0, ("pass-00004-001",), "pass-00004-001", 0),
    "no checkpoint": (3, (), "", 3),
}


@pytest.mark.parametrize(("saved", "states", "checkpoint", "start_pass"), ORIGINS.values(), ids=ORIGINS.keys())
def test_the_newest_of_checkpoints_and_passes_is_where_training_goes_on(
    saved: int, states: tuple[str, ...], checkpoint: str, start_pass: int
) -> None:
    ascending = tuple(sorted(states, key=position))
    for found in (record(), record("old")):
        decision = decide(found, saved, states=ascending)
        assert (decision.checkpoint, decision.start_pass, decision.archive) == (checkpoint, start_pass, False)
        assert ("WARNING" in decision.message) == (not checkpoint)


def test_a_first_pass_without_its_checkpoint_is_trained_again_by_the_job_that_would_have_made_one() -> None:
    """Its parameters alone would not lead to the bits of an undisturbed run."""
    ours, earlier = (dataclasses.replace(record(job), pserver_num=3) for job in ("this", "old"))
    for found, origin in ((ours, ""), (earlier, "pass-00000")):
        assert choose_origin(found, Saved((0,)), ours).origin == origin
    again = choose_origin(ours, Saved((0,)), ours)
    assert again.message == "starting from the beginning: pass-00000 has no checkpoint and is trained again"
    assert choose_origin(ours, Saved((0, 1)), ours).origin == "pass-00001"
    local = dataclasses.replace(ours, pserver_num=0)  # which makes none
    assert choose_origin(local, Saved((0,)), local).origin == "pass-00000"


def test_an_attempt_that_dies_at_the_same_checkpoint_every_time_is_counted(config: LauncherConfig) -> None:
    """The pass that it saves before is there the next time, but nobody goes on from it."""
    counts = [agree_as(config, 0).fruitless]
    save_pass(config.output, 0)
    counts += [agree_as(config, 0).fruitless for _ in range(2)]
    assert counts == [0, 1, 2]


def test_a_checkpoint_of_other_numbers_is_left_for_the_parameters_and_says_so() -> None:
    decision = decide(record("old"), 3, states=("pass-00002", "pass-00003-001"), gradient_num=4)
    assert (decision.checkpoint, decision.start_pass, decision.archive_state) == ("", 3, True)
    assert "state/pass-00003-001 was saved by 0 trainers" in decision.message
    assert "there are 4 trainers" in decision.message
    assert "going on after pass-00002" in decision.message and "WARNING: only the parameters" in decision.message


def test_a_checkpoint_of_other_numbers_without_a_pass_is_left_for_the_beginning() -> None:
    decision = decide(record("old"), 0, states=("pass-00003-001",), gradient_num=4)
    assert (decision.checkpoint, decision.start_pass, decision.archive_state) == ("", 0, True)
    assert "starting from the beginning" in decision.message


@pytest.mark.parametrize(("state", "archived"), [("pass-00009", True), ("pass-00009-004", False)])
def test_an_earlier_job_whose_last_pass_has_a_checkpoint_has_trained_it(state: str, archived: bool) -> None:
    assert decide(record("old"), 5, states=(state,)).archive == archived


@pytest.fixture
def config(tmp_path: Path) -> LauncherConfig:
    return LauncherConfig.from_env(pod_environment(JOB_PATH=str(tmp_path), SERVICE_ACCOUNT_DIR=str(tmp_path / "none")))


def save_pass(output: Path, number: int | str, *, done: bool = True) -> None:
    """Makes a pass directory, or the state directory of that name."""
    directory = output / f"pass-{number:05d}" if isinstance(number, int) else output / "state" / number
    directory.mkdir(parents=True)
    (directory / "_w").write_text(str(number))
    if isinstance(number, str):
        crafted.reseal(directory, crafted.spell({"version": 1, "files": {"_w": len(number)}}))
    if done:
        (directory / "done").touch()
    else:
        (directory / "done").unlink(missing_ok=True)


TEN_PASSES = {"num_passes": "10"}


def agree_as(
    config: LauncherConfig, trainer_id: int, memory: AttemptHistory | None = None, timeout_s: float = 5.0, **flags: str
) -> JobRecord:
    """What a launcher makes of the volume, for the first time or with a memory of its last attempt."""
    own = dataclasses.replace(config, pod_ip=in_id_order(IDS)[trainer_id])
    return agree(own, IDS, memory, timeout_s, **flags)


def test_a_pass_without_marker_is_not_complete(config: LauncherConfig) -> None:
    save_pass(config.output, 0)
    save_pass(config.output, 1, done=False)
    save_pass(config.output, "pass-00000", done=True)
    save_pass(config.output, "pass-00000-001", done=True)
    save_pass(config.output, "pass-00001-001", done=False)
    save_pass(config.output, ".pass-00002.writing", done=True)
    assert find_saved(config.output) == Saved((0,), ("pass-00000-001", "pass-00000"))


def test_the_other_pods_follow_trainer_0(config: LauncherConfig) -> None:
    followed: list[JobRecord] = []
    follower = threading.Thread(target=lambda: followed.append(agree_as(config, 1)))
    follower.start()
    decided = agree_as(config, 0)
    follower.join(10)
    assert followed == [decided]


def test_a_record_of_another_set_of_pods_is_not_followed(config: LauncherConfig) -> None:
    config.output.mkdir(parents=True)
    write_record(config.output, record())
    own = dataclasses.replace(config, pod_ip="10.0.0.2")
    with pytest.raises(NotReadyError, match="trainer 0 has begun no attempt with this set"):
        agree(own, IDS)


def test_a_finished_earlier_job_is_moved_aside_whole_when_the_first_batch_is_read(config: LauncherConfig) -> None:
    """A Job with a fault in its config moved a good output aside, and saved nothing itself."""
    save_pass(config.output, 9)
    (config.output / "node_0").mkdir()
    (config.output / "run-1").mkdir()
    write_record(config.output, record("old", finished=True))
    for attempt in (1, 2):  # the first attempt ends before its first batch
        begun = agree_as(config, 0)
        assert (begun.start_pass, begun.origin, begun.attempt) == (0, "", attempt)
        assert (config.output / "pass-00009" / "_w").read_text() == "9"
        assert find_saved(config.output) == Saved() and not (config.output / "node_0").exists()
    assert (config.output / "run-2" / "node_0").exists()
    begin_as_trainer(config.output)
    assert (config.output / "run-2" / "pass-00009" / "_w").read_text() == "9"
    assert not (config.output / "pass-00009").exists()
    save_pass(config.output, 0)
    assert find_saved(config.output).passes == (0,)


def test_what_a_failed_job_has_not_moved_is_no_output_of_it_for_the_next_job(config: LauncherConfig) -> None:
    """The next Job has the same config as the failed one, and must not go on from the passes before both."""
    save_pass(config.output, 3)
    write_record(config.output, record("old", config="another"))
    agree_as(config, 0)  # it moves the other config's output, but ends before its first batch
    write_record(config.output, record("failed", config=config.train_config_dir))
    (config.output / "node_0").mkdir()
    assert agree_as(config, 0).origin == ""
    begin_as_trainer(config.output)
    assert (config.output / "run-1" / "pass-00003" / "done").exists()


def begin_as_trainer(save_dir: Path) -> None:
    """Do what trainer 0 does when it has read its first batch."""
    directory = SaveDirectory(parse_flags([]), {"PADDLE_ATTEMPT": "1.ab"})
    directory.prepare(str(save_dir))
    directory.begin()
    directory.leave()


def test_state_is_moved_aside_with_the_passes_that_it_belongs_to(config: LauncherConfig, tmp_path: Path) -> None:
    """--save_dir may point anywhere: what is there and would be overwritten is kept there."""
    elsewhere = tmp_path / "elsewhere"
    save_pass(elsewhere, 9)
    save_pass(elsewhere, "pass-00009")
    (config.output / "node_0").mkdir(parents=True)
    write_record(config.output, record("old", finished=True, config=config.train_config_dir))
    assert agree_as(config, 0, save_dir=str(elsewhere)).origin == ""
    begin_as_trainer(elsewhere)
    assert (elsewhere / "run-1" / "pass-00009" / "done").exists()
    assert (elsewhere / "run-1" / "state" / "pass-00009" / "done").exists() and not (elsewhere / "state").exists()
    assert (config.output / "run-1" / "node_0").exists()


def test_the_checkpoint_is_looked_for_where_the_flags_save(config: LauncherConfig, tmp_path: Path) -> None:
    first = agree_as(config, 0, save_dir=str(tmp_path / "elsewhere"))
    save_pass(tmp_path / "elsewhere", "pass-00000-002")
    flags = {"save_dir": str(tmp_path / "elsewhere"), "num_passes": "10"}
    second = agree_as(config, 0, AttemptHistory(record=first), **flags)
    assert second.checkpoint == "pass-00000-002"
    resumed = resumed_flags(config, second, flags)
    assert resumed == {**flags, "resume_from": str(tmp_path / "elsewhere" / "state" / "pass-00000-002")}


def test_state_of_other_numbers_is_moved_aside_once_and_for_all(config: LauncherConfig) -> None:
    """Were it left, an attempt of the new numbers that saved nothing would take it for its own."""
    for number in (2, 3):
        save_pass(config.output, number)
    save_pass(config.output, "pass-00003")
    earlier = dataclasses.replace(record("old", config=config.train_config_dir), gradient_num=2)
    write_record(config.output, earlier)
    for _ in range(2):
        begun = agree_as(config, 0)
        assert (begun.checkpoint, begun.start_pass) == ("", 4)
        assert (config.output / "state" / "pass-00003").exists()
    begin_as_trainer(config.output)
    assert (config.output / "run-1" / "state" / "pass-00003" / "done").exists()
    assert (config.output / "pass-00003").exists()


def test_a_pass_range_of_the_user_is_trained_to_its_end(config: LauncherConfig) -> None:
    """--num_passes counts from --start_pass: a retry took pass 5 of 5..7 for the last of three."""
    flags = {"start_pass": "5", "num_passes": "3"}
    assert wanted_passes(flags) == 8
    first = agree_as(config, 0, **flags)
    assert resumed_flags(config, first, flags) == flags
    for number in (5, 6):
        save_pass(config.output, number)
    second = agree_as(config, 0, **flags)
    assert not second.finished
    assert resumed_flags(config, second, flags) == {"start_pass": "7", "num_passes": "1"}


def test_the_model_that_training_began_with_is_not_loaded_again(config: LauncherConfig) -> None:
    """--init_model_path wins over --start_pass: every attempt would begin anew, under the number of a later pass."""
    later = dataclasses.replace(record(), start_pass=4)
    flags = {"init_model_path": "old/pass-00009", "num_passes": "10", "log_period": "5"}
    assert resumed_flags(config, record(), flags) == flags
    assert resumed_flags(config, later, flags) == {"start_pass": "4", "num_passes": "6", "log_period": "5"}


def test_every_attempt_has_its_own_name(config: LauncherConfig) -> None:
    first, second = agree_as(config, 0), agree_as(config, 0)
    third = agree_as(config, 0)
    assert (first.attempt, second.attempt, third.attempt) == (1, 2, 3)
    assert len({first.name, second.name, third.name}) == 3


def test_a_launcher_that_comes_back_with_the_same_pods_demands_a_later_attempt(config: LauncherConfig) -> None:
    """Trainer 0 may still be in the old attempt, whose record names the same pods."""
    first = agree_as(config, 0)
    own = dataclasses.replace(config, pod_ip="10.0.0.2")
    memory = AttemptHistory(record=first)
    with pytest.raises(NotReadyError, match="after attempt 1"):
        agree(own, IDS, memory)
    assert agree_as(config, 1) == first, "for a new pod every record that names its set is news"
    second = agree_as(config, 0, AttemptHistory(record=first))
    assert agree(own, IDS, memory) == second


def test_a_job_json_that_is_damaged_in_mid_job_loses_nothing(config: LauncherConfig) -> None:
    first = agree_as(config, 0)
    save_pass(config.output, "pass-00000")
    (config.output / "job.json").write_text("{")
    second = agree_as(config, 0, AttemptHistory(record=first))
    assert (second.attempt, second.checkpoint) == (2, "pass-00000")


def replace_pod_0(config: LauncherConfig) -> tuple[LauncherConfig, IdMap]:
    """What its successor's launcher and all others find after launcher 0 was killed: its pod has another uid."""
    pods = podlist(pod("10.0.0.9", "again").indexed(0), pod("10.0.0.2").indexed(1), pod("10.0.0.3").indexed(2))
    return dataclasses.replace(config, pod_ip="10.0.0.9"), start_paddle.getIdMap(pods)


LOSSES: dict[str, tuple[Callable[[Path], object], str]] = {
    "job.json": (lambda output: (output / "job.json").unlink(), "pass-00000"),
    "job.json, for one that is damaged": (lambda output: (output / "job.json").write_text("{"), "pass-00000"),
    "all of output/": (shutil.rmtree, ""),
}


@pytest.mark.parametrize(("lose", "origin"), LOSSES.values(), ids=LOSSES)
def test_a_record_that_is_lost_with_launcher_0_costs_no_wait(
    config: LauncherConfig, lose: Callable[[Path], object], origin: str
) -> None:
    """The successor began at attempt 1 again, with the output moved aside.

    The others waited for a number above that of their last attempt, each until START_TIMEOUT.
    """
    memory = AttemptHistory(record=agree_as(config, 0, AttemptHistory(record=agree_as(config, 0))))
    save_pass(config.output, "pass-00000")
    lose(config.output)
    successor, ids = replace_pod_0(config)
    decided = agree(successor, ids)
    assert decided.origin == origin and not list(config.output.glob("run-*"))
    own = dataclasses.replace(config, pod_ip="10.0.0.2", pod_name="paddle-cluster-job-10-0-0-2")
    assert agree(own, ids, memory) == decided
    rendezvous = Rendezvous(make_launcher(own, WaitPolicy(0.2), memory))
    rendezvous.pods = parse_pods(podlist(pod("10.0.0.2").indexed(1)))
    assert rendezvous.find_invitation(), "of many launchers each takes the set of the record"


def test_an_attempt_that_this_launcher_has_left_behind_is_no_news(config: LauncherConfig) -> None:
    """A network file system may show an old job.json once more."""
    first = agree_as(config, 0)
    successor, ids = replace_pod_0(config)
    second = agree(successor, ids)
    assert second.attempt == 2
    assert not is_later(first, second) and not is_later(second, second)
    assert is_later(second, first)


def test_launcher_0_writes_a_record_again_that_is_lost_in_mid_attempt(
    config: LauncherConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what survives the launchers."""
    monkeypatch.setattr("paddle_cluster.launcher.control.watch.LOOK_PERIOD_S", 0.0)
    first = agree_as(config, 0)
    for path in config.output.glob("*job.json"):
        path.unlink()
    for own_ip, expected in (("10.0.0.2", None), ("10.0.0.1", first)):
        own = dataclasses.replace(config, pod_ip=own_ip)
        watch = AttemptWatch(make_launcher(own, WaitPolicy(5.0)), Meeting(IDS, first))
        assert watch.find_end() is None
        assert read_record(config.output) == expected


def test_the_copy_of_an_earlier_jobs_record_counts_for_nothing(config: LauncherConfig) -> None:
    """Without job.json nobody knows whose output that is."""
    config.output.mkdir(parents=True)
    write_record(config.output, record("old", config=config.train_config_dir))
    save_pass(config.output, 3)
    (config.output / "job.json").unlink()
    assert agree_as(config, 0).origin == ""
    begin_as_trainer(config.output)
    assert (config.output / "run-1" / "pass-00003").exists()


def test_only_attempts_without_a_newer_save_are_counted(config: LauncherConfig) -> None:
    saves = [None, None, "pass-00000-001", None, "pass-00000-002", "pass-00000", None, None, "pass-00001-001", None]
    counts = []
    for save in saves:
        counts.append(agree_as(config, 0).fruitless)
        if save is not None:
            save_pass(config.output, save)
    assert counts == [0, 1, 2, 0, 1, 0, 0, 1, 2, 0]


def test_an_attempt_that_never_trained_because_a_pod_was_replaced_does_not_count(config: LauncherConfig) -> None:
    first = agree_as(config, 0)
    second = agree_as(config, 0, AttemptHistory(record=first, is_dissolved=True))
    assert second.fruitless == 0
    assert agree_as(config, 0, AttemptHistory(record=second)).fruitless == 1


def test_the_count_belongs_to_the_job_and_not_to_the_pod(config: LauncherConfig) -> None:
    """A replaced pod of trainer 0 goes on counting; the next Job begins at 0."""
    few = dataclasses.replace(config, restarts=1)
    assert [agree_as(few, 0, AttemptHistory()).given_up for _ in range(4)] == [False, False, True, True]
    of_next_job = IdMap(IDS.items(), pod_uids=IDS.pod_uids, job_uid="next")
    begun = agree(few, of_next_job)
    assert not begun.given_up and begun.fruitless == 0


def failed(config: LauncherConfig, attempt: str, trainer_id: int, code: int, message: str, **fields: object) -> None:
    node = config.output / f"node_{trainer_id}"
    node.mkdir(parents=True, exist_ok=True)
    outcome = AttemptResult(code, "trainer", message, signal=str(fields.get("signal", "")))
    write_error(node, attempt, trainer_id, f"pod-{trainer_id}", outcome)


def test_the_report_has_every_attempt_with_its_first_failure(
    config: LauncherConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    few, memory = dataclasses.replace(config, restarts=1), AttemptHistory()
    for number in (1, 2):
        memory.record = agree_as(few, 0, memory)
        for trainer_id in (0, 1):
            prepare_node_dir(few, trainer_id, memory.record.attempt)
        failed(few, memory.record.name, 0, 75, "trainer 1 is lost")
        failed(few, memory.record.name, 1, 74, f"volume is full; the end of train.log:\n    line\n    no room {number}")
    last = agree_as(few, 0, memory)
    capsys.readouterr()
    memory.status = 75
    assert give_up(few, last, memory) == 75
    lines = capsys.readouterr().out.splitlines()
    assert "2 attempts in a row" in lines[0] and len(lines) == 3
    for number, line in enumerate(lines[1:], 1):
        assert f"attempt {number}." in line and "from the beginning: trainer 1 on pod-1: " in line
        assert re.search(rf"exit status 74, \d.*: volume is full; the end of train.log: no room {number}", line)


def test_a_pod_that_comes_after_the_end_ends_the_job(config: LauncherConfig) -> None:
    last = dataclasses.replace(agree_as(config, 0), given_up=True)
    with pytest.raises(GivenUpError) as raised:
        give_up(config, last, AttemptHistory())
    assert raised.value.exit_code in NEVER_RETRY


def test_the_pause_grows_while_nothing_is_saved() -> None:
    def pause(fruitless: int, *states: str) -> float:
        last = dataclasses.replace(record(), fruitless=fruitless)
        return pause_after(last, Saved(states=states), restarts=12)

    assert [pause(k) for k in range(9)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert pause(12) == 0, "the last one is followed by the report"
    assert pause(5, "pass-00000-001") == 0, "progress"


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(JobRecord)])
@pytest.mark.parametrize("value", [None, 1.5, {"a": 1}], ids=str)
def test_a_record_with_a_value_of_another_kind_is_no_record(config: LauncherConfig, field: str, value: object) -> None:
    whole = dataclasses.asdict(JobRecord("u", 3, False, 1, ["p"], 0))
    config.output.mkdir(parents=True, exist_ok=True)
    (config.output / "job.json").write_text(json.dumps(whole))
    assert read_record(config.output) is not None
    (config.output / "job.json").write_text(json.dumps(whole | {field: value}))
    assert read_record(config.output) is None


def test_a_late_replacement_sees_that_its_job_has_finished(config: LauncherConfig) -> None:
    config.output.mkdir(parents=True)
    write_record(config.output, record(finished=True))
    found = read_record(config.output)
    assert is_finished(found, Saved(), "this", 10)
    assert not is_finished(found, Saved(), "another", 10)
    assert not is_finished(found, Saved(), "this", 11)
    assert is_finished(found, Saved(tuple(range(11))), "this", 11)


def test_S17_pods_may_create_the_output_at_the_same_time(config: LauncherConfig) -> None:
    """The original tested for the directory and then made it: the slower pod died with OSError."""
    failures: list[BaseException] = []
    together = threading.Barrier(8)

    def prepare(number: int) -> None:
        together.wait(10)
        try:
            prepare_node_dir(config, number, 1)
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
    node = prepare_node_dir(config, 0, 1)
    for attempt in (2, 3):
        (node / "train.log").write_text(f"of attempt {attempt - 1}")
        prepare_node_dir(config, 0, attempt)
    assert (node / "train.log.1").read_text() == "of attempt 1"
    assert (node / "train.log.2").read_text() == "of attempt 2"
    assert not (node / "train.log").exists()


def test_S30_a_volume_that_is_full_ends_the_first_attempt_and_is_tried_again_later(
    config: LauncherConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first attempt it ends the pod with its reason; later the next attempt may find room."""

    def refuse(*_: object) -> Path:
        raise VolumeError("the volume is full")

    monkeypatch.setattr(start_paddle, "prepare_node_dir", refuse)
    own = dataclasses.replace(config, pod_ip=in_id_order(IDS)[0])
    launcher = make_launcher(own, WaitPolicy(5.0))
    launcher.attempt = agree_as(config, 0)
    with pytest.raises(VolumeError, match="the volume is full"):
        start_paddle.startPaddle(IDS, {}, launcher)
    assert start_paddle.startPaddle(IDS, {}, launcher) == 74
    assert launcher.history.status == 74


def test_S30_an_output_that_cannot_be_written_is_named_before_training(config: LauncherConfig) -> None:
    """The original trained for a pass before it noticed."""
    config.job_dir.mkdir(parents=True)
    config.output.write_text("a file where the directory should be")
    with pytest.raises(VolumeError, match=r"runs as uid \d+, .* belongs to uid \d+ with mode 0\d{3}"):
        prepare_node_dir(config, 0, 1)


def test_a_signal_just_before_a_pause_ends_it(config: LauncherConfig) -> None:
    """Its handler ran after the pause: the interpreter runs handlers between two of its steps, not inside a sleep."""
    failed = dataclasses.replace(record(), fruitless=9)
    launcher = make_launcher(dataclasses.replace(config, restarts=100), WaitPolicy(5.0), num_passes="10")
    launcher.stop.supervising = True  # so that nothing is raised before the pause
    launcher.stop._handle(signal.SIGTERM, None)
    with pytest.raises(StoppedError, match="stopped by SIGTERM"):
        pause_before_next(launcher, failed)
