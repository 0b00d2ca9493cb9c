"""Jobs of many pods: trainer 0 lists them all, the others ask for two and take the set from job.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import responses
from builders import JOB, JOB_UID, PodBuilder, pod, pod_environment, podlist
from launching import make_launcher
from test_launcher_api import URL, Clock

import start_paddle
from paddle_base.runtime.errors import ConfigError, PeerUnreachableError
from paddle_cluster.launcher.attempts import AttemptHistory, JobRecord, Meeting
from paddle_cluster.launcher.cluster.kubernetes import FEW, PodApi
from paddle_cluster.launcher.cluster.pods import IdMap, parse_pods, why_not_ready
from paddle_cluster.launcher.cluster.waiting import is_whole
from paddle_cluster.launcher.control.job_record import read_record, wanted_record, write_record
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import TABLE_ROWS

MANY = FEW + 4
OWN = 5
PODS = [pod(f"10.0.0.{number}", f"p-{number}").indexed(number) for number in range(MANY)]
UIDS = [one["metadata"]["uid"] for one in PODS]


def environ(**changed: str | None) -> dict[str, str]:
    known = {"POD_IP": f"10.0.0.{OWN}", "POD_NAME": f"p-{OWN}", "JOB_COMPLETION_INDEX": str(OWN)}
    return pod_environment(**{"CONF_PADDLE_GRADIENT_NUM": str(MANY), **known, **changed})


def make_config(**changed: str | None) -> LauncherConfig:
    return LauncherConfig.from_env(environ(**changed))


def queries() -> list[dict[str, str]]:
    """What was asked: for all pods, if there is a limit, else for two."""
    return [call.request.params for call in responses.calls]


def questions() -> list[str]:
    return ["all" if "limit" in query else "two" for query in queries()]


ROLES: dict[str, tuple[dict[str, str | None], tuple[list[int], int]]] = {
    "one of many": ({}, ([0, OWN], MANY)),
    "trainer 0 of many": ({"JOB_COMPLETION_INDEX": "0"}, ([], 1)),
    "one of few": ({"CONF_PADDLE_GRADIENT_NUM": str(FEW)}, ([], FEW)),
    "trainer 0 of few": ({"CONF_PADDLE_GRADIENT_NUM": str(FEW), "JOB_COMPLETION_INDEX": "0"}, ([], FEW)),
    "a Job without completion indexes": ({"JOB_COMPLETION_INDEX": None}, ([], MANY)),
}


@pytest.mark.parametrize(("changed", "expected"), ROLES.values(), ids=ROLES)
def test_who_lists_what_and_with_how_many_others(
    changed: dict[str, str | None], expected: tuple[list[int], int]
) -> None:
    api = PodApi.for_role(make_config(**changed))
    assert (api.indexes, api.askers) == expected


@responses.activate
def test_the_small_list_is_of_two_indexes_and_from_the_api_servers_memory() -> None:
    responses.get(URL, json=podlist(PODS[0], PODS[OWN]))
    assert PodApi.for_role(make_config()).list_pods()["items"] == [PODS[0], PODS[OWN]]
    assert queries() == [
        {
            "labelSelector": f"job-name={JOB},batch.kubernetes.io/job-completion-index in (0,{OWN})",
            "resourceVersion": "0",
        }
    ]


SMALL_LISTS: dict[str, tuple[list[PodBuilder], str | None, list[str]]] = {
    "this pod by its name": ([PODS[0], PODS[OWN].pending()], f"p-{OWN}", ["two"]),
    "this pod by its address, where no downward API gave the name": ([PODS[OWN]], f"{JOB}-{OWN}", ["two"]),
    "nothing: before 1.28 the index was no label": ([], f"p-{OWN}", ["two", "all"]),
    "not this pod: the API server's memory is old": ([PODS[0]], f"p-{OWN}", ["two", "all"]),
}


@pytest.mark.parametrize(("found", "name", "asked"), SMALL_LISTS.values(), ids=SMALL_LISTS)
@responses.activate
def test_all_pods_are_asked_for_where_this_one_is_not_found(
    found: list[PodBuilder], name: str | None, asked: list[str]
) -> None:
    responses.get(URL, json=podlist(*found))
    responses.get(URL, json=podlist(*PODS))
    api = PodApi.for_role(make_config(POD_NAME=name))
    listed = len(api.list_pods()["items"])
    assert questions() == asked
    assert api.listed == listed == (MANY if "all" in asked else len(found))  # the next pause is by that


@responses.activate
def test_getPodList_returns_all_pods_to_whoever_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environ().items():
        monkeypatch.setenv(name, value)
    responses.get(URL, json=podlist(*PODS))
    assert len(start_paddle.getPodList()["items"]) == MANY
    assert questions() == ["all"]


def test_an_index_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="JOB_COMPLETION_INDEX is 'five', expected a whole"):
        make_config(JOB_COMPLETION_INDEX="five")


def test_the_launcher_that_lists_for_all_waits_for_no_thousandth_of_the_slots() -> None:
    """Trainer 0's turn came every 5.6 s in a job of 1000 pods, and all launchers waited for it."""
    leader, other, few = (
        PodApi.for_role(make_config(CONF_PADDLE_GRADIENT_NUM=str(pods), JOB_COMPLETION_INDEX=str(index)))
        for index, pods in ((0, 1000), (5, 1000), (0, FEW))
    )
    assert leader.pacer.slots.period_s == 0.5 < leader.interval(0.0)
    assert other.pacer.slots.period_s > 5.0 and few.pacer.slots.period_s < 0.1


