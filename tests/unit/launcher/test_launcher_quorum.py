"""CONF_PADDLE_GRADIENT_MIN: with which pods an attempt begins, who leads it, and how the others come back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import responses
from builders import JOB_UID, PodBuilder, pod, pod_environment, podlist
from launching import FakeControl, make_launcher
from test_launcher_api import URL, FastClock

import start_paddle
from paddle_base.runtime.errors import ConfigError, PeerUnreachableError
from paddle_cluster.launcher.attempts import AttemptHistory, AttemptResult, JobRecord, Meeting, parse_record
from paddle_cluster.launcher.cluster.kubernetes import FEW, PodApi
from paddle_cluster.launcher.cluster.pods import PodStatus, hosts_of, parse_pods
from paddle_cluster.launcher.cluster.quorum import (
    WITHOUT_LAUNCHER,
    Quorum,
    choose_leader,
    choose_members,
    find_absent,
    find_gone,
    find_live,
)
from paddle_cluster.launcher.control.job_record import attempt_config, read_record, wanted_record, write_record
from paddle_cluster.launcher.control.launcher import Launcher
from paddle_cluster.launcher.control.returning import find_returned
from paddle_cluster.launcher.control.sides import to_text
from paddle_cluster.launcher.errors import NotReadyError
from paddle_cluster.launcher.failures import RETURNED_POD, make_error
from paddle_cluster.launcher.layout import PodLayout
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.status import tabulate_pods
from paddle_cluster.launcher.text import JsonObject

BESIDE, MORE, APART = PodLayout(3, 3), PodLayout(2, 4), PodLayout(3, 2, is_apart=True)
# pods that are there, least number of trainers -> trainers and pservers of the attempt
SHRUNK = {
    "one of three is lost": (BESIDE, 2, 2, (2, 2)),
    "two are": (BESIDE, 1, 1, (1, 1)),
    "too few": (BESIDE, 1, 2, None),
    "none is lost": (BESIDE, 3, 1, (3, 3)),
    "fewer pservers stay": (PodLayout(3, 1), 2, 1, (2, 1)),
    "the pods that had a pserver alone make up for trainers": (MORE, 3, 2, (2, 3)),
    "to the last": (MORE, 2, 2, (2, 2)),
    "and then trainers become fewer": (MORE, 1, 1, (1, 1)),
    "apart, trainers become fewer first": (APART, 4, 1, (2, 2)),
    "down to the least": (APART, 3, 2, (2, 1)),
    "apart, a pserver there must be": (APART, 2, 2, None),
    "apart, none is lost": (APART, 5, 1, (3, 2)),
}


@pytest.mark.parametrize(("layout", "pods", "least", "expected"), SHRUNK.values(), ids=SHRUNK)
def test_fewer_pods_run_fewer_programs(
    layout: PodLayout, pods: int, least: int, expected: tuple[int, int] | None
) -> None:
    found = layout.shrunk(pods, least)
    assert (found and (found.trainers, found.pservers)) == expected
    assert found is None or found.pods == pods


PODS = [pod(f"10.0.0.{number + 1}", f"p-{number}").indexed(number).on_node(f"n{number}") for number in range(3)]


def live_of(*pods: PodBuilder, layout: PodLayout = BESIDE) -> dict[int, PodStatus] | None:
    return find_live(parse_pods(podlist(*pods)), layout)


def test_pods_are_told_apart_by_their_index() -> None:
    assert [*(live_of(PODS[2], PODS[0]) or {})] == [0, 2]
    assert live_of(PODS[0], PODS[1].pending()) == {0: parse_pods(podlist(PODS[0]))[0]}
    assert live_of(PODS[0], pod("10.0.0.9").indexed(0)) is None
    assert live_of(PODS[0], pod("10.0.0.1", "q").indexed(1)) is None
    assert live_of(PODS[0], pod("10.0.0.9").indexed(3)) is None
    assert live_of(PODS[0], pod("10.0.0.9")) is None


# indexes that are live, that the last attempt did without, whether REJOIN_TIMEOUT is over -> gone, leader
LEADERS: dict[str, tuple[list[int], list[int], bool, set[int], int | None]] = {
    "all are there": ([0, 1, 2], [], False, set(), 0),
    "one is waited for": ([0, 1], [], False, set(), 0),
    "it does not come back": ([0, 1], [], True, {2}, 0),
    "the first is waited for, so nobody leads": ([1, 2], [], False, set(), None),
    "the first does not come back": ([1, 2], [], True, {0}, 1),
    "it was not there before": ([1, 2], [0], False, {0}, 1),
    "it is back": ([0, 1, 2], [0], False, set(), 0),
    "another one was not there before": ([2], [0], False, {0}, None),
    "none is live": ([], [], True, {0, 1, 2}, None),
}


@pytest.mark.parametrize(("live", "known", "is_over", "gone", "leader"), LEADERS.values(), ids=LEADERS)
def test_who_leads(live: list[int], known: list[int], is_over: bool, gone: set[int], leader: int | None) -> None:
    pods = live_of(*(PODS[index] for index in live))
    assert pods is not None
    assert find_gone(pods, BESIDE, known, is_over=is_over) == gone
    found = choose_leader(pods, gone)
    assert (found.index if found else None) == leader


# live, gone, those without a word, those that had their time -> members, or what is waited for
MEMBERS: dict[str, tuple[list[int], set[int], list[int], list[int], list[int] | str]] = {
    "those that are there": ([0, 2], {1}, [], [], [0, 2]),
    "not as long as one may come back": (
        [0, 2],
        set(),
        [],
        [0, 2],
        "waiting for pods 1; kubectl describe says why they are not there",
    ),
    "nor without a launcher that is on its way": (
        [0, 2],
        {1},
        [2],
        [],
        f"waiting for the launchers of pod 2 at 10.0.0.3 (p-2 on n2); {WITHOUT_LAUNCHER}",
    ),
    "one of two is new": (
        [0, 1, 2],
        set(),
        [1, 2],
        [0, 1],
        f"waiting for the launchers of pod 2 at 10.0.0.3 (p-2 on n2); {WITHOUT_LAUNCHER}",
    ),
    "but not for ever": ([0, 1, 2], set(), [2], [0, 1, 2], [0, 1]),
    "alone": ([1], {0, 2}, [], [1], [1]),
}


@pytest.mark.parametrize(("live", "gone", "silent", "late", "expected"), MEMBERS.values(), ids=MEMBERS)
def test_with_whom_an_attempt_begins(
    live: list[int], gone: set[int], silent: list[int], late: list[int], expected: list[int] | str
) -> None:
    pods = live_of(*(PODS[index] for index in live))
    assert pods is not None
    addresses = ([f"10.0.0.{index + 1}" for index in each] for each in (silent, late))
    found: list[int | None] | str
    try:
        found = [one.index for one in choose_members(pods, gone, BESIDE, *addresses)]
    except NotReadyError as waiting:
        found = str(waiting)
    assert found == expected


def test_trainer_ids_are_dense_in_the_order_of_the_indexes() -> None:
    members = [*(live_of(PODS[2], PODS[0]) or {}).values()]
    quorum = Quorum(members, PodLayout(2, 2), [])
    assert quorum.ids == {"10.0.0.1": 0, "10.0.0.3": 1}
    assert quorum.ids.pod_uids == ["uid-of-p-0", "uid-of-p-2"] and quorum.ids.job_uid == JOB_UID


def test_a_name_is_of_the_index_also_where_the_trainer_id_is_another() -> None:
    """The leader has the members, and every launcher the record of the attempt."""
    named = {"CONF_PADDLE_POD_SERVICE": "pods", "JOB_COMPLETION_INDEX": "0"}
    config = LauncherConfig.from_env(pod_environment(**named))
    quorum = Quorum([*(live_of(PODS[0], PODS[2]) or {}).values()], PodLayout(2, 2), [])
    record = wanted_record(config, quorum.ids, {}, quorum)
    names = {"10.0.0.1": "paddle-cluster-job-0.pods", "10.0.0.3": "paddle-cluster-job-2.pods"}
    assert hosts_of(config, quorum.ids) == hosts_of(config, record.ids) == names
    assert list(record.ids.values()) == [0, 1]


def test_since_when_a_pod_is_missing_is_kept() -> None:
    members = [*(live_of(PODS[1]) or {}).values()]
    known = [{"index": 2, "place": "p-2 on n2", "since": 5.0}]
    assert find_absent(members, BESIDE, known, {0: "p-0 on n0", 2: "another"}, 9.0) == [
        {"index": 0, "place": "p-0 on n0", "since": 9.0},
        known[0],
    ]


# ----- Variables

REFUSED: dict[str, tuple[dict[str, str | None], str]] = {
    "above the number": ({"CONF_PADDLE_GRADIENT_MIN": "4"}, "is 4, above CONF_PADDLE_GRADIENT_NUM = 3; lower it"),
    "no Indexed Job": ({"CONF_PADDLE_GRADIENT_MIN": "2", "JOB_COMPLETION_INDEX": None}, "has no JOB_COMPLETION_INDEX"),
    "below zero": ({"CONF_PADDLE_GRADIENT_MIN": "-1"}, "is '-1', expected a whole number from 0"),
    "no Indexed Job, with pservers alone": (
        {"CONF_PADDLE_GRADIENT_MIN": "3", "CONF_PADDLE_PSERVER_NUM": "4", "JOB_COMPLETION_INDEX": None},
        "has no JOB_COMPLETION_INDEX",
    ),
}


@pytest.mark.parametrize(("changed", "said"), REFUSED.values(), ids=REFUSED)
def test_a_number_that_cannot_be_is_refused(changed: dict[str, str | None], said: str) -> None:
    with pytest.raises(ConfigError, match=f"CONF_PADDLE_GRADIENT_MIN.*{said}"):
        LauncherConfig.from_env(pod_environment(**{"JOB_COMPLETION_INDEX": "0", **changed}))


def test_by_default_all_pods_are_needed() -> None:
    assert not LauncherConfig.from_env(pod_environment()).may_shrink
    assert not LauncherConfig.from_env(pod_environment(CONF_PADDLE_GRADIENT_MIN="3")).may_shrink


@pytest.mark.parametrize("apart", ["0", "1"])
def test_a_job_may_go_on_with_all_trainers_and_without_a_pod_of_a_pserver_alone(apart: str) -> None:
    """CONF_PADDLE_GRADIENT_MIN had to be below the number of trainers, so that a lost pserver cost a trainer."""
    numbers = {"CONF_PADDLE_GRADIENT_NUM": "2", "CONF_PADDLE_PSERVER_NUM": "4", "CONF_PADDLE_PSERVER_APART": apart}
    environ = pod_environment(JOB_COMPLETION_INDEX="0", **numbers)
    assert not LauncherConfig.from_env(environ).may_shrink
    config = LauncherConfig.from_env({**environ, "CONF_PADDLE_GRADIENT_MIN": "2"})
    assert config.may_shrink and config.layout.shrunk(config.layout.pods - 1, 2) == PodLayout(2, 3, apart == "1")


# ----- Meeting

REJOIN_S = 90.0


def make_config(root: Path, index: int, least: int = 2, **changed: str | None) -> LauncherConfig:
    own = {"POD_IP": f"10.0.0.{index + 1}", "POD_NAME": f"p-{index}", "JOB_COMPLETION_INDEX": str(index)}
    times = {"REJOIN_TIMEOUT": f"{REJOIN_S:g}", "START_TIMEOUT": "60"}
    settings = {"JOB_PATH": str(root), "CONF_PADDLE_GRADIENT_MIN": str(least), **own, **times, **changed}
    return LauncherConfig.from_env(pod_environment(**settings))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A volume with three shards, and the record of a first attempt of all three pods."""
    config = make_config(tmp_path, 0)
    for number in range(3):
        data = config.job_dir / str(number) / "data"
        data.mkdir(parents=True)
        (data / "train.txt").write_text("1\n")
        (data / "train.list").write_text("data/train.txt\n")
    config.output.mkdir()
    write_record(config.output, first_record(config))
    return tmp_path


