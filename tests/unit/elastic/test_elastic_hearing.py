"""A driver that hears nobody is cut off itself: found by trials of chaos, in which it gave all of its workers up."""

from __future__ import annotations

import socket
import threading
import time
from unittest import mock

import pytest
from scripted_workers import LIMIT_S, ScriptedJob, ScriptedProcess
from waiting import until

from paddle_base.runtime.errors import ConfigError, LostPeerError, PeerUnreachableError
from paddle_cluster.elastic.agent.client import AgentClient
from paddle_cluster.elastic.agent.hosts import AgentHosts, AgentPolicy
from paddle_cluster.elastic.agent.protocol import AgentState
from paddle_cluster.elastic.discovery import FixedHosts
from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.membership.members import GAP_S, MOST_TIMES, Hearing, MemberTable
from paddle_cluster.elastic.membership.results import WorkerEvents, WorkerExit
from paddle_cluster.elastic.process.membership import HEARTBEAT_S
from paddle_cluster.elastic.registration import DONE_S, HeartbeatWatch


def make_hearing() -> tuple[Hearing, float]:
    """A driver that has heard somebody, and when that was."""
    hearing, now = Hearing(60.0), time.monotonic() + 1
    hearing.note(now)
    return hearing, now


def test_silence_counts_while_others_are_heard() -> None:
    hearing, now = make_hearing()
    for second in range(1, 12):
        hearing.note(now + second)
    assert hearing.measure_silence(now, now + 12) == pytest.approx(11)


def test_silence_counts_also_when_others_are_heard_seldom() -> None:
    """A frozen agent makes each look of the discovery take a second more, and nobody else may be asked between them."""
    hearing, now = make_hearing()
    assert hearing.measure_silence(now, now + 1) == 0
    for second in (2, 4, 6, 8):
        hearing.note(now + second)
    assert hearing.measure_silence(now, now + 8) == pytest.approx(8)


def test_a_frozen_worker_is_ended_at_the_time_that_the_page_gives() -> None:
    """With heartbeats each 2 s, of which each counted as 1 s, it was ended after 25 s in place of 10, and after 60."""
    assert GAP_S > HEARTBEAT_S
    (hearing, now), members = make_hearing(), MemberTable()
    a, b = (members.begin((host, 0), "", 1, []) for host in "ab")
    reports = mock.Mock(size=lambda: 2, get_recorded_slots=list)
    watch = HeartbeatWatch(members, 30.0, threading.Event(), hearing, reports)
    ended = {}
    for waits in (False, True):
        b.heard, reports.get_recorded_slots = now, lambda waits=waits: [a.slot] if waits else []
        for second in range(100):
            if second % int(HEARTBEAT_S) == 0:
                a.heard = now + second + 0.05
                hearing.note(a.heard)
            watch.check(now + second + 0.1)
            if not b.is_live:
                ended[waits] = second
                break
        b.ends[-1].clear()
        now += 200
        hearing.note(now)
    assert 30 <= ended[False] <= 32
    assert 10 <= ended[True] <= 12
    assert a.is_live


def test_the_silence_is_the_same_after_a_day_of_heartbeats() -> None:
    """Of the times of heartbeats only the newest are kept, and of their sums as well."""
    hearing, now = make_hearing()
    last = now
    for number in range(MOST_TIMES + 100):
        last = now + 0.5 * number
        hearing.note(last)
    assert hearing.measure_silence(last - 10, last + 1) == pytest.approx(10)


def test_the_silence_of_all_counts_against_nobody() -> None:
    hearing, now = make_hearing()
    hearing.note(now + 0.4)
    assert hearing.measure_silence(now, now + 30) == pytest.approx(0.4)
    hearing.note(now + 31)  # one of two is heard again; the other one has its time from now on
    hearing.note(now + 32)
    assert hearing.measure_silence(now + 0.4, now + 32) == pytest.approx(2)


def test_a_worker_that_speaks_seldom_has_its_time_when_the_driver_hears_again() -> None:
    """Its agent was heard after it, and the worker was ended as soon as another one was heard."""
    hearing, now = make_hearing()
    hearing.note(now + 1)
    hearing.note(now + 30)
    assert hearing.measure_silence(now - 0.5, now + 30) == pytest.approx(2.5, abs=0.1)