# ----- Meeting


@pytest.fixture
def config(tmp_path: Path) -> LauncherConfig:
    (tmp_path / JOB / "output").mkdir(parents=True)
    return make_config(JOB_PATH=str(tmp_path), START_TIMEOUT="60", REJOIN_TIMEOUT="600")


def make_record(config: LauncherConfig, pods: list[PodBuilder] = PODS, **fields: Any) -> JobRecord:
    """Returns what trainer 0 would write."""
    wanted = wanted_record(config, start_paddle.getIdMap(podlist(*pods)), {"num_passes": "10"})
    return dataclasses.replace(wanted, **fields)


def meet(config: LauncherConfig, clock: Clock, memory: AttemptHistory | None = None) -> Meeting | None:
    return start_paddle.meet(make_launcher(config, clock.waiting(60.0), memory, num_passes="10"))


class Writer(Clock):
    """A clock at whose n-th sleep something happens."""

    def __init__(self, number: int, action: Callable[[], object]) -> None:
        super().__init__()
        self.number, self.action = number, action

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if len(self.slept) == self.number:
            self.action()


@responses.activate
def test_the_record_that_names_this_pod_is_enough(config: LauncherConfig) -> None:
    """Nothing else is asked of the API server: N lists of N pods are what it cannot bear."""
    responses.get(URL, json=podlist(PODS[0], PODS[OWN]))
    record = make_record(config)
    write_record(config.output, record)
    meeting = meet(config, Clock())
    assert meeting.record == record
    assert meeting.ids == start_paddle.getIdMap(podlist(*PODS))
    assert meeting.ids.pod_uids == sorted(UIDS)
    assert meeting.ids.job_uid == JOB_UID
    assert meeting.ids.places == {f"10.0.0.{number}": f"p-{number}" for number in range(MANY)}
    assert questions() == ["two"]


@responses.activate
def test_the_volume_is_looked_at_more_often_than_the_api_is_asked(config: LauncherConfig) -> None:
    responses.get(URL, json=podlist(PODS[0], PODS[OWN]))
    clock = Writer(3, lambda: write_record(config.output, make_record(config)))
    assert meet(config, clock).ids[config.pod_ip] == OWN
    assert questions() == ["two"]
    assert len(clock.slept) == 3


@pytest.mark.parametrize("launchers", [MANY, 1000])
@responses.activate
def test_a_launcher_of_a_job_of_any_size_hears_of_an_attempt_at_once(config: LauncherConfig, launchers: int) -> None:
    """In a job of 1000 pods it listened once a second, from the time in which each of them read job.json for it."""
    responses.get(URL, json=podlist(PODS[0], PODS[OWN]))
    many = dataclasses.replace(config, gradient_num=launchers)
    clock = Writer(4, lambda: write_record(config.output, make_record(config)))
    meet(many, clock)
    assert clock.slept[1:] == [0.05] * 3


NO_INVITATION: dict[str, Callable[[LauncherConfig], JobRecord]] = {
    "it names the pod that this one replaces": lambda config: make_record(
        config, [*PODS[:OWN], pod(f"10.0.0.{OWN}", "old").indexed(OWN), *PODS[OWN + 1 :]]
    ),
    "it is of the attempt that this launcher was in": lambda config: make_record(config, attempt=3),
    "it does not say who the others are": lambda config: make_record(config, attempt=4, pods=[]),
}


@pytest.mark.parametrize("make", NO_INVITATION.values(), ids=NO_INVITATION)
@responses.activate
def test_another_record_is_not_followed(config: LauncherConfig, make: Callable[[LauncherConfig], JobRecord]) -> None:
    responses.get(URL, json=podlist(PODS[0], PODS[OWN]))
    write_record(config.output, make(config))
    memory = AttemptHistory(record=make_record(config, attempt=3))
    following = make_record(config, attempt=5)
    clock = Writer(30, lambda: write_record(config.output, following))
    assert meet(config, clock, memory).record == following
    assert len(clock.slept) == 30


