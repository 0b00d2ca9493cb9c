"""What launchers hear from each other: who takes part, which attempt begins, and what failed first in it."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import os
from unittest import mock

import pytest
from builders import pod_environment
from fake_network import FakeClient, FakeNetwork
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.messages.client_core import ClientCore, ClientPace
from paddle_base.messages.envelope import MemberId
from paddle_base.runtime.errors import ConfigError, PortInUseError
from paddle_base.runtime.health.places import LAUNCHER, name_process
from paddle_cluster.launcher.attempts import AttemptResult, JobRecord
from paddle_cluster.launcher.cluster.pods import IdMap
from paddle_cluster.launcher.cluster.quorum import WITHOUT_LAUNCHER
from paddle_cluster.launcher.control import transport
from paddle_cluster.launcher.control.channel import ControlChannel
from paddle_cluster.launcher.control.failure_detector import FailureDetector, LauncherPlace
from paddle_cluster.launcher.control.informer import describe_elsewhere
from paddle_cluster.launcher.control.protocol import RENDEZVOUS
from paddle_cluster.launcher.control.sides import RendezvousHost, RendezvousMember
from paddle_cluster.launcher.failures import describe_error, is_passed_on, make_error
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.supervisor import attempt_environ, check_place
from paddle_cluster.launcher.text import JsonObject

NOW = 1_800_000_000.0
IPS = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
UIDS = dict(zip(IPS, "cab", strict=True))
RECORD = JobRecord(
    "job",
    10,
    False,
    attempt=3,
    pod_uids=sorted(UIDS.values()),
    start_pass=0,
    attempts=[{"name": "", "started": "2026-11-22 12:00:00", "origin": ""}],
    pods=[{"ip": ip, "place": f"pod-{number} on node-{number}"} for number, ip in enumerate(IPS)],
)
RECORD.attempts[0]["name"] = RECORD.name
KILLED = AttemptResult(75, "trainer", "trainer was killed by SIGKILL", "SIGKILL")
BAD_DATA = AttemptResult(65, "trainer", "bad line 7")
LEFT_ALONE = AttemptResult(75, "trainer", "trainer 1 at 10.0.0.2 is lost")
PORT_HELD = AttemptResult(75, "pserver", "cannot listen on 10.0.0.1:7164: another process holds this port")
STOPPED = AttemptResult(143, "launcher", "stopped by SIGTERM")


def error(trainer_id: int, result: AttemptResult, attempt: str = RECORD.name) -> JsonObject:
    return {**make_error(attempt, trainer_id, f"pod-{trainer_id}", result), "time": NOW + trainer_id}


def make_detector(*joined: int) -> FailureDetector:
    detector = FailureDetector(UIDS[IPS[0]], LauncherPlace(IPS[0], "pod-0"))
    for number in joined:
        detector.join(UIDS[IPS[number]], LauncherPlace(IPS[number], f"pod-{number}"))
    return detector


# ----- The detector of trainer 0's launcher


def test_launchers_that_have_not_joined_are_missing() -> None:
    detector = make_detector(2)
    assert detector.missing(UIDS) == [IPS[1]]
    detector.join("a", LauncherPlace(IPS[1], "pod-1"))
    assert detector.missing(UIDS) == []
    detector.leave("a")
    assert detector.missing(UIDS) == [IPS[1]]


def test_a_launcher_whose_error_no_retry_repairs_is_missing_before_it_has_disconnected() -> None:
    detector = make_detector(1, 2)
    detector.report(error(1, LEFT_ALONE))
    assert detector.missing(UIDS) == []
    detector.report(error(2, BAD_DATA))
    assert detector.missing(UIDS) == [IPS[2]]
    detector.join(UIDS[IPS[2]], LauncherPlace(IPS[2], "pod-2"))
    detector.report(error(2, BAD_DATA))  # a launcher that connects again repeats its report
    assert detector.missing(UIDS) == [IPS[2]]
    detector.join(UIDS[IPS[2]], LauncherPlace(IPS[2], "pod-2"))  # its container was started again
    assert detector.missing(UIDS) == []


JUDGEMENTS: dict[str, tuple[list[tuple[int, AttemptResult]], list[int], int | None, int | None]] = {
    # reports in the order of their coming, launchers that are there -> the cause at once, the cause at last
    "a killed trainer is the cause at once": ([(1, KILLED)], [1, 2], 1, 1),
    "bad data is the cause at once": ([(2, BAD_DATA)], [1, 2], 2, 2),
    "a port that another process holds is, with the status of a lost peer": ([(1, PORT_HELD)], [1, 2], 1, 1),
    "a lost peer is not": ([(0, LEFT_ALONE)], [1, 2], None, 0),
    "the cause may come after those that it left alone": (
        [(0, LEFT_ALONE), (2, LEFT_ALONE), (1, KILLED)],
        [1, 2],
        1,
        1,
    ),
    "a pod that disconnected without a report is the cause": ([(0, LEFT_ALONE), (2, LEFT_ALONE)], [2], None, 1),
    "but not where another one says what failed": ([(0, LEFT_ALONE), (2, BAD_DATA)], [2], 2, 2),
    "a pod that was stopped may be stopped for another's failure": ([(1, STOPPED)], [1, 2], None, 1),
    "and then that one is the cause": ([(1, STOPPED), (2, BAD_DATA)], [1, 2], 2, 2),
    "a pod that is gone is no cause where another was stopped": ([(1, STOPPED)], [1], None, 1),
}


@pytest.mark.parametrize(("reports", "joined", "at_once", "at_last"), JUDGEMENTS.values(), ids=JUDGEMENTS)
def test_what_failed_first(
    reports: list[tuple[int, AttemptResult]], joined: list[int], at_once: int | None, at_last: int | None
) -> None:
    detector = make_detector(*joined)
    for trainer_id, result in reports:
        assert detector.report(error(trainer_id, result))
    for is_late, expected in ((False, at_once), (True, at_last)):
        found = detector.judge(RECORD, is_late=is_late)
        assert (found and found["trainer_id"]) == expected


def test_a_lost_pod_is_named_with_its_place_and_is_a_cause() -> None:
    detector = make_detector()
    detector.report(error(0, LEFT_ALONE))
    found = detector.judge(RECORD, is_late=True)
    assert found and not is_passed_on(found)
    RENDEZVOUS.requests["report"].question.check({"error": found}, "report")
    said = describe_error(found)
    assert said.startswith("trainer 1 on pod-1 on node-1: ") and "exit status" not in said
    assert "the pod was lost; the launchers of trainer 2 (pod-2 on node-2) disconnected, too" in said


def test_a_launcher_of_another_pod_with_the_same_address_is_not_the_lost_one() -> None:
    detector = make_detector(2)
    detector.join("new", LauncherPlace(IPS[1], "pod-1-again"))
    detector.report(error(0, LEFT_ALONE))
    found = detector.judge(RECORD, is_late=True)
    assert found and found["trainer_id"] == 1


def test_the_first_report_of_a_pod_counts() -> None:
    detector = make_detector(1, 2)
    assert detector.report(error(1, LEFT_ALONE))
    assert not detector.report(error(1, KILLED))
    assert detector.report(error(1, KILLED, "2.x"))


@settings(deadline=None, max_examples=60)
@given(st.permutations([(1, KILLED), (0, LEFT_ALONE), (2, LEFT_ALONE)]), st.sets(st.sampled_from([1, 2])))
def test_the_killed_program_is_the_cause_in_whatever_order_and_whoever_is_gone(
    reports: list[tuple[int, AttemptResult]], joined: set[int]
) -> None:
    detector = make_detector(*joined)
    for trainer_id, result in reports:
        detector.report(error(trainer_id, result))
    found = detector.judge(RECORD, is_late=True)
    assert found and found["trainer_id"] == 1


def test_memory_is_of_the_newest_attempts() -> None:
    detector = make_detector()
    for number in range(10):
        detector.report(error(0, KILLED, f"{number}.x"))
    assert [detector.has_reports(f"{number}.x") for number in (6, 7, 8, 9)] == [False, True, True, True]


# ----- Channels over the fake network


class Launchers:
    """The channels of three pods; their transports are those of a fake network."""

    def __init__(self) -> None:
        self.network = FakeNetwork()
        self.channels = [self.make_channel(ip) for ip in IPS]
        self.clients: dict[int, FakeClient] = {}
        self.serve()
        for number in (1, 2):
            self.join(number)

    def make_channel(self, ip: str) -> ControlChannel:
        return ControlChannel(LauncherConfig.from_env(pod_environment(POD_IP=ip, POD_NAME=f"pod-{ip[-1]}")))

    def serve(self, uid: str = "c") -> None:
        channel = self.channels[0]
        self.host = channel.side = RendezvousHost(channel._config, "realm", MemberId(uid, 1), channel.informer)
        self.network.serve(IPS[0], self.host.dispatcher)

    def join(self, number: int, channel: ControlChannel | None = None, incarnation: int = 1) -> None:
        channel = channel or self.channels[number]
        member = MemberId(UIDS[IPS[number]], incarnation)
        pace = ClientPace(delays=lambda: itertools.repeat(0.5))
        name = f"trainer 0's launcher at {IPS[0]}:7168"
        core = ClientCore(RENDEZVOUS, "realm", member, name, channel._make_hello, pace)
        self.clients[number] = self.network.join(IPS[0], core, channel.informer)
        channel.side = RendezvousMember(self.clients[number].caller)
        channel._served = IPS[0]
        self.network.run()

    def end(self, number: int) -> AttemptResult | None:
        return self.channels[number].find_end(RECORD, number)

    def failure(self, number: int) -> JsonObject | None:
        return self.channels[number].wait_for_first_failure(RECORD, 0.05)


@pytest.fixture
def launchers() -> Launchers:
    launchers = Launchers()
    launchers.channels[0].side.begin(RECORD)
    launchers.network.run()
    return launchers


def test_all_hear_of_the_attempt(launchers: Launchers) -> None:
    assert [one.newest for one in launchers.channels] == [RECORD] * 3
    assert launchers.channels[0].side.why_not_heard(IdMap(uids=UIDS)) == ""


def test_all_are_told_to_stop_at_once_and_why(launchers: Launchers) -> None:
    launchers.channels[1].report(RECORD, 1, KILLED)
    launchers.network.run()
    for number in (0, 2):
        end = launchers.end(number)
        assert end and end.status == 75
        assert "another pod has failed: trainer 1 on pod-2: trainer, exit status 75" in end.message
        assert "killed by SIGKILL" in end.message
    assert launchers.end(1) is None, "it knows its own end"
    assert [launchers.failure(number) for number in range(3)] == [launchers.failure(0)] * 3


def test_a_lost_peer_stops_all_before_the_cause_is_known(launchers: Launchers) -> None:
    launchers.channels[2].report(RECORD, 2, LEFT_ALONE)
    launchers.network.run()
    end = launchers.end(1)
    assert end and end.message == describe_elsewhere(None)
    assert launchers.failure(1) is None
    launchers.channels[1].report(RECORD, 1, BAD_DATA)
    launchers.network.run()
    assert [(launchers.failure(number) or {}).get("trainer_id") for number in range(3)] == [1, 1, 1]


def test_a_pod_that_is_gone_is_named_after_a_while(launchers: Launchers) -> None:
    launchers.network.cut(launchers.clients[1])
    launchers.channels[2].report(RECORD, 2, LEFT_ALONE)
    launchers.network.run()
    launchers.host.judge_and_tell(RECORD)
    launchers.network.run()
    assert [(launchers.failure(number) or {}).get("program") for number in (0, 2)] == ["pod", "pod"]


def test_a_report_that_was_lost_is_made_again_with_the_next_join(launchers: Launchers) -> None:
    launchers.network.cut(launchers.clients[1])
    launchers.channels[1].report(RECORD, 1, KILLED)
    launchers.network.advance(1.0)
    assert launchers.end(0) is None
    launchers.network.mend(launchers.clients[1])
    launchers.network.advance(3.0)
    assert (launchers.failure(0) or {}).get("trainer_id") == 1


def test_a_new_launcher_of_trainer_0_hears_how_the_attempt_before_it_ended(launchers: Launchers) -> None:
    for number in (1, 2):
        launchers.channels[number].report(RECORD, number, LEFT_ALONE)
    launchers.network.run()
    launchers.channels[0] = launchers.make_channel("10.0.0.9")
    launchers.serve("new")
    launchers.network.advance(3.0)
    found = launchers.channels[0].side.judge_late(RECORD)
    assert found and (found["trainer_id"], found["program"]) == (0, "pod")


def test_those_who_come_back_hear_what_they_have_missed(launchers: Launchers) -> None:
    launchers.network.cut(launchers.clients[2])
    launchers.channels[1].report(RECORD, 1, KILLED)
    launchers.channels[0].side.finish(RECORD)
    launchers.network.run()
    assert launchers.end(2) is None and not launchers.channels[2].is_done(RECORD)
    launchers.network.mend(launchers.clients[2])
    launchers.network.advance(3.0)
    assert launchers.end(2) and launchers.channels[2].is_done(RECORD)


def test_the_loss_of_trainer_0s_launcher_is_named_where_nobody_can_tell(launchers: Launchers) -> None:
    launchers.network.cut(launchers.clients[1])
    launchers.channels[1].report(RECORD, 1, LEFT_ALONE)
    found = launchers.channels[1].wait_for_first_failure(RECORD, 2.0)
    assert found and (found["trainer_id"], found["host"], found["program"]) == (0, "pod-0 on node-0", "pod")


def test_a_later_attempt_without_this_pod_ends_its_own(launchers: Launchers) -> None:
    later = dataclasses.replace(RECORD, attempt=4)
    launchers.channels[0].side.begin(later)
    launchers.network.run()
    end = launchers.end(2)
    assert end and end.message == "attempt 4 has begun without this pod"


def test_a_record_that_cannot_be_read_is_not_followed(launchers: Launchers, capsys: pytest.CaptureFixture[str]) -> None:
    launchers.channels[1].informer.pushed("begin", {"record": json.dumps({"attempt": 4})})
    assert launchers.channels[1].newest == RECORD
    assert "cannot read" in capsys.readouterr().out


def test_a_launcher_that_is_not_there_is_named(launchers: Launchers) -> None:
    launchers.network.cut(launchers.clients[2])
    launchers.network.run()
    ids = IdMap(zip(IPS, range(3), strict=True), uids=UIDS, places={IPS[2]: "pod-2 on node-2"})
    assert (
        launchers.channels[0].side.why_not_heard(ids)
        == f"waiting for the launchers of trainer 2 at 10.0.0.3 (pod-2 on node-2); {WITHOUT_LAUNCHER}"
    )
    assert "trainer 0's launcher at" in launchers.channels[2].side.why_not_heard(ids)


@pytest.mark.parametrize("started", [2, 0], ids=["later", "by a clock that was set back"])
def test_a_second_launcher_of_a_pod_gets_an_error_and_the_first_works_on(launchers: Launchers, started: int) -> None:
    """It took the place of the first one, whose attempts then ended without a cause."""
    first, second = launchers.clients[1], launchers.make_channel(IPS[1])
    launchers.join(1, second, started)
    launchers.network.advance(3.0)
    with pytest.raises(
        ConfigError, match=r"hears another process as the launcher of pod pod-2: .* belongs to its proc"
    ):
        second.join(IPS[0], "a", "job")
    assert first.caller.trouble == "" and launchers.channels[0].side.find_silent(UIDS) == []
    launchers.channels[1].join(IPS[0], "a", "job")


@pytest.mark.parametrize("started", [2, 0], ids=["later", "by a clock that was set back"])
def test_the_launcher_of_a_restarted_container_has_its_place_at_once(launchers: Launchers, started: int) -> None:
    launchers.network.cut(launchers.clients[1])
    again = launchers.make_channel(IPS[1])
    launchers.join(1, again, started)
    again.join(IPS[0], "a", "job")
    assert launchers.channels[0].side.find_silent(UIDS) == [] and again.side.why_not_heard(IdMap()) == ""


def test_a_second_launcher_of_trainer_0s_pod_learns_that_the_port_may_be_its_own_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The advice was only to choose another port, by which two launchers of one pod would train."""
    monkeypatch.setattr(transport, "ControlServer", mock.Mock(side_effect=OSError(errno.EADDRINUSE, "in use")))
    channel = ControlChannel(LauncherConfig.from_env(pod_environment(POD_NAME="pod-0")))
    with pytest.raises(PortInUseError, match="end it if it is a launcher of pod pod-0, or set CONF_PADDLE_CONTROL_PO"):
        channel.serve("c", "job")