def test_the_silence_of_all_counts_when_it_is_too_long() -> None:
    hearing, now = make_hearing()
    assert hearing.measure_silence(now - 1, now + 61) == pytest.approx(62)


def test_what_is_remembered_is_bounded() -> None:
    hearing, now = make_hearing()
    for number in range(2 * MOST_TIMES):
        hearing.note(now + number)
    assert len(hearing._times) <= MOST_TIMES
    assert hearing.measure_silence(now, now + 2 * MOST_TIMES) >= MOST_TIMES / 2 - 1


def test_a_driver_that_is_cut_off_ends_no_worker() -> None:
    (hearing, now), members = make_hearing(), MemberTable()
    workers = [members.begin((host, 0), "", 1, []) for host in "ab"]
    watch = HeartbeatWatch(members, 10.0, threading.Event(), hearing, mock.Mock(get_recorded_slots=list))
    for worker in workers:
        worker.heard = now
    watch.check(now + 40)
    assert all(worker.is_live for worker in workers)
    for second in range(40, 52):
        hearing.note(now + second)
    workers[0].heard = now + 51
    watch.check(now + 52)
    assert [worker.is_live for worker in workers] == [True, False]


def test_a_worker_that_has_finished_its_work_may_take_long_to_end() -> None:
    """It was killed while Python took torch apart, which counted as a failure after all work was done."""
    (hearing, now), members = make_hearing(), MemberTable()
    workers = [members.begin((host, 0), "", 1, []) for host in "ab"]
    watch = HeartbeatWatch(members, 5.0, threading.Event(), hearing, mock.Mock(get_recorded_slots=list))
    for worker in workers:
        worker.heard = now
    workers[0].is_done = True
    late = 2 * round(DONE_S)
    for second in range(late):
        hearing.note(now + second)
    watch.check(now + 10)
    assert [worker.is_live for worker in workers] == [True, False]
    watch.check(now + late)
    assert not workers[0].is_live


def test_the_hosts_of_a_driver_that_is_cut_off_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = AgentHosts(FixedHosts({"127.0.0.2": 1, "127.0.0.3": 1}), "s", AgentPolicy(timeout=0.02, is_everywhere=True))
    silent: set[str] = set()

    def read_state(client: AgentClient) -> AgentState:
        if client.address in silent:
            raise PeerUnreachableError("no agent answers")
        client._hearing.note()
        return AgentState(client.address, 1, False)

    monkeypatch.setattr(AgentClient, "read_state", read_state)
    assert len(hosts.find_available_hosts_and_slots()) == 2
    silent |= {"127.0.0.2", "127.0.0.3"}
    for agent in hosts._agents.values():
        agent.heard -= 1  # as if they had been silent for a second
    assert len(hosts.find_available_hosts_and_slots()) == 2
    silent.remove("127.0.0.2")
    until(lambda: list(hosts.find_available_hosts_and_slots()) == ["127.0.0.2"], "the other host to be lost")