OBSTACLES: dict[str, tuple[list[PodBuilder], str]] = {
    "trainer 0 waits itself": (
        [PODS[0], PODS[OWN]],
        "trainer 0 has begun no attempt with this pod: see kubectl --namespace=default logs p-0",
    ),
    "its pod finds no room": (
        [PODS[0].pending("Unschedulable", "no cpu"), PODS[OWN]],
        "trainer 0's pod is not Running: p-0: Pending, Unschedulable: no cpu",
    ),
    "its pod has failed and has no successor yet": (
        [PODS[0].phase("Failed"), PODS[OWN]],
        "trainer 0's pod is not Running: p-0: Failed",
    ),
    "it has no pod": ([PODS[OWN]], "trainer 0's pod is not Running: the pod does not exist"),
    "only an earlier Job of this name has one": (
        [PODS[0].of_job("old"), PODS[OWN]],
        "trainer 0's pod is not Running: the pod does not exist",
    ),
    "this pod is told to stop": ([PODS[0], PODS[OWN].terminating()], f"this pod, p-{OWN}, is being stopped"),
}


@pytest.mark.parametrize(("pods", "said"), OBSTACLES.values(), ids=OBSTACLES)
@responses.activate
def test_what_is_waited_for_is_said_and_ends_the_wait(
    config: LauncherConfig, pods: list[PodBuilder], said: str
) -> None:
    responses.get(URL, json=podlist(*pods))
    clock = Clock()
    with pytest.raises(PeerUnreachableError, match=rf"gave up after 60 s \(START_TIMEOUT\): .*{said}") as raised:
        meet(config, clock)
    assert "\n" not in str(raised.value)  # no table of two pods that says all others do not exist
    assert 2 <= len(clock.said) <= 3  # once per 30 s
    assert set(questions()) == {"two"}


@responses.activate
def test_a_pod_that_nobody_lists_says_so(config: LauncherConfig) -> None:
    responses.get(URL, json=podlist(PODS[0]))
    clock = Clock()
    with pytest.raises(PeerUnreachableError, match=f"this pod, p-{OWN}, is not listed"):
        meet(config, clock)


@responses.activate
def test_a_job_that_has_ended_is_not_waited_for(config: LauncherConfig) -> None:
    replaced = [pod("10.0.0.99", "p-0-old").indexed(0), *PODS[1:]]
    given_up = make_record(config, replaced, given_up=True)
    for record, pods, expected in (
        (given_up, [PODS[0], PODS[OWN]], Meeting(IdMap(), given_up)),
        (make_record(config, replaced, finished=True), [PODS[0], PODS[OWN]], None),
        (make_record(config, replaced), [PODS[0].phase("Succeeded"), PODS[OWN]], None),
    ):
        responses.upsert(responses.GET, URL, json=podlist(*pods))
        write_record(config.output, record)
        memory = AttemptHistory(record=make_record(config, replaced))
        assert meet(config, Clock(), memory) == expected


@responses.activate
def test_trainer_0_lists_all_pods_and_writes_down_who_is_who(config: LauncherConfig, tmp_path: Path) -> None:
    responses.get(URL, json=podlist(*PODS[:-1]))
    responses.get(URL, json=podlist(*PODS))
    own = {"JOB_COMPLETION_INDEX": "0", "POD_IP": "10.0.0.0", "POD_NAME": "p-0"}
    first = make_config(JOB_PATH=str(tmp_path), **own)
    meeting = meet(first, Clock())
    assert questions() == ["all", "all"]
    written = read_record(config.output)
    assert written == meeting.record
    assert written is not None and written.ids == meeting.ids
    assert written.pods[OWN] == {"ip": f"10.0.0.{OWN}", "place": f"p-{OWN}", "uid": UIDS[OWN], "index": OWN}


@responses.activate
def test_only_trainer_0_of_many_looks_whether_the_set_has_changed(config: LauncherConfig) -> None:
    """While pservers do not answer: the others hear of its next attempt from the volume."""
    responses.get(URL, json=podlist(*PODS[:-1]))
    ids = make_record(config).ids
    assert is_whole(PodApi.for_role(config), ids)
    assert not questions()
    assert not is_whole(PodApi.for_role(make_config(JOB_COMPLETION_INDEX="0")), ids)
    assert questions() == ["all"]


def test_of_many_missing_pods_the_first_are_named() -> None:
    pods = parse_pods(podlist(*(one.pending() for one in PODS), *(one.pending() for one in PODS)))
    said = why_not_ready(pods, 2 * MANY)
    assert said.count("Pending") == TABLE_ROWS
    assert said.endswith(f"and {2 * MANY - TABLE_ROWS} more")
