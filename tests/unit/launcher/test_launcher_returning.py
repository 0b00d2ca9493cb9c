"""CONF_PADDLE_GRADIENT_MIN: how absent pods come back, and what is told of them."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest
import responses
from builders import pod, podlist
from launching import FakeControl
from test_launcher_api import URL, FastClock
from test_launcher_quorum import PODS, first_record, launcher_with, make_config, root, without

import start_paddle
from paddle_cluster.launcher.attempts import AttemptResult, Meeting, parse_record
from paddle_cluster.launcher.cluster.pods import parse_pods
from paddle_cluster.launcher.control.ending import is_left_alone, report_end
from paddle_cluster.launcher.control.job_record import wanted_record, write_record
from paddle_cluster.launcher.control.returning import ReturnWatch, find_returned
from paddle_cluster.launcher.control.sides import to_text
from paddle_cluster.launcher.control.watch import AttemptWatch
from paddle_cluster.launcher.failures import RETURNED_POD, describe_error, is_passed_on, make_error
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.status import describe_job, tabulate_pods

# ----- Coming back


def test_a_pod_is_back_when_it_runs_and_its_launcher_is_there(tmp_path: Path) -> None:
    record = without(make_config(tmp_path, 0), 0, 2)
    new = pod("10.0.0.9", "p-1-new").indexed(1).on_node("n7")
    pods = {
        "runs": ([PODS[0], new, PODS[2]], ["pod 1 (p-1-new on n7)"]),
        "has not started": ([PODS[0], new.pending(), PODS[2]], []),
        "is not there": ([PODS[0], PODS[2]], []),
    }
    for listed, expected in pods.values():
        assert find_returned(parse_pods(podlist(*listed)), record, lambda _: True) == expected
        assert find_returned(parse_pods(podlist(*listed)), record, lambda _: False) == []


@responses.activate
def test_the_leader_admits_pods_and_asks_the_port_of_one_that_will_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(tmp_path, 1)
    record, control = without(config, 1), FakeControl(config.output)
    responses.get(URL, json=podlist(*PODS))
    ports: list[tuple[str, int]] = []
    monkeypatch.setattr(
        "paddle_cluster.launcher.control.returning.is_open", lambda ip, port: not ports.append((ip, port))
    )
    watch = ReturnWatch(launcher_with(config, control), record)
    control.silent = {"10.0.0.1", "10.0.0.3"}
    watch.look()
    assert watch.names == ["pod 0 (p-0 on n0)"] and ports == [("10.0.0.1", config.control_port)]
    assert control.admitted == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    control.silent = set()
    watch.look()
    assert watch.names == ["pod 0 (p-0 on n0)", "pod 2 (p-2 on n2)"]
    control.silent = {"10.0.0.1", "10.0.0.3"}
    monkeypatch.setattr("paddle_cluster.launcher.control.returning.is_open", lambda *_: False)
    watch.look()
    assert watch.names == ["pod 0 (p-0 on n0)", "pod 2 (p-2 on n2)"], "its launcher looks for a set of pods again"
    watch.close()
    control.admitted = []
    watch.look()
    assert control.admitted == []


def save_passes(config: LauncherConfig, number: int) -> None:
    for each in range(number):
        (config.output / f"pass-{each:05d}").mkdir(parents=True, exist_ok=True)
        (config.output / f"pass-{each:05d}" / "done").touch()


def test_an_attempt_ends_with_the_first_pass_that_is_saved_after_a_pod_is_back(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(root, 0)
    record, control, clock = without(config, 0, 2), FakeControl(config.output), FastClock()
    write_record(config.output, record)
    monkeypatch.setattr("paddle_cluster.launcher.control.watch.time.monotonic", lambda: clock.now)
    watch = AttemptWatch(launcher_with(config, control), Meeting(record.ids, record))
    assert watch._returning

    def look() -> AttemptResult | None:
        clock.now += 10
        return watch.find_end()

    save_passes(config, 3)
    assert look() is None
    watch._returning.names = ["pod 1 (p-1 on n1)"]
    assert look() is None and look() is None
    assert (
        capsys.readouterr().out.count(
            "again: the next pass that is saved ends this attempt, unless it is the last pass"
        )
        == 1
    )
    save_passes(config, 4)
    end = look()
    assert end and (end.status, end.program) == (75, RETURNED_POD) and "pass 3 is saved" in end.message
    assert control.reports == [end]  # told at once, before the trainer has ended
    save_passes(config, 10)
    assert look() is None  # the last pass: the job ends by itself


@responses.activate
def test_an_attempt_whose_launchers_have_left_before_it_trains_is_dissolved(root: Path) -> None:
    """Pod 0 came back while pod 1's launcher began an attempt without it, and pod 2 had gone to pod 0 by then.

    Pod 1 waited START_TIMEOUT for a pserver that nobody started.
    """
    responses.get(URL, json=podlist(*PODS))
    config = make_config(root, 1, least=1)
    record, control = without(config, 1, 2), FakeControl(config.output)
    watch = AttemptWatch(launcher_with(config, control), Meeting(record.ids, record))
    assert watch.find_obstacle() is None
    control.silent = {"10.0.0.3"}
    obstacle = watch.find_obstacle()
    assert obstacle and obstacle.is_dissolved and not obstacle.status
    full, own = first_record(make_config(root, 0)), FakeControl(config.output)
    own.silent = {"10.0.0.3"}  # with all pods it may join again
    first = launcher_with(make_config(root, 0), own)
    assert AttemptWatch(first, Meeting(full.ids, full)).find_obstacle() is None


@responses.activate
def test_a_launcher_whose_leader_has_left_before_the_attempt_trains_leaves_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader had joined pod 0, and this launcher waited START_TIMEOUT for the leader's pserver."""
    responses.get(URL, json=podlist(*PODS))
    config, clock = make_config(root, 2, least=1), FastClock()
    monkeypatch.setattr("paddle_cluster.launcher.control.watch.time.monotonic", lambda: clock.now)
    record, control = without(config, 1, 2), FakeControl(config.output)
    watch = AttemptWatch(launcher_with(config, control), Meeting(record.ids, record))
    assert watch.find_obstacle() is None
    control.missing = "no connection to it can be made"
    assert watch.find_obstacle() is None
    clock.now += 10
    end = watch.find_obstacle()
    assert end and (end.status, end.is_dissolved) == (75, False)
    assert end.message == "trainer 0's launcher is gone: no connection to it can be made"