def test_a_launcher_that_a_program_of_the_pods_launcher_starts_gets_an_error() -> None:
    """In a job of one pod, where launchers do not connect, both wrote the same output."""
    config = LauncherConfig.from_env(pod_environment(CONF_PADDLE_GRADIENT_NUM="1"))
    environ = attempt_environ(config, RECORD, {})
    check_place(config, environ)  # a launcher after the end of this one, in this process
    child = environ | {LAUNCHER: environ[LAUNCHER].replace(name_process(), name_process(os.getppid()))}
    with pytest.raises(ConfigError, match=f"is process {os.getppid()}, and one of its programs has started this one"):
        check_place(config, child)
    check_place(dataclasses.replace(config, pod_name="another-pod"), child)


def test_a_job_of_one_pod_opens_no_port() -> None:
    channel = ControlChannel(LauncherConfig.from_env(pod_environment(CONF_PADDLE_GRADIENT_NUM="1")))
    channel.serve("a", "job")
    channel.join("10.0.0.1", "a", "job")
    channel.side.begin(RECORD)
    channel.report(RECORD, 0, KILLED)
    assert (channel._transport, channel.wait_for_first_failure(RECORD, 5.0)) == (None, None)


PORTS: dict[str, tuple[dict[str, str], int]] = {
    "behind the pserver's last": ({}, 7168),
    "as it is set": ({"CONF_PADDLE_CONTROL_PORT": "9999"}, 9999),
    "behind those of the probes": ({"CONF_PADDLE_METRICS_PORT": "7168"}, 7171),
    "before the pserver's first at the end of all ports": ({"CONF_PADDLE_PORT": "65532"}, 65531),
}


@pytest.mark.parametrize(("changed", "port"), PORTS.values(), ids=PORTS)
def test_the_port_of_trainer_0s_launcher(changed: dict[str, str], port: int) -> None:
    ports = {"CONF_PADDLE_PORTS_NUM": "2", "CONF_PADDLE_PORTS_NUM_SPARSE": "2"}
    assert LauncherConfig.from_env(pod_environment(**ports, **changed)).control_port == port


def test_what_failed_first_is_known_also_when_the_next_attempt_has_begun(launchers: Launchers) -> None:
    """A pod that takes long to stop its programs hears of both at once."""
    launchers.channels[1].report(RECORD, 1, KILLED)
    launchers.network.run()
    launchers.channels[0].side.begin(dataclasses.replace(RECORD, attempt=4))
    launchers.network.run()
    assert (launchers.failure(2) or {}).get("trainer_id") == 1
    written = RECORD.ended_by(error(1, KILLED))
    late = launchers.make_channel(IPS[2])
    late.informer.begin(dataclasses.replace(written, attempt=4))
    assert late.informer.view.failure_in(RECORD) == written.failure