def test_a_frozen_agent_is_silent_itself_because_its_machine_takes_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job with all of its workers on one host waited 60 s when the agent was frozen, as if the driver was cut off."""
    monkeypatch.setattr("paddle_cluster.elastic.agent.client.REQUEST_S", 0.05)
    hearing = mock.Mock()
    with socket.create_server(("127.0.0.1", 0)) as frozen:  # takes connections, and never answers
        client = AgentClient("127.0.0.1", frozen.getsockname()[1], "s", hearing)
        with pytest.raises(PeerUnreachableError, match="no agent answers"):
            client.read_state()
        hearing.note.assert_called_once_with()
        client.probe()
    assert hearing.note.call_count == 2
    client.probe()  # nothing listens there any more
    assert hearing.note.call_count == 2


def test_a_machine_is_probed_at_each_look_while_its_agent_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_cluster.elastic.agent.hosts.ANSWER_S", 0.01)
    may_answer, is_probed = threading.Event(), threading.Event()
    monkeypatch.setattr(AgentClient, "read_state", lambda client: may_answer.wait(LIMIT_S))
    monkeypatch.setattr(AgentClient, "probe", lambda client: is_probed.set())
    hosts = AgentHosts(FixedHosts({"127.0.0.2": 1}), "s", AgentPolicy(is_everywhere=True))
    hosts.find_available_hosts_and_slots()
    assert not is_probed.is_set()
    hosts.find_available_hosts_and_slots()
    assert is_probed.wait(LIMIT_S)
    may_answer.set()


def test_a_host_that_the_discovery_does_not_find_is_lost_although_no_other_one_is_heard() -> None:
    inner = FixedHosts({"127.0.0.2": 1, "127.0.0.3": 1})
    hosts = AgentHosts(inner, "s", AgentPolicy(port=9, is_everywhere=True))
    hosts.find_available_hosts_and_slots()
    clients = [agent.client for agent in hosts._agents.values()]
    hearing, now = make_hearing()
    for client in clients:
        client._hearing = hearing
    inner.set({"127.0.0.3": 1})
    hosts.find_available_hosts_and_slots()
    assert [client.measure_silence(now, now + 11) for client in clients] == [pytest.approx(11), 0]
    inner.set({"127.0.0.2": 1, "127.0.0.3": 1})
    hosts.find_available_hosts_and_slots()
    assert [client.measure_silence(now, now + 11) for client in clients] == [0, 0]


class LostJob(ScriptedJob):
    """Each worker that ends with 75 has an agent that is gone, one with 76 a host that a next driver does not find."""

    def create(self, slot: SlotInfo, events: WorkerEvents) -> WorkerExit:
        end = super().create(slot, events)
        if end.exit_code == 76:
            raise LostPeerError("the discovery does not find its host")
        if end.exit_code == 77:
            raise ConfigError("it cannot be started")
        return end._replace(is_known=end.exit_code != 75)


def lose(job: LostJob, process: ScriptedProcess, how: int, is_done: bool) -> None:
    if is_done:
        job.driver.record_done(*process.place, process.incarnation)
    process.commands.put(how)


@pytest.mark.parametrize(
    ("how", "is_done", "code"), [(75, True, 0), (75, False, 75), (76, True, 0), (76, False, 75), (77, False, 1)]
)
def test_a_worker_that_is_done_has_succeeded_whatever_becomes_of_its_agent(how: int, is_done: bool, code: int) -> None:
    """Found by a trial of chaos: an agent that froze at the end of a job failed it."""
    job = LostJob({"a": 1, "b": 1})
    a, b = job.start(2)
    lose(job, b, how, is_done)
    job.succeed(a)
    assert job.finish() == {"a[0]": 0, "b[0]": code}


def test_a_silent_worker_that_all_others_wait_for_is_ended_after_a_third_of_the_time() -> None:
    """A trial of chaos waited for the whole of --heartbeat-timeout, 30 s, when a worker was frozen."""
    job = ScriptedJob({"a": 1, "b": 1}, heartbeat_timeout=3000.0)
    a, b = job.start(2)
    for one in (a, b):
        job.driver.record_heartbeat(*one.place, one.incarnation, 1)
    watch = job.driver._heartbeats
    watch.check(time.monotonic() + 1500)
    assert not b.is_told_to_end, "it may have done so much work without a word while nobody waits"
    asked = job.ask(a)
    job.wait_until(lambda: len(job.recorded()) == 1)
    watch.check(time.monotonic() + 900)
    assert not b.is_told_to_end
    watch.check(time.monotonic() + 1500)
    assert b.is_told_to_end
    assert not a.is_told_to_end
    assert asked.result(LIMIT_S)[1] == 2
    job.end()


def test_a_rank_0_that_does_not_answer_hides_no_change_of_the_hosts() -> None:
    """Its host was lost: the discovery waited 5 s for it, at each change."""
    job = ScriptedJob({"a": 1})
    job.start(1)
    may_answer = threading.Event()
    client = mock.Mock(notify_hosts_updated=mock.Mock(side_effect=lambda *_: may_answer.wait(LIMIT_S)))
    with mock.patch.object(job.driver, "get_worker_client", return_value=client):
        for hosts in ({"a": 1, "b": 1}, {"a": 1, "c": 1}):
            job.discovery.set(hosts)
            job.wait_for_hosts(lambda found, wanted=hosts: found == set(wanted))
    assert client.notify_hosts_updated.call_count == 2
    may_answer.set()
    job.end()
