"""Nobody waits for a newcomer: the workers hear of a new process when it is ready, and work until then.

Horovod's driver stops all workers when a host is added or a slot has failed, until the new process has begun.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from scripted_workers import LIMIT_S, ScriptedJob, ScriptedProcess
from waiting import until

from paddle_cluster.elastic import state, worker_reports
from paddle_cluster.elastic.discovery import FixedHosts, FoundHosts
from paddle_cluster.elastic.hosts import INVALID_SLOT_INFO, SlotInfo
from paddle_cluster.elastic.http_server import RendezvousServer
from paddle_cluster.elastic.membership import newcomers
from paddle_cluster.elastic.process.membership import ProcessPlacement, WorkerMembership, WorkerSettings
from paddle_cluster.elastic.rendezvous import create_rendezvous_handler
from paddle_cluster.elastic.rendezvous_client import RendezvousClient
from paddle_cluster.elastic.worker import HostUpdateResult


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with mock.patch("paddle_cluster.elastic.driver.DISCOVER_HOSTS_FREQUENCY_SECS", 0.01):
        yield


def make_job(hosts: dict[str, int], **more: object) -> ScriptedJob:
    return ScriptedJob(hosts, waits=False, **more)  # type: ignore[arg-type]


def answer(job: ScriptedJob, process: ScriptedProcess, generation: int | None = None) -> tuple[SlotInfo, int]:
    found = job.ask(process, generation).result(LIMIT_S)
    assert found is not None
    return found


def finish(job: ScriptedJob, *processes: ScriptedProcess) -> dict[str, int]:
    for one in processes:
        job.succeed(one)
    return job.finish()


# ----- a host is added -----


def test_a_host_that_is_added_is_news_when_its_worker_is_ready() -> None:
    job = make_job({"a": 1})
    (a,) = job.start(1)
    job.discovery.set({"a": 1, "b": 1})
    b = job.wait_for(2)[1]
    assert (b.place, b.slot.rank, b.slot.size) == (("b", 0), 1, 2)
    assert (job.driver.notices.revision, job.driver.world_size()) == (0, 1)
    place = job.ask_first(b)
    assert job.wait_for_notice(0).result == HostUpdateResult.added
    assert not place.done()
    assert answer(job, a) == (SlotInfo("a", 0, 0, 0, 2, 1, 2), 2)
    expected = (SlotInfo("b", 1, 0, 1, 2, 1, 2), 2)
    assert place.result(LIMIT_S) == expected
    assert answer(job, b, 0) == expected, "an answer that was lost is given again, and counts as no report"
    assert job.recorded() == {}
    assert finish(job, a, b) == {"a[0]": 0, "b[0]": 0}


def test_a_newcomer_that_dies_costs_the_others_nothing() -> None:
    job = make_job({"a": 1}, failures=2)
    (a,) = job.start(1)
    job.discovery.set({"a": 1, "b": 1})
    job.wait_for(2)[1].commands.put(1)
    job.wait_for(3)[2].commands.put(-9)
    until(lambda: job.driver._host_manager.is_blacklisted("b"), "the end of the retries")
    assert (job.driver.notices.revision, job.recorded(), a.is_told_to_end) == (0, {}, False)
    assert answer(job, a)[0].size == 1
    assert len(job.processes) == 3
    assert finish(job, a) == {"a[0]": 0}


def test_a_newcomer_that_dies_after_the_notice_costs_no_more_than_a_sync() -> None:
    job = make_job({"a": 1}, failures=1)
    (a,) = job.start(1)
    job.discovery.set({"a": 1, "b": 1})
    b = job.wait_for(2)[1]
    place = job.ask_first(b)
    job.wait_for_notice(0)
    b.commands.put(1)
    assert place.result(LIMIT_S) == (INVALID_SLOT_INFO, 1)
    assert answer(job, a) == (SlotInfo("a", 0, 0, 0, 1, 1, 1), 2)
    assert finish(job, a) == {"a[0]": 0}


def test_newcomers_of_one_change_join_together() -> None:
    """The first of two was a generation, and the second another one: all workers synced twice."""
    job = make_job({"a": 1})
    (a,) = job.start(1)
    job.discovery.set({"a": 1, "b": 2})
    b0, b1 = job.wait_for(3)[1:]
    first = job.ask_first(b0)
    until(lambda: job.driver._newcomers.list_ready() == {b0.place}, "the first one to be ready")
    assert job.driver.notices.revision == 0
    second = job.ask_first(b1)
    assert job.wait_for_notice(0).revision == 1
    assert answer(job, a)[0].size == 3
    assert [one.result(LIMIT_S)[1] for one in (first, second)] == [2, 2]  # type: ignore[index]
    assert job.driver.notices.revision == 1
    job.end()


def test_a_newcomer_does_not_wait_long_for_one_that_starts_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_reports, "GATHER_S", 0.05)
    job = make_job({"a": 1})
    (a,) = job.start(1)
    job.discovery.set({"a": 1, "b": 1, "c": 1})
    b, c = job.wait_for(3)[1:]
    place = job.ask_first(b)
    job.wait_for_notice(0)
    assert answer(job, a)[0].size == 2
    assert place.result(LIMIT_S) == (SlotInfo("b", 1, 0, 1, 2, 1, 2), 2)
    assert not c.is_told_to_end
    late = job.ask_first(c)
    job.wait_for_notice(1)
    answers = [job.ask(one, 2) for one in (a, b)]
    assert [one.result(LIMIT_S)[0].rank for one in (*answers, late)] == [0, 1, 2]  # type: ignore[index]
    job.end()


def test_a_newcomer_whose_host_goes_before_it_is_ready_is_ended() -> None:
    job = make_job({"a": 1})
    (a,) = job.start(1)
    job.discovery.set({"a": 1, "b": 1, "c": 1})
    b, c = job.wait_for(3)[1:]
    waiting = job.ask_first(c)
    until(lambda: job.driver._newcomers.list_ready() == {c.place}, "c to be ready")
    job.discovery.set({"a": 1})
    until(lambda: b.is_told_to_end and c.is_told_to_end, "the end of both")
    assert waiting.result(LIMIT_S) == (INVALID_SLOT_INFO, 1)
    assert job.driver.notices.revision == 0
    assert not job.driver._host_manager.is_blacklisted("b")
    assert finish(job, a) == {"a[0]": 0}


def test_a_failed_generation_takes_a_ready_newcomer_in() -> None:
    job = make_job({"a": 1, "b": 1}, failures=1)
    a, b = job.start(2)
    job.discovery.set({"a": 1, "b": 1, "c": 1})
    c = job.wait_for(3)[2]
    place = job.ask_first(c)
    job.wait_for_notice(0)
    b.commands.put(1)
    assert answer(job, a) == (SlotInfo("a", 0, 0, 0, 2, 1, 2), 2)
    assert place.result(LIMIT_S) == (SlotInfo("c", 1, 0, 1, 2, 1, 2), 2)
    job.end()


def test_a_mocked_newcomer_that_records_ready_waits_for_its_place() -> None:
    """Programs of Horovod's Python interface have no names of processes."""
    job = make_job({"a": 1})
    (a,) = job.start(1)
    job.discovery.set({"a": 1, "b": 1})
    b = job.wait_for(2)[1]
    ready = job._pool.submit(job.driver.record_ready, *b.place)
    job.wait_for_notice(0)
    assert job.driver.record_ready(*a.place) == 1
    assert ready.result(LIMIT_S) == 2
    assert job.driver.get_slot_info(*b.place).rank == 1
    assert job.recorded() == {}
    job.end()