def first_record(config: LauncherConfig) -> JobRecord:
    record = wanted_record(config, start_paddle.getIdMap(podlist(*PODS)), {"num_passes": "10"})
    return dataclasses.replace(record, attempts=[{"name": record.name, "started": "then", "origin": ""}])


def without(config: LauncherConfig, *indexes: int, **fields: Any) -> JobRecord:
    """The record of a second attempt of the pods with these indexes."""
    members = [*(live_of(*(PODS[index] for index in indexes)) or {}).values()]
    layout = config.layout.shrunk(len(members), 1)
    assert layout
    quorum = Quorum(members, layout, find_absent(members, config.layout, [], {}, 1.8e9))
    record = wanted_record(config, quorum.ids, {"num_passes": "10"}, quorum)
    record = dataclasses.replace(record, attempt=2, attempts=[], **fields)
    return dataclasses.replace(record, attempts=[{"name": record.name, "started": "now", "origin": ""}])


class Told(FakeControl):
    """A launcher that has heard of this attempt, and of nothing else."""

    heard: JobRecord | None = None

    @property
    def newest(self) -> JobRecord | None:
        return self.heard


def meet(
    config: LauncherConfig, clock: FastClock, control: FakeControl | None = None, seen: JobRecord | None = None
) -> tuple[Meeting, FakeControl]:
    control = control or Told(config.output)
    launcher = make_launcher(config, clock.waiting(60.0), AttemptHistory(record=seen), control, num_passes="10")
    found = start_paddle.meet(launcher)
    assert found
    return found, control


