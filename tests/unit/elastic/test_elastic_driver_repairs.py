"""List N of ../shared/spec/elastic.md, section 2, as far as the driver decides it: each pins a defect of Horovod's."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from scripted_workers import LIMIT_S, ScriptedJob
from waiting import until

from paddle_cluster.elastic import discovery as discovery_module
from paddle_cluster.elastic.collectives.joining import LOST
from paddle_cluster.elastic.discovery import FixedHosts, FoundHosts, HostDiscovery
from paddle_cluster.elastic.hosts import INVALID_SLOT_INFO, SlotInfo
from paddle_cluster.elastic.membership.results import JobFailedError, ResultsRecorder, judge
from paddle_cluster.elastic.worker import HostUpdateResult


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with mock.patch("paddle_cluster.elastic.driver.DISCOVER_HOSTS_FREQUENCY_SECS", 0.01):
        yield


def test_n1_a_host_whose_cooldown_ends_while_the_others_wait_has_new_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """G2: survivors were released with the full size, and hung."""
    now = [1000.0]
    job = ScriptedJob({"a": 1, "b": 2}, least=3, failures=1, cooldown_range=[10, 100])
    a, b0, b1 = job.start(3)
    monkeypatch.setattr(discovery_module, "time", mock.Mock(monotonic=lambda: now[0]))
    b0.is_stubborn = b1.is_stubborn = True  # the old processes take their time to end
    answers = [job.ask(a), job.ask(b1)]
    b0.commands.put(1)
    job.wait_for_hosts(lambda hosts: hosts == {"a"})
    assert b1.is_told_to_end
    now[0] += 100
    new = job.wait_for(5)[3:]
    assert [one.place for one in new] == [("b", 0), ("b", 1)]
    assert answers[0].result(LIMIT_S) == (SlotInfo("a", 0, 0, 0, 3, 1, 2), 2)
    assert answers[1].result(LIMIT_S) == (INVALID_SLOT_INFO, 2)
    b1.commands.put(1)
    for one in (a, *new):
        job.succeed(one)
    assert job.finish() == {"a[0]": 0, "b[0]": 0, "b[1]": 0}


def test_n2_a_spare_that_takes_the_place_of_a_lost_host_is_removed_and_added() -> None:
    """G3: the flag was that of the discovery, removed alone, and the newcomer waited for values that nobody sent."""
    job = ScriptedJob({"a": 1, "b": 1, "spare": 1}, least=1, most=2)
    job.start(2)
    job.discovery.set({"a": 1, "spare": 1})
    notice = job.wait_for_notice(0)
    assert notice.result == HostUpdateResult.mixed
    job.end()


def test_a_spare_that_comes_and_goes_is_no_news() -> None:
    job = ScriptedJob({"a": 1}, most=1)
    job.start(1)
    job.discovery.set({"a": 1, "spare": 1})
    job.wait_for_hosts(lambda hosts: "spare" in hosts)
    job.discovery.set({"a": 1})
    job.wait_for_hosts(lambda hosts: "spare" not in hosts)
    job.end()
    assert job.driver.notices.revision == 0


def test_n3_n4_changes_in_the_same_moment_are_two_changes() -> None:
    """G3, G11: time was in whole seconds, and the second change within one was lost."""
    job = ScriptedJob({"a": 1, "b": 1})
    job.start(2)
    job.discovery.set({"a": 1})
    first = job.wait_for_notice(0)
    job.discovery.set({"a": 1, "c": 1})
    second = job.wait_for_notice(1)
    assert (first.result, second.result) == (HostUpdateResult.removed, HostUpdateResult.added)
    assert first.revision < second.revision
    both = job.driver.notices.find_after(0)
    assert both is not None
    assert (both.revision, both.result) == (2, HostUpdateResult.mixed)
    job.end()


def test_n5_rank_0_hears_of_a_change_before_it_listened(monkeypatch: pytest.MonkeyPatch) -> None:
    """G4: the notice was lost."""
    told: list[tuple[object, int]] = []
    client = mock.Mock(notify_hosts_updated=lambda stamp, result: told.append((stamp, result)))
    monkeypatch.setattr("paddle_cluster.elastic.worker_reports.WorkerNotificationClient", lambda *_: client)
    job = ScriptedJob({"a": 2})
    first, second = job.start(2)
    job.discovery.set({"a": 2, "b": 1})
    notice = job.wait_for_notice(0)
    assert told == []
    job.driver.register_worker_addresses(*second.place, second.incarnation, [("127.0.0.1", 1)])
    job.driver.register_worker_addresses(*first.place, "another process", [("127.0.0.1", 1)])
    assert told == []
    job.driver.register_worker_addresses(*first.place, first.incarnation, [("127.0.0.1", 1)])
    assert told == [(notice.revision, HostUpdateResult.added)]
    job.end()


def test_a_change_while_the_next_generation_is_planned_is_not_lost() -> None:
    """The notice was posted before the generation began, which did not know of the change and took it for known."""
    job = ScriptedJob({"a": 1})
    (a,) = job.start(1)
    assign, manager = job.driver._assign, job.driver._host_manager

    def assign_slowly(hosts: Any, survivors: Any) -> Any:
        slots = assign(hosts, survivors)
        if threading.current_thread().name == "decision":
            job.discovery.set({"a": 1, "b": 1})
            until(lambda: "b" in manager.current_hosts.available_hosts, "the host b")
        return slots

    with mock.patch.object(job.driver, "_assign", assign_slowly):
        found = job.ask(a).result(LIMIT_S)
        assert found is not None
        assert found[0].size == 1
        notice = job.wait_for_notice(job.driver.notices.base)
        assert notice.result == HostUpdateResult.added
    job.end()


def test_n6_a_worker_that_asks_twice_counts_once() -> None:
    """G5: one worker with a lost connection opened the barrier of two alone."""
    job = ScriptedJob({"a": 2})
    first, second = job.start(2)
    answers = [job.ask(first), job.ask(first)]
    job.wait_until(lambda: job.recorded() == {("a", 0): "READY"})
    assert not any(answer.done() for answer in answers)
    assert job.driver.query_rank(*first.place, first.incarnation, 1, 0.0) is None
    answers.append(job.ask(second))
    assert [answer.result(LIMIT_S)[1] for answer in answers] == [2, 2, 2]
    # the answer is lost, and the worker asks again: it is told, and not counted for the generation after
    assert job.ask(first, generation=1).result(LIMIT_S) == (SlotInfo("a", 0, 0, 0, 2, 2, 1), 2)
    assert job.recorded() == {}
    job.end()


def test_a_question_that_is_repeated_during_a_decision_is_not_one_for_the_generation_after() -> None:
    """A client asks every 25 s; after a longer decision it counted as ready for the next one, and hung."""
    job = ScriptedJob({"a": 1, "b": 1}, least=2, failures=1)
    a, b = job.start(2)
    b.commands.put(1)
    answers = [job.ask(a)]
    job.wait_until(lambda: job.driver._worker_registry._is_deciding)
    assert job.driver.query_rank(*a.place, a.incarnation, 1, 0.0) is None
    answers.append(job.ask(a))
    job.discovery.set({"a": 1, "c": 1})
    assert [answer.result(LIMIT_S) for answer in answers] == [(SlotInfo("a", 0, 0, 0, 2, 1, 2), 2)] * 2
    assert job.recorded() == {}
    job.end()


def test_n7_the_end_of_an_old_process_is_not_that_of_the_new_one() -> None:
    """G6: a host that was removed and came back was charged with the end of the process before."""
    job = ScriptedJob({"a": 1, "b": 1})
    a, old = job.start(2)
    old.is_stubborn = True
    job.discovery.set({"a": 1})
    job.wait_for_hosts(lambda hosts: hosts == {"a"})
    answers = [job.ask(a), job.ask(old)]
    assert answers[0].result(LIMIT_S) == (SlotInfo("a", 0, 0, 0, 1, 1, 1), 2)
    assert answers[1].result(LIMIT_S) == (INVALID_SLOT_INFO, 2)
    job.discovery.set({"a": 1, "b": 1})
    job.wait_for_hosts(lambda hosts: hosts == {"a", "b"})
    assert job.ask(a, 2).result(LIMIT_S)[1] == 3
    new = job.wait_for(3)[2]
    assert new.place == old.place
    assert new.incarnation != old.incarnation
    old.commands.put(1)
    assert job.ask(old, 3).result(LIMIT_S) == (INVALID_SLOT_INFO, 3)
    job.succeed(a)
    job.succeed(new)
    assert job.finish() == {"a[0]": 0, "b[0]": 0}
    assert not job.driver._host_manager.is_blacklisted("b")


def test_n8_a_pod_that_replaces_one_of_its_name_has_a_new_process() -> None:
    """G8: the host was blacklisted by its name, and its slots counted as those that run."""
    discovery = FixedHosts(FoundHosts({"a": 1, "pod": 1}, {"pod": "uid-1"}))
    job = ScriptedJob({}, discovery=discovery, failures=1)
    a, old = job.start(2)
    old.commands.put(1)
    job.wait_until(lambda: job.recorded() == {("pod", 0): "FAILURE"})
    assert job.ask(a).result(LIMIT_S)[0].size == 1
    discovery.set(FoundHosts({"a": 1, "pod": 1}, {"pod": "uid-2"}))
    job.wait_for_hosts(lambda hosts: hosts == {"a", "pod"})
    assert job.ask(a, 2).result(LIMIT_S)[0].size == 2
    new = job.wait_for(3)[2]
    for one in (a, new):
        job.succeed(one)
    assert job.finish() == {"a[0]": 0, "pod[0]": 0}


def test_n9_exit_0_before_the_work_is_done_is_a_failure() -> None:
    """G7: a crash that ends with 0 was the success of the whole job."""
    job = ScriptedJob({"a": 1, "b": 1})
    a, b = job.start(2)
    b.commands.put(0)
    job.wait_until(lambda: job.recorded() == {("b", 0): "FAILURE"})
    assert job.ask(a).result(LIMIT_S)[1] == 2
    again = job.wait_for(3)[2]
    for one in (a, again):
        job.succeed(one)
    assert job.finish() == {"a[0]": 0, "b[0]": 0}


def test_n10_a_worker_that_says_nothing_any_more_is_ended() -> None:
    """G9: a worker that lived and did nothing blocked the job for ever."""
    job = ScriptedJob({"a": 1, "b": 1}, heartbeat_timeout=1000.0)
    a, b = job.start(2)
    for one in (a, b):
        job.driver.record_heartbeat(*one.place, one.incarnation, 1)
    job.driver.record_heartbeat(*b.place, "another process", 1)
    watch = job.driver._heartbeats
    watch.check(time.monotonic() + 900)
    assert not b.is_told_to_end
    job.driver._members.find(a.place).heard = time.monotonic() + 200
    watch.check(time.monotonic() + 1001)
    assert b.is_told_to_end
    assert not a.is_told_to_end
    assert job.ask(a).result(LIMIT_S)[1] == 2
    again = job.wait_for(3)[2]
    assert again.place == ("b", 0)
    first = job.driver.history.describe()["generations"][0]
    assert (first["first_name"], first["first_silent"]) == ("b[0]", True)
    job.end()


def test_n12_a_slow_discovery_delays_no_decision() -> None:
    """G12: the lock was held while the script ran."""

    class SlowDiscovery(HostDiscovery):
        def __init__(self) -> None:
            self.is_slow, self.waits, self.may_go = False, threading.Event(), threading.Event()

        def find_available_hosts_and_slots(self) -> dict[str, int]:
            if self.is_slow:
                self.waits.set()
                assert self.may_go.wait(LIMIT_S)
            return {"a": 2}

    discovery = SlowDiscovery()
    job = ScriptedJob({}, discovery=discovery)
    first, second = job.start(2)
    discovery.is_slow = True
    assert discovery.waits.wait(LIMIT_S)
    answers = [job.ask(first), job.ask(second)]
    assert [answer.result(LIMIT_S)[1] for answer in answers] == [2, 2]
    discovery.may_go.set()
    job.end()


def test_n13_the_siblings_of_a_slot_that_failed_go_on() -> None:
    """G13: one bad slot cost its host. Its second failure does."""
    job = ScriptedJob({"a": 2, "b": 1}, failures=2)
    a0, a1, b = job.start(3)
    a0.commands.put(1)
    answers = [job.ask(a1), job.ask(b)]
    ranks = [answer.result(LIMIT_S)[0].rank for answer in answers]
    new = job.wait_for(4)[3]
    assert new.place == ("a", 0)
    assert (ranks, new.slot.rank) == ([0, 2], 1)  # rank 0 gives its state to the others: it is one that has it
    assert not a1.is_told_to_end
    answers = [job.ask(a1, 2), job.ask(b, 2)]
    new.commands.put(1)
    assert answers[1].result(LIMIT_S) == (SlotInfo("b", 0, 0, 0, 1, 1, 1), 3)
    assert answers[0].result(LIMIT_S)[0] == INVALID_SLOT_INFO
    assert a1.is_told_to_end
    job.succeed(b)
    assert job.finish() == {"b[0]": 0}


def test_n14_a_wait_for_slots_that_is_in_vain_is_reported_as_that() -> None:
    job = ScriptedJob({"a": 1, "b": 1}, least=2, failures=1, timeout=0.1)
    a, b = job.start(2)
    b.commands.put(1)
    assert job.ask(a).result(LIMIT_S)[0] == INVALID_SLOT_INFO
    message = job.end()
    assert message is not None
    assert "waited 0.1 s for 2 slots on at least 1 host, and found 1 slot on 1 host" in message


def test_a_job_that_loses_every_worker_with_the_state_ends() -> None:
    job = ScriptedJob({"a": 1})
    (a,) = job.start(1)
    job.discovery.set({"b": 1})
    job.wait_for_hosts(lambda hosts: hosts == {"b"})
    assert job.ask(a).result(LIMIT_S)[0] == INVALID_SLOT_INFO
    assert "no worker is left that has the state of the job" in (job.end() or "")


def test_a_reset_limit_ends_the_job_with_its_name() -> None:
    job = ScriptedJob({"a": 2}, reset_limit=1)
    first, second = job.start(2)
    answers = [job.ask(one) for one in (first, second)]
    assert answers[0].result(LIMIT_S)[1] == 2
    answers = [job.ask(one, 2) for one in (first, second)]
    assert answers[0].result(LIMIT_S)[0] == INVALID_SLOT_INFO
    assert "--reset-limit=1" in (job.end() or "")


def test_a_worker_that_was_ready_and_died_has_failed() -> None:
    job = ScriptedJob({"a": 1, "b": 1, "c": 1}, failures=1)
    a, b, c = job.start(3)
    job.ask(b)
    job.wait_until(lambda: job.recorded() == {("b", 0): "READY"})
    b.commands.put(1)
    job.wait_until(lambda: job.recorded() == {("b", 0): "FAILURE"})
    answers = [job.ask(a), job.ask(c)]
    assert [answer.result(LIMIT_S)[0].size for answer in answers] == [2, 2]
    job.end()


def test_workers_that_the_driver_ended_after_a_success_do_not_fail_the_job() -> None:
    job = ScriptedJob({"a": 3})
    first, second, third = job.start(3)
    job.ask(second)
    job.ask(third)
    job.succeed(first)
    assert job.finish() == {"a[0]": 0}


@pytest.mark.parametrize(
    ("end", "status"), [(3, 3), (137, 137), (255, 255), (-9, 75)], ids=["exit", "high", "highest", "signal"]
)
def test_a_worker_that_fails_after_another_has_succeeded_fails_the_job(end: int, status: int) -> None:
    """Spec 1.4: the job has succeeded if nobody has failed; it may be tried again after a signal alone."""
    job = ScriptedJob({"a": 3})
    first, second, third = job.start(3)
    job.succeed(first)
    job.ask(third)
    second.commands.put(end)
    assert job.finish() == {"a[0]": 0, "a[1]": end}
    with pytest.raises(JobFailedError, match=r"a\[1\] .* as the first of 1 workers") as caught:
        judge(job.driver.get_results())
    assert caught.value.exit_code == status


def test_a_signal_that_does_not_interrupt_the_wait_for_workers_is_handled() -> None:
    """A driver on a busy machine was deaf to SIGTERM that came as it began to wait: found by a test of signals."""
    results, is_handled, seen = ResultsRecorder(), threading.Event(), []

    def work() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)  # interrupts no call of the main thread
        seen.append(is_handled.wait(LIMIT_S))

    before = signal.signal(signal.SIGUSR1, lambda *_: is_handled.set())
    try:
        thread = threading.Thread(target=work)
        results.expect(thread)
        thread.start()
        results.get_results()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [True]


def test_a_worker_that_cannot_be_started_has_failed() -> None:
    job = ScriptedJob({"a": 1})
    with mock.patch.object(job, "create", side_effect=OSError("no processes left")):
        job.driver.start(1, job.create)
    assert job.finish() == {"a[0]": 1}


def test_a_range_of_hosts_that_is_too_small_at_the_start_is_an_error() -> None:
    job = ScriptedJob({"a": 1}, timeout=0.05)
    with pytest.raises(Exception, match=r"waited 0\.05 s for 2 slots"):
        job.driver.start(2, job.create)
    job.end()


def test_the_driver_tells_the_ranks_of_a_worker_that_has_ended_before_they_have_connected() -> None:
    job = ScriptedJob({"a": 1, "b": 1})
    _, b = job.start(2)
    b.commands.put(3)
    job.wait_until(lambda: job.rendezvous.put.called)
    job.rendezvous.put.assert_called_once_with("group_1", LOST, b"the process of b[0] has ended")
    job.end()