def test_a_silent_newcomer_shortens_nobody_s_time_limit() -> None:
    job = make_job({"a": 2}, heartbeat_timeout=1000.0)
    first, second = job.start(2)
    job.discovery.set({"a": 2, "b": 1})
    b = job.wait_for(3)[2]
    for one in (second, b):
        job.driver.record_heartbeat(*one.place, one.incarnation, 1)
    job.ask(first)
    job.wait_until(lambda: job.recorded() == {("a", 0): "READY"})
    job.driver._members.find(second.place).heard = time.monotonic() + 500  # type: ignore[union-attr]
    job.driver._heartbeats.check(time.monotonic() + 400)
    assert not b.is_told_to_end
    job.driver._members.find(second.place).heard = time.monotonic() + 1000  # type: ignore[union-attr]
    job.driver._heartbeats.check(time.monotonic() + 1001)
    assert (b.is_told_to_end, second.is_told_to_end) == (True, False)
    again = job.wait_for(4)[3]
    again.commands.put(1)
    until(lambda: job.driver._host_manager.is_blacklisted("b"), "two failures, the silence and the status 1")
    job.end()


# ----- a slot fails -----


def test_the_others_go_on_without_a_failed_worker_and_take_its_replacement_in() -> None:
    job = make_job({"a": 2, "b": 1}, failures=3)
    a0, a1, b = job.start(3)
    a0.commands.put(1)
    answers = [job.ask(a1), job.ask(b)]
    # the local rank of a worker never changes, and the place of rank 0 is free
    assert [one.result(LIMIT_S) for one in answers] == [
        (SlotInfo("a", 0, 1, 0, 2, 2, 1), 2),
        (SlotInfo("b", 1, 0, 0, 2, 1, 1), 2),
    ]
    new = job.wait_for(4)[3]
    assert (new.place, job.driver.notices.find_after(job.driver.notices.base)) == (("a", 0), None)
    place = job.ask_first(new)
    job.wait_for_notice(job.driver.notices.base)
    answers = [job.ask(one, 2) for one in (a1, b)]
    slots = [one.result(LIMIT_S)[0] for one in (*answers, place)]  # type: ignore[index]
    assert [(one.rank, one.local_rank, one.local_size, one.size) for one in slots] == [
        (0, 1, 2, 3),  # rank 0 sends the state, so it is a worker that has it
        (2, 0, 1, 3),
        (1, 0, 2, 3),
    ]
    assert finish(job, a1, b, new) == {"a[0]": 0, "a[1]": 0, "b[0]": 0}