def change_later(clock: FastClock, after_s: float, control: FakeControl, **values: object) -> None:
    """Set attributes of `control` in the first sleep that ends later than `after_s` seconds from the beginning."""
    sleep = clock.sleep

    def wake(seconds: float) -> None:
        sleep(seconds)
        if clock.now - 1000.0 > after_s:
            vars(control).update(values)

    clock.sleep = wake  # type: ignore[method-assign]


def answer(list_pods: Callable[[Any], JsonObject]) -> None:
    responses.add_callback(responses.GET, URL, callback=lambda request: (200, {}, json.dumps(list_pods(request))))


def launcher_with(config: LauncherConfig, control: FakeControl) -> Launcher:
    return make_launcher(config, FastClock().waiting(60.0), control=control, num_passes="10")


@responses.activate
def test_a_pod_that_does_not_come_back_is_done_without(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    responses.get(URL, json=podlist(PODS[0], PODS[1].pending("Unschedulable", "no room"), PODS[2]))
    config, clock = make_config(root, 0), FastClock()
    met, control = meet(config, clock, seen=read_record(make_config(root, 0).output))
    assert met.ids == {"10.0.0.1": 0, "10.0.0.3": 1}
    assert REJOIN_S <= clock.now - 1000.0 < REJOIN_S + 10
    record = met.record
    assert record and record == read_record(config.output) and control.begun == [record]
    assert (record.attempt, record.gradient_num, record.pserver_num, record.indexes) == (2, 2, 2, [0, 2])
    assert attempt_config(config, record).layout == PodLayout(2, 2)
    assert parse_record(to_text(record).encode()) == record
    (absent,) = record.absent
    assert (absent["index"], absent["place"]) == (1, "p-1 on n1")
    said = next(text for text in clock.said if "Unschedulable: no room" in text)
    assert "(REJOIN_TIMEOUT) at least 2 trainers continue without the pods that are missing then" in said
    assert record.describe_absent().startswith("2 of 3 trainers, 2 of 3 pservers; without pod 1 (p-1 on n1) since 2")


@responses.activate
def test_by_default_nobody_goes_on_without_a_pod(root: Path) -> None:
    responses.get(URL, json=podlist(PODS[0], PODS[2]))
    clock = FastClock()
    with pytest.raises(PeerUnreachableError, match=r"gave up after 90 s \(REJOIN_TIMEOUT\): 2 of 3 Running"):
        meet(make_config(root, 0, least=3), clock)


@responses.activate
def test_too_few_pods_give_up(root: Path) -> None:
    responses.get(URL, json=podlist(PODS[0]))
    clock = FastClock()
    with pytest.raises(PeerUnreachableError, match=r"number of live pods: 1; CONF_PADDLE_GRADIENT_MIN = 2 needs more"):
        meet(make_config(root, 0), clock)


@responses.activate
def test_the_first_attempt_of_a_job_needs_all_pods(root: Path) -> None:
    (make_config(root, 0).output / "job.json").unlink()
    responses.get(URL, json=podlist(PODS[0], PODS[2]))
    with pytest.raises(PeerUnreachableError, match=r"gave up after 60 s \(START_TIMEOUT\)"):
        meet(make_config(root, 0), FastClock())


@responses.activate
def test_a_shard_that_cannot_be_divided_is_waited_for_by_name(root: Path) -> None:
    (make_config(root, 0).job_dir / "1" / "data" / "train.list").unlink()
    responses.get(URL, json=podlist(PODS[0], PODS[2]))
    clock = FastClock()
    with pytest.raises(PeerUnreachableError, match=r"gave up .*2 of 3 Running.*; shard 1, .* cannot be divided among"):
        meet(make_config(root, 0), clock)


@responses.activate
def test_where_trainer_0s_pod_does_not_come_back_the_next_one_leads(root: Path) -> None:
    responses.get(URL, json=podlist(PODS[1], PODS[2]))
    met, control = meet(make_config(root, 1), FastClock())
    assert met.ids == {"10.0.0.2": 0, "10.0.0.3": 1}
    assert control.served == ["", "uid-of-p-1", JOB_UID]
    assert met.record and met.record.absent[0]["index"] == 0


@responses.activate
def test_the_others_join_the_one_that_leads(root: Path) -> None:
    responses.get(URL, json=podlist(PODS[1], PODS[2]))
    config, clock = make_config(root, 2), FastClock()
    control = Told(config.output)
    record = without(config, 1, 2)
    sleep = clock.sleep

    def hear(seconds: float) -> None:
        sleep(seconds)
        if control.served[:1] == ["10.0.0.2"]:
            control.heard = record

    clock.sleep = hear  # type: ignore[method-assign]
    met, _ = meet(config, clock, control, first_record(config))
    assert met == Meeting(record.ids, record) and met.ids[config.pod_ip] == 1
    assert clock.now - 1000.0 >= REJOIN_S


@responses.activate
def test_a_launcher_that_is_on_its_way_is_waited_for_by_the_new_leader(root: Path) -> None:
    """Its REJOIN_TIMEOUT may end some seconds later: the leader began alone."""
    responses.get(URL, json=podlist(PODS[1], PODS[2]))
    config, clock = make_config(root, 1, least=1), FastClock()
    control = Told(config.output)
    control.silent = {"10.0.0.3"}
    change_later(clock, REJOIN_S + 20, control, silent=set())
    met, _ = meet(config, clock, control)
    assert met.ids == {"10.0.0.2": 0, "10.0.0.3": 1}
    assert "waiting for the launchers of pod 2 at 10.0.0.3 (p-2 on n2)" in "".join(clock.said)


@responses.activate
def test_a_launcher_that_cannot_be_reached_is_done_without(root: Path) -> None:
    responses.get(URL, json=podlist(*PODS))
    config, control = make_config(root, 0), Told(root)
    control.silent, control.missing = {"10.0.0.2"}, "waiting for the launchers of trainer 1"
    met, _ = meet(dataclasses.replace(config), FastClock(), control)
    assert met.ids == {"10.0.0.1": 0, "10.0.0.3": 1}


@responses.activate
def test_a_pod_that_comes_back_in_the_last_second_is_heard_first(root: Path) -> None:
    """It was Running when REJOIN_TIMEOUT was over, and its launcher joined soon after: the others had gone on."""
    new = pod("10.0.0.9", "p-1-new").indexed(1)
    config, clock, control = make_config(root, 0), FastClock(), Told(root)
    control.silent, control.missing = {"10.0.0.9"}, "waiting for the launchers of trainer 1"

    answer(lambda _: podlist(PODS[0], *([new] if clock.now >= 1000 + REJOIN_S - 6 else []), PODS[2]))
    change_later(clock, REJOIN_S + 10, control, silent=set(), missing="")
    met, _ = meet(config, clock, control)
    assert met.ids == {"10.0.0.1": 0, "10.0.0.9": 1, "10.0.0.3": 2} and clock.now - 1000.0 > REJOIN_S + 10


@responses.activate
def test_a_pod_that_is_lost_while_another_is_waited_for_is_not_waited_for_longer(root: Path) -> None:
    config, clock = make_config(root, 0, least=1), FastClock()

    answer(lambda _: podlist(PODS[0], *([PODS[2]] if clock.now < 1000 + REJOIN_S / 2 else [])))
    met, _ = meet(config, clock)
    assert met.ids == {"10.0.0.1": 0} and REJOIN_S <= clock.now - 1000.0 < REJOIN_S + 10
    assert met.record and [one["index"] for one in met.record.absent] == [1, 2]


@responses.activate
def test_a_further_pod_that_is_lost_is_waited_for_anew(root: Path) -> None:
    """The attempt without one pod loses another: that one has REJOIN_TIMEOUT, and the first keeps its time."""
    config, clock = make_config(root, 0, least=1), FastClock()
    last = without(config, 0, 2)
    write_record(config.output, last)
    responses.get(URL, json=podlist(PODS[0], PODS[2].terminating()))
    met, _ = meet(config, clock, seen=last)
    assert met.ids == {"10.0.0.1": 0} and REJOIN_S <= clock.now - 1000.0 < REJOIN_S + 10
    assert met.record and [one["index"] for one in met.record.absent] == [1, 2]
    assert met.record.absent[0] == last.absent[0] and met.record.absent[1]["since"] != last.absent[0]["since"]


@responses.activate
def test_the_old_pod_that_is_still_listed_beside_the_new_one_does_not_count(root: Path) -> None:
    """A lost node's pod is listed as terminating, or as Running on a node that does not report, for minutes."""
    for number, old in enumerate((PODS[1].terminating(), PODS[1].phase("Failed"), PODS[1].phase("Unknown"))):
        config = make_config(root, 0)
        write_record(config.output, first_record(config))
        responses.reset()
        responses.get(URL, json=podlist(PODS[0], old, PODS[2]))
        met, _ = meet(config, FastClock())
        assert met.ids == {"10.0.0.1": 0, "10.0.0.3": 1}, number
        assert met.record
        new = pod("10.0.0.9", "p-1-new").indexed(1).on_node("n7")
        listed = parse_pods(podlist(PODS[0], old, new, PODS[2]))
        assert find_returned(listed, met.record, lambda _: True) == ["pod 1 (p-1-new on n7)"]
        shown = [row.split()[:2] for row in tabulate_pods(listed, config.output)[1:]]
        assert shown == [["0", "p-0"], ["-", "p-1"], ["-", "p-1-new"], ["1", "p-2"]]


@responses.activate
def test_a_further_attempt_waits_for_no_pod_that_the_last_one_did_without(root: Path) -> None:
    responses.get(URL, json=podlist(PODS[0], PODS[2]))
    config, clock = make_config(root, 0), FastClock()
    last = without(config, 0, 2)
    write_record(config.output, last)
    met, _ = meet(config, clock, seen=last)
    assert met.record and met.record.attempt == 3 and met.record.absent == last.absent
    assert clock.now == 1000.0


@responses.activate
def test_a_pod_that_is_back_waits_as_long_as_the_attempt_without_it_goes_on(root: Path) -> None:
    """However long a pass takes: its launcher must not give up, and begins no attempt with others."""
    responses.get(URL, json=podlist(*PODS))
    config = make_config(root, 1)
    running = without(config, 0, 2)
    write_record(config.output, running)
    clock, control = FastClock(), Told(config.output)
    full = dataclasses.replace(first_record(config), attempt=3)
    change_later(clock, 10 * REJOIN_S, control, heard=full)
    control.heard, control.silent = running, {"10.0.0.1", "10.0.0.3"}
    met, _ = meet(config, clock, control)
    assert met.record == full
    told = "attempt 2 continues without this pod, with 2 of 3 trainers; this pod takes part after the next pass"
    assert any(f"{told} that is saved, unless that is the last" in text for text in clock.said)


@responses.activate
def test_trainer_0s_pod_that_is_back_begins_nothing_while_the_others_train(root: Path) -> None:
    responses.get(URL, json=podlist(*PODS))
    config = make_config(root, 0, least=1)
    running = without(config, 1, 2)
    write_record(config.output, running)
    clock, control = FastClock(), Told(config.output)
    control.silent = {"10.0.0.2", "10.0.0.3"}
    control.missing = "waiting for the launchers of trainers 1 and 2"
    change_later(clock, 3 * REJOIN_S, control, silent=set(), missing="")
    met, _ = meet(config, clock, control)
    assert clock.now - 1000.0 > 3 * REJOIN_S
    assert met.ids == {"10.0.0.1": 0, "10.0.0.2": 1, "10.0.0.3": 2}
    assert control.served == ["", "uid-of-p-0", JOB_UID] and met.record and not met.record.absent


OVER: dict[str, dict[str, Any]] = {
    "it has ended": {"failure": True},
    "it has finished": {"finished": True},
    "it gave up": {"given_up": True},
}


@pytest.mark.parametrize("fields", OVER.values(), ids=OVER)
@responses.activate
def test_an_attempt_that_is_over_is_waited_for_by_nobody(root: Path, fields: dict[str, Any]) -> None:
    responses.get(URL, json=podlist(*PODS[1:]))
    config = make_config(root, 1, least=1)
    over = without(config, 0, 2)
    if fields.pop("failure", False):
        over = over.ended_by(make_error(over.name, 0, "p-0", AttemptResult(75, RETURNED_POD, "back")))
    write_record(config.output, dataclasses.replace(over, **fields, passes=10))
    clock = FastClock()
    control = Told(config.output)
    control.silent = {"10.0.0.3"}
    met = start_paddle.meet(make_launcher(config, clock.waiting(60.0), control=control, num_passes="10"))
    if fields:
        assert met is None or met.record.given_up
    else:  # pod 0 is waited for, and pod 2's launcher does not come
        assert met and met.ids == {"10.0.0.2": 0} and clock.now - 1000.0 >= REJOIN_S


@responses.activate
def test_of_many_launchers_each_lists_all_pods_when_trainer_0s_does_not_come_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddle_cluster.launcher.cluster.kubernetes.FEW", 2)
    config, clock = make_config(root, 1), FastClock()
    assert PodApi.for_role(config).indexes == [0, 1]

    answer(lambda request: podlist(*PODS[1:] if "limit" in request.params else PODS[1:2]))
    met, control = meet(config, clock)
    assert met.ids == {"10.0.0.2": 0, "10.0.0.3": 1} and control.served[0] == ""
    asked = ["all" if "limit" in call.request.params else "two" for call in responses.calls]
    assert asked.count("all") <= 3 and asked[0] == "two" and asked[-1] == "all"
    assert FEW > 2