@pytest.mark.parametrize("trainer_id", [0, 1])
def test_that_pods_are_back_is_no_failure(root: Path, trainer_id: int, capsys: pytest.CaptureFixture[str]) -> None:
    config = make_config(root, 2 * trainer_id)
    record = without(config, 0, 2)
    result = AttemptResult(75, RETURNED_POD, "pod 1 (p-1) can take part again, and pass 3 is saved")
    failure = make_error(record.name, 0, "p-0", result)
    assert not is_passed_on(failure) and "exit status" not in describe_error(failure, record)
    own = result if trainer_id == 0 else AttemptResult(75, "launcher", "another pod has ended it")
    launcher = launcher_with(config, FakeControl(config.output))
    ended = report_end(launcher, Meeting(record.ids, record), own, failure, {"PATH": ""})
    said = capsys.readouterr().out
    assert "attempt 2 has ended: pod 1 (p-1) can take part again" in said
    assert "failed" not in said.replace("no report", "")
    assert (ended.failure is not None) == (trainer_id == 0)
    assert not list(config.output.glob("node_*/error.json"))


# ----- What is told


def test_status_says_what_is_missing_since_when(root: Path) -> None:
    config = make_config(root, 0)
    record = without(config, 0, 2)
    record = dataclasses.replace(record, absent=[{"index": 1, "place": "p-1 on n1", "since": time.time()}])
    write_record(config.output, record)
    for number in range(2):
        (config.output / f"node_{number}").mkdir()
        text = f'{{"attempt": "{record.name}", "pass": {number + 4}, "batch": 1, "time": 1}}'
        (config.output / f"node_{number}" / "progress.json").write_text(text)
    line = describe_job(config.output)[1]
    assert line.startswith("2 of 3 trainers, 2 of 3 pservers; without pod 1 (p-1 on n1) since 2")
    pods = parse_pods(podlist(PODS[0], PODS[1].pending(), PODS[2]))
    rows = [row.split() for row in tabulate_pods(pods, config.output)[1:]]
    assert [(row[0], row[1], row[4]) for row in rows] == [("0", "p-0", "4"), ("-", "p-1", "-"), ("1", "p-2", "5")]


HOSTILE = {
    "no index": {"place": "", "since": 1.0},
    "no number": {"index": "1", "place": "", "since": 1.0},
    "a negative one": {"index": -1, "place": "", "since": 1.0},
    "no time": {"index": 1, "place": "", "since": 1e300},
    "no place": {"index": 1, "since": 1.0},
}


@pytest.mark.parametrize("absent", HOSTILE.values(), ids=HOSTILE)
def test_a_record_with_anything_else_is_none(tmp_path: Path, absent: dict[str, Any]) -> None:
    record = dataclasses.replace(without(make_config(tmp_path, 0), 0, 2), absent=[absent])
    assert parse_record(to_text(record).encode()) is None
    assert parse_record(to_text(dataclasses.replace(record, absent=[1])).encode()) is None  # type: ignore[list-item]
    good = without(make_config(tmp_path, 0), 0, 2)
    assert parse_record(to_text(dataclasses.replace(good, pods=[{"ip": "a"}])).encode()) is None


def test_only_trainer_0s_pod_is_waited_for_before_the_end_is_written_down(tmp_path: Path) -> None:
    """The UIDs of a record are sorted, and the first of them was taken for trainer 0's."""
    config = make_config(tmp_path, 1)
    pods = [pod("10.0.0.1", "z").indexed(0), pod("10.0.0.2", "p-1").indexed(1), pod("10.0.0.3", "a").indexed(2)]
    record = wanted_record(config, start_paddle.getIdMap(podlist(*pods)), {})
    assert record.pod_uids[0] != record.first_uid == "uid-of-z"
    assert not is_left_alone(record, parse_pods(podlist(*pods)), config)
    assert is_left_alone(record, parse_pods(podlist(pods[0].phase("Failed"), *pods[1:])), config)
    assert not is_left_alone(record, parse_pods(podlist(pods[0], pods[1], pods[2].phase("Failed"))), config)


__all__ = ["root"]