def lose_and_refill(job: ScriptedJob, lost: ScriptedProcess, others: list[ScriptedProcess], number: int) -> None:
    """Let a worker of generation `number` fail, and let its new process join two generations later."""
    count = len(job.processes)
    lost.commands.put(1)
    assert [answer(job, one, number)[0].size for one in others] == [len(others)] * len(others)
    new = job.wait_for(count + 1)[-1]
    place = job.ask_first(new)
    job.wait_for_notice(job.driver.notices.base)
    assert [answer(job, one, number + 1)[0].size for one in others] == [len(others) + 1] * len(others)
    assert place.result(LIMIT_S)


def test_a_failure_and_its_replacement_are_one_reset() -> None:
    """They were two, so with `--reset-limit 1` the replacement ended a job that worked."""
    job = make_job({"a": 1, "b": 1}, reset_limit=1, failures=3)
    a, b = job.start(2)
    lose_and_refill(job, b, [a], 1)
    assert (job.driver._worker_registry.resets, job.driver._newcomers.owed) == (1, frozenset())
    job.discovery.set({"a": 1, "b": 1, "c": 1})
    c = job.wait_for(4)[-1]
    place = job.ask_first(c)
    job.wait_for_notice(job.driver.notices.base)
    new = job.processes[2]
    answers = [job.ask(one, 3) for one in (a, new)]
    assert [one.result(LIMIT_S)[0] for one in (*answers, place)] == [INVALID_SLOT_INFO] * 3  # type: ignore[index]
    assert "--reset-limit" in (job.end() or ""), "a new host is a change of its own"


def test_a_worker_that_leaves_and_its_replacement_are_one_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job({"a": 1, "b": 1}, reset_limit=1)
    a, b = job.start(2)
    assert job.driver.record_leaving(*b.place, b.incarnation)
    answer(job, b)
    answer(job, a)
    monkeypatch.setattr(newcomers, "REFILL_S", 0.0)
    place = job.ask_first(job.wait_for(3)[2])
    job.wait_for_notice(job.driver.notices.base)
    assert answer(job, a, 2)[0].size == 2
    assert place.result(LIMIT_S)
    assert (job.driver._worker_registry.resets, job.end()) == (1, None)


def test_a_replacement_that_dies_after_the_notice_is_no_reset_either() -> None:
    job = make_job({"a": 1, "b": 1}, reset_limit=1, failures=9)
    a, b = job.start(2)
    b.commands.put(1)
    answer(job, a)
    new = job.wait_for(3)[2]
    job.ask_first(new)
    job.wait_for_notice(job.driver.notices.base)
    new.commands.put(1)
    job.wait_for(4)
    assert answer(job, a, 2)[0].size == 1
    assert (job.driver._worker_registry.resets, job.end()) == (1, None)


def test_fewer_than_the_minimum_wait_for_the_new_workers() -> None:
    job = make_job({"a": 1, "b": 1}, least=2, failures=2)
    a, b = job.start(2)
    b.commands.put(1)
    assert answer(job, a) == (SlotInfo("a", 0, 0, 0, 2, 1, 2), 2)
    new = job.wait_for(3)[2]
    assert (new.place, new.generation, new.slot.rank) == (("b", 0), 2, 1)
    assert not job.driver.is_newcomer(*new.place, new.incarnation)
    assert finish(job, a, new) == {"a[0]": 0, "b[0]": 0}


def test_a_newcomer_that_all_wait_for_in_the_end_has_its_place_at_once() -> None:
    job = make_job({"a": 1, "b": 1}, least=2, failures=1)
    a, b = job.start(2)
    job.discovery.set({"a": 1, "b": 1, "c": 1})
    c = job.wait_for(3)[2]
    b.commands.put(1)
    assert answer(job, a)[0].size == 2
    assert answer(job, c, 0) == (SlotInfo("c", 1, 0, 1, 2, 1, 2), 2)
    assert len(job.processes) == 3
    assert finish(job, a, c) == {"a[0]": 0, "c[0]": 0}


def test_failing_newcomers_end_no_worker_of_their_host() -> None:
    """A blacklist ends all workers of its host; those that work have not failed."""
    job = make_job({"a": 2}, failures=2)
    a0, a1 = job.start(2)
    a1.commands.put(1)
    assert answer(job, a0)[0].size == 1
    job.wait_for(3)[2].commands.put(1)
    until(lambda: job.driver._newcomers._spent == {"a": ""}, "the end of the retries")
    assert not a0.is_told_to_end
    assert not job.driver._host_manager.is_blacklisted("a")
    assert answer(job, a0, 2) == (SlotInfo("a", 0, 0, 0, 1, 1, 1), 3)
    assert len(job.processes) == 3
    assert finish(job, a0) == {"a[0]": 0}


def test_a_replaced_pod_has_a_clean_record_as_a_newcomer() -> None:
    discovery = FixedHosts(FoundHosts({"a": 1, "pod": 1}, {"pod": "uid-1"}))
    job = make_job({}, discovery=discovery, failures=1)
    a, old = job.start(2)
    old.commands.put(1)
    assert answer(job, a)[0].size == 1
    discovery.set(FoundHosts({"a": 1, "pod": 1}, {"pod": "uid-2"}))
    new = job.wait_for(3)[2]
    place = job.ask_first(new)
    job.wait_for_notice(job.driver.notices.base)
    assert answer(job, a, 2)[0].size == 2
    assert place.result(LIMIT_S) == (SlotInfo("pod", 1, 0, 1, 2, 1, 2), 3)
    job.end()


# ----- SIGTERM of a worker -----


def test_a_worker_that_leaves_is_no_failure_and_the_others_go_on() -> None:
    job = make_job({"a": 1, "b": 1}, failures=1)
    a, b = job.start(2)
    assert job.driver.record_leaving(*b.place, b.incarnation)
    assert job.driver.record_leaving(*b.place, b.incarnation), "a repeated request"
    assert job.wait_for_notice(0) == (1, HostUpdateResult.removed)
    assert answer(job, b) == (INVALID_SLOT_INFO, 1), "at once, because its machine may be about to go"
    b.commands.put(143)
    assert answer(job, a) == (SlotInfo("a", 0, 0, 0, 1, 1, 1), 2)
    assert not job.driver._host_manager.is_blacklisted("b")
    assert job.driver.history.describe()["generations"][0]["failures"] == 0
    assert len(job.processes) == 2, "its machine may be about to go"
    assert finish(job, a) == {"a[0]": 0}


def test_the_end_of_a_worker_that_has_left_is_no_result_when_it_is_handled_after_that_of_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = make_job({"a": 1, "b": 1}, failures=1)
    a, b = job.start(2)
    registry, is_over = job.driver._worker_registry, threading.Event()
    record = registry.record

    def record_late(host: str, *rest: Any) -> int:
        assert host != "b" or is_over.wait(LIMIT_S)
        return record(host, *rest)

    monkeypatch.setattr(registry, "record", record_late)
    assert job.driver.record_leaving(*b.place, b.incarnation)
    assert answer(job, b)[0] == INVALID_SLOT_INFO
    b.commands.put(143)
    assert answer(job, a)[1] == 2
    job.succeed(a)
    until(job.driver.finished, "end of the job")
    is_over.set()
    assert job.finish() == {"a[0]": 0}


def test_the_slot_of_a_worker_that_has_left_gets_a_new_one_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job({"a": 1, "b": 1})
    a, b = job.start(2)
    assert job.driver.record_leaving(*b.place, b.incarnation)
    assert answer(job, b)[0] == INVALID_SLOT_INFO
    assert answer(job, a)[0].size == 1
    monkeypatch.setattr(newcomers, "REFILL_S", 0.0)
    assert job.wait_for(3)[2].place == ("b", 0)
    job.end()


def test_a_host_that_comes_back_after_its_worker_has_left_gets_a_new_one() -> None:
    """The guards of a killed agent end the workers by SIGTERM, and the next agent has their slots."""
    discovery = FixedHosts(FoundHosts({"a": 1, "pod": 1}, {"pod": "uid-1"}))
    job = make_job({}, discovery=discovery)
    a, old = job.start(2)
    assert job.driver.record_leaving(*old.place, old.incarnation)
    assert answer(job, old)[0] == INVALID_SLOT_INFO
    assert answer(job, a)[0].size == 1
    discovery.set(FoundHosts({"a": 1, "pod": 1}, {"pod": "uid-2"}))
    assert job.wait_for(3)[2].place == ("pod", 0)
    job.end()


def test_a_newcomer_that_gets_sigterm_is_no_failure_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host was blacklisted, though a preempted machine is gone anyway and the next one may have its name."""
    job = make_job({"a": 1}, failures=1)
    (a,) = job.start(1)
    job.discovery.set({"a": 1, "b": 1})
    b = job.wait_for(2)[1]
    place = job.ask_first(b)
    job.wait_for_notice(0)
    assert not job.driver.record_leaving(*b.place, b.incarnation), "it has nothing to commit"
    b.commands.put(-signal.SIGTERM)
    assert place.result(LIMIT_S) == (INVALID_SLOT_INFO, 1)
    assert not job.driver._host_manager.is_blacklisted("b")
    assert answer(job, a)[0].size == 1
    assert len(job.processes) == 2, "its machine may be about to go"
    monkeypatch.setattr(newcomers, "REFILL_S", 0.0)
    assert job.wait_for(3)[2].place == ("b", 0)
    job.end()


def test_rank_0_may_leave() -> None:
    job = make_job({"a": 1, "b": 1})
    a, b = job.start(2)
    assert job.driver.record_leaving(*a.place, a.incarnation)
    assert answer(job, a)[0] == INVALID_SLOT_INFO
    assert answer(job, b) == (SlotInfo("b", 0, 0, 0, 1, 1, 1), 2)
    job.end()


@pytest.mark.parametrize("waits", [False, True])
def test_a_worker_that_is_killed_before_it_has_left_is_no_failure_either(*, waits: bool) -> None:
    job = ScriptedJob({"a": 1, "b": 1}, failures=1, waits=waits)
    a, b = job.start(2)
    assert job.driver.record_leaving(*b.place, b.incarnation)
    b.commands.put(-9)
    job.wait_until(lambda: job.recorded() == {("b", 0): "READY"})
    job.rendezvous.put.assert_called_once()  # nobody waits for its connection
    assert answer(job, a)[0].size == (2 if waits else 1)
    assert not job.driver._host_manager.is_blacklisted("b")
    job.end()


def test_a_worker_below_the_minimum_that_leaves_is_replaced() -> None:
    job = make_job({"a": 1, "b": 1}, least=2)
    a, b = job.start(2)
    assert job.driver.record_leaving(*b.place, b.incarnation)
    assert job.wait_for_notice(0).result == HostUpdateResult.removed
    assert answer(job, b)[0] == INVALID_SLOT_INFO
    assert answer(job, a)[0].size == 2
    assert job.wait_for(3)[2].place == ("b", 0)
    job.end()


def test_a_worker_that_the_driver_ends_does_not_wait_for_a_commit() -> None:
    """SIGTERM of the driver is an end; the worker would go on until its SIGKILL."""
    job = make_job({"a": 1, "b": 1}, failures=1)
    a, b = job.start(2)
    b.is_stubborn = True
    job.driver._host_manager.blacklist("b")
    assert not job.driver.record_leaving(*b.place, b.incarnation)
    assert not job.driver.record_leaving(*a.place, "an earlier process")
    job.end()
    assert not job.driver.record_leaving(*a.place, a.incarnation)


# ----- a script waits for a notice -----


def test_a_script_that_asks_for_notices_waits_while_new_workers_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Horovod's own elastic tests wait 3 s for the notice of an added host; importing torch took longer."""
    job = make_job({"a": 1})
    job.start(1)
    server = RendezvousServer(secret="s")
    port = server.start(create_rendezvous_handler(job.driver), address="127.0.0.1")
    worker = WorkerMembership()
    worker.settings = WorkerSettings("127.0.0.1", port, is_elastic=True)
    worker.client = RendezvousClient("127.0.0.1", port, "s")
    monkeypatch.setattr(state, "WORKER", worker)
    one = state.ObjectState(lambda value: value, lambda: 0)
    try:
        assert one._host_messages.empty(), "no new worker starts"
        job.discovery.set({"a": 1, "b": 1})
        b = job.wait_for(2)[1]
        has_newcomers = worker.has_newcomers

        def ask() -> bool:
            if has_newcomers():
                job.ask_first(b)
                notice = job.wait_for_notice(0)
                one.on_hosts_updated(notice.revision, notice.result)
                return True
            return False

        with mock.patch.object(worker, "has_newcomers", ask):
            assert not one._host_messages.empty()
        worker.placement = ProcessPlacement(rank=1, size=2)
        assert not worker.has_newcomers(), "the notice goes to rank 0 only"
        assert one._host_messages.take_all() == [(1, HostUpdateResult.added)]
    finally:
        worker.client.close()
        server.stop()
        job.end()


def test_a_script_does_not_wait_for_notices_of_a_driver_that_is_gone() -> None:
    worker = WorkerMembership()
    worker.settings = WorkerSettings("127.0.0.1", 1, is_elastic=True)
    worker.client = RendezvousClient("127.0.0.1", 1, "s", timeout=0.1)
    assert not worker.has_newcomers()
