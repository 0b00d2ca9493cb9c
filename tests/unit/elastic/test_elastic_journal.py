"""What a driver keeps in the registry, and what it takes of it."""

from __future__ import annotations

import json
import queue
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from each import each
from scripted_workers import LIMIT_S, ScriptedJob

from paddle_base.registry.directory import DirectoryRegistry
from paddle_base.registry.interface import check_value
from paddle_base.runtime.errors import DamagedError, LeaseLostError, PaddleError, VolumeError
from paddle_cluster.elastic.errors import HostsUpdatedInterrupt
from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.membership.journal import STATE, DriverJournal, DriverRecord, MemberRecord, read_record
from paddle_cluster.elastic.state import State
from paddle_cluster.elastic.worker import HostUpdateResult

MEMBERS = (MemberRecord("a", 1, 0, "i1", "uid", 1, False), MemberRecord("a", 0, 1, "i2", "", 3, True))
RECORD = DriverRecord(3, 2, 7000, MEMBERS, ("b",))
NEWCOMERS = (MemberRecord("c", 0, 2, "i3", "", 4, False, False, True),)


def open_journal(directory: Path) -> DriverJournal:
    return DriverJournal(DirectoryRegistry(directory, 0.5), lambda _: None)


def begin(directory: Path, hosts: dict[str, int], **more: Any) -> tuple[ScriptedJob, DriverJournal]:
    """A job whose driver has a journal."""
    journal = open_journal(directory)
    journal.lead()
    job = ScriptedJob(hosts, journal=journal, **more)
    job.driver.port = 7000
    return job, journal


def take_over(directory: Path, hosts: dict[str, int], **more: Any) -> tuple[ScriptedJob, DriverJournal, DriverRecord]:
    """The next driver of a job, with the record from which it goes on."""
    journal = open_journal(directory)
    record = journal.lead()
    assert record is not None
    job = ScriptedJob(hosts, journal=journal, **more)
    job.driver.port = record.port
    job.driver.adopt(record, job.create)
    return job, journal, record


def test_a_record_is_read_back() -> None:
    assert read_record(RECORD.text) == RECORD
    record = RECORD._replace(newcomers=NEWCOMERS)
    assert read_record(record.text) == record


def test_the_record_of_the_largest_job_is_a_value_of_the_registry() -> None:
    """A job of more than 800 workers ended with "a bug" when its driver wrote the first record."""
    for count, name, uid in ((4096, "paddle-worker.some-namespace.svc.cluster.local-", "0" * 36), (18_000, "", "")):
        members = tuple(MemberRecord(f"{name}{n}", 0, n, "1" * 16, uid, 1, False, True) for n in range(count))
        record = DriverRecord(1, 0, 7000, members, ())
        check_value(STATE, record.text)
        assert read_record(record.text) == record


@each(
    "text",
    [
        "",
        "[]",
        "{}",
        RECORD._replace(port=0).text,
        RECORD._replace(generation=-1).text,
        RECORD._replace(members=RECORD.members[:1] * 2).text,
        RECORD._replace(members=RECORD.members[1:]).text,
        RECORD._replace(newcomers=NEWCOMERS[:1] * 2).text,
        RECORD._replace(members=NEWCOMERS, newcomers=RECORD.members).text,
        RECORD._replace(members=()).text,
        RECORD.text.replace("[[", "[[1,"),
        RECORD.text.replace('"i1"', "1"),
        RECORD.text.replace('["b"]', '"b"'),
    ],
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(DamagedError, match=STATE):
        read_record(text)


def test_a_driver_writes_what_it_decides_before_a_worker_begins_and_another_goes_on(tmp_path: Path) -> None:
    lost: list[PaddleError] = []
    journal = DriverJournal(DirectoryRegistry(tmp_path, 0.5), lost.append)
    assert journal.lead() is None
    job = ScriptedJob({"a": 2, "b": 1}, failures=1, journal=journal)
    job.driver.port = 7000
    a0, a1, b = job.start(3)
    b.commands.put(1)
    answers = [job.ask(one) for one in (a0, a1)]
    assert [answer.result(LIMIT_S)[1] for answer in answers] == [2, 2]
    job.driver.record_done(*a1.place, a1.incarnation)
    journal.close()
    job.end()

    second = DriverJournal(DirectoryRegistry(tmp_path, 0.5), lost.append)
    record = second.lead()
    assert record is not None
    assert (record.generation, record.resets, record.port, record.blacklist) == (2, 1, 7000, ("b",))
    assert [(one.name, one.rank, one.is_done) for one in record.members] == [
        (a0.incarnation, 0, False),
        (a1.incarnation, 1, True),
    ]
    again = ScriptedJob({"a": 2, "b": 1}, failures=1, journal=second)
    again.driver.port = record.port
    again.driver.adopt(record, again.create)
    c0, c1 = again.wait_for(2)
    assert [one.incarnation for one in (c0, c1)] == [a0.incarnation, a1.incarnation]
    assert c1.slot == SlotInfo("a", 1, 1, 0, 2, 2, 1)
    assert again.driver._host_manager.is_blacklisted("b")
    c1.commands.put(0)  # it has said to the first driver that its work is done
    again.succeed(c0)
    assert again.finish() == {"a[0]": 0, "a[1]": 0}
    second.save(None)
    assert DirectoryRegistry(tmp_path, 0.5).read(STATE)[STATE].value == ""
    second.close()
    assert lost == []


def test_a_second_driver_waits_until_the_first_is_gone(tmp_path: Path) -> None:
    first, second = open_journal(tmp_path), open_journal(tmp_path)
    first.lead()
    first.save(RECORD)
    found: list[DriverRecord | None] = []
    waiting = threading.Thread(target=lambda: found.append(second.lead()))
    waiting.start()
    assert found == []
    first.close()
    waiting.join(LIMIT_S)
    assert found == [RECORD]
    second.close()


def test_a_driver_that_comes_back_too_late_ends_before_it_decides(tmp_path: Path) -> None:
    """It had been frozen; the reports that had queued up made it decide, fail, and end the workers of the next one."""
    lost: list[PaddleError] = []
    journal = DriverJournal(DirectoryRegistry(tmp_path, 60.0), lost.append)
    journal.lead()
    journal.save(RECORD)
    (lead,) = tmp_path.rglob("elastic.lead@*")
    lead.unlink()
    with pytest.raises(LeaseLostError):
        journal.save(RECORD)
    assert [type(error) for error in lost] == [LeaseLostError]
    journal.close()


def test_a_driver_that_cannot_write_ends_and_leaves_its_workers_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[PaddleError] = []
    journal = DriverJournal(DirectoryRegistry(tmp_path, 60.0), lost.append)
    journal.lead()
    full = VolumeError("no space left")
    monkeypatch.setattr(journal._claim, "put", mock.Mock(side_effect=full))
    with pytest.raises(VolumeError):
        journal.save(RECORD)
    assert lost == [full]
    with pytest.raises(VolumeError):
        journal.save(None)  # the job is over, and its workers with it
    assert lost == [full]
    journal.close()


def test_a_driver_that_goes_on_misses_a_worker_that_the_first_one_has_heard(tmp_path: Path) -> None:
    """A worker froze when the driver was killed: the next one left it alone, as if it had never said anything."""
    job, journal = begin(tmp_path, {"a": 2})
    _, second = job.start(2)
    job.driver.record_heartbeat(*second.place, second.incarnation, 1)
    journal.close()
    job.end()

    again, next_journal, record = take_over(tmp_path, {"a": 2}, heartbeat_timeout=3600.0)
    assert [one.has_spoken for one in record.members] == [False, True]
    silent, speaking = again.wait_for(2)
    again.driver._heartbeats.check(time.monotonic() + 3601)
    assert (silent.is_told_to_end, speaking.is_told_to_end) == (False, True)
    again.end()
    next_journal.close()


def test_a_driver_that_takes_over_sends_notices_to_a_new_rank_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knew the addresses of the old rank 0 only: after the loss of rank 0, a host that came back stayed unused."""
    job, journal = begin(tmp_path, {"a": 1, "b": 1})
    job.start(2)
    journal.close()
    job.end()

    accepts, told = [False, True], queue.Queue[tuple[list[tuple[str, int]], int]]()

    class Client:
        def __init__(self, addresses: list[tuple[str, int]], _: str) -> None:
            self.addresses = addresses

        def notify_hosts_updated(self, _: float, result: int) -> bool:
            is_accepted = accepts.pop(0)
            told.put((self.addresses, result))
            return is_accepted

    monkeypatch.setattr("paddle_cluster.elastic.worker_reports.WorkerNotificationClient", Client)
    monkeypatch.setattr("paddle_cluster.elastic.driver.DISCOVER_HOSTS_FREQUENCY_SECS", 0.01)
    again, next_journal, _ = take_over(tmp_path, {"b": 1})
    a, b = again.wait_for(2)
    a.commands.put(75)
    slot, generation = again.ask(b).result(LIMIT_S) or (None, 0)
    assert slot is not None
    assert (slot.rank, slot.size, generation) == (0, 1, 2)

    def beat() -> None:
        again.driver.record_heartbeat(*b.place, b.incarnation, 2, [("127.0.0.1", 1)])

    beat()
    again.discovery.set({"a": 1, "b": 1})
    expected = ([("127.0.0.1", 1)], HostUpdateResult.added)
    assert told.get(timeout=LIMIT_S) == expected
    threads = [one for one in threading.enumerate() if one.name == "notice"]
    for one in threads:
        one.join(LIMIT_S)
    beat()  # the worker has not accepted the first notice
    assert told.get(timeout=LIMIT_S) == expected
    beat()
    assert (accepts, told.empty()) == ([], True)
    again.end()
    next_journal.close()


def test_a_driver_whose_clock_is_behind_tells_of_changes_after_a_takeover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times ordered the notices: workers ignored those of a driver whose clock was behind that of the first one."""
    told = queue.Queue[tuple[float, int]]()
    client = mock.Mock(notify_hosts_updated=lambda number, result: told.put((number, result)))
    monkeypatch.setattr("paddle_cluster.elastic.worker_reports.WorkerNotificationClient", lambda *_: client)
    monkeypatch.setattr("paddle_cluster.elastic.driver.DISCOVER_HOSTS_FREQUENCY_SECS", 0.01)
    state = State(bcast_object=lambda value: value, get_rank=lambda: 0)

    def check_change(job: ScriptedJob, hosts: dict[str, int]) -> None:
        for one in job.wait_for(1):
            job.driver.register_worker_addresses(*one.place, one.incarnation, [("127.0.0.1", 1)])
        job.discovery.set(hosts)
        state.on_hosts_updated(*told.get(timeout=LIMIT_S))
        with pytest.raises(HostsUpdatedInterrupt):
            state.check_host_updates()
        state.check_host_updates()  # each change counts once

    job, journal = begin(tmp_path, {"a": 1})
    job.start(1)
    check_change(job, {"a": 1, "b": 1})
    journal.close()
    job.end()

    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 3600)
    again, next_journal, _ = take_over(tmp_path, {"a": 1})
    known = again.driver.notices.base
    check_change(again, {"a": 1, "b": 1})
    assert again.driver.notices.find_after(known) is not None, "a trainer asks for what follows the last revision"
    again.end()
    next_journal.close()


def test_a_record_of_a_driver_that_did_not_know_who_has_spoken_is_read() -> None:
    fields = json.loads(RECORD.text)
    del fields["revision"], fields["newcomers"]
    fields["members"] = [one[:-2] for one in fields["members"]]
    assert read_record(json.dumps(fields)) == RECORD


def test_the_next_driver_awaits_the_newcomers_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver ends while a new process starts: the process must not run twice, and not count as a worker."""
    monkeypatch.setattr("paddle_cluster.elastic.driver.DISCOVER_HOSTS_FREQUENCY_SECS", 0.01)
    job, journal = begin(tmp_path, {"a": 1}, waits=False)
    (a,) = job.start(1)
    job.discovery.set({"a": 1, "b": 1})
    b = job.wait_for(2)[1]
    journal.close()
    job.end()

    again, next_journal, record = take_over(tmp_path, {"a": 1, "b": 1}, waits=False)
    assert [(one.name, one.rank) for one in record.newcomers] == [(b.incarnation, 1)]
    first, new = again.wait_for(2)
    assert [(one.incarnation, one.slot.rank, one.slot.size) for one in (first, new)] == [
        (a.incarnation, 0, 1),
        (b.incarnation, 1, 2),
    ]
    assert again.driver.world_size() == 1
    place = again.ask_first(new)
    again.wait_for_notice(record.revision)
    assert again.ask(first).result(LIMIT_S) == (SlotInfo("a", 0, 0, 0, 2, 1, 2), 2)
    assert place.result(LIMIT_S) == (SlotInfo("b", 1, 0, 1, 2, 1, 2), 2)
    assert len(again.processes) == 2
    again.end()
    next_journal.close()


def test_a_newcomer_with_a_place_still_asks_for_it_after_a_takeover(tmp_path: Path) -> None:
    job, journal = begin(tmp_path, {"a": 1}, waits=False)
    (a,) = job.start(1)
    job.discovery.set({"a": 1, "b": 1})
    b = job.wait_for(2)[1]
    place = job.ask_first(b)
    job.wait_for_notice(0)
    job.ask(a).result(LIMIT_S)
    assert place.result(LIMIT_S) == (SlotInfo("b", 1, 0, 1, 2, 1, 2), 2)
    journal.close()
    job.end()

    again, next_journal, record = take_over(tmp_path, {"a": 1, "b": 1}, waits=False)
    assert (len(record.members), record.newcomers) == (2, ())
    assert again.driver.is_newcomer("b", 0, b.incarnation)
    assert again.ask_first(again.wait_for(2)[1]).result(LIMIT_S) == (SlotInfo("b", 1, 0, 1, 2, 1, 2), 2)
    again.end()
    next_journal.close()


def test_a_replacement_is_no_further_reset_after_a_takeover(tmp_path: Path) -> None:
    job, journal = begin(tmp_path, {"a": 1, "b": 1}, waits=False, failures=3)
    a, b = job.start(2)
    b.commands.put(1)
    job.ask(a).result(LIMIT_S)
    new = job.wait_for(3)[2]
    journal.close()
    job.end()

    again, next_journal, record = take_over(tmp_path, {"a": 1, "b": 1}, waits=False, reset_limit=1)
    assert (record.resets, record.owed) == (1, (("b", 0),))
    first, second = again.wait_for(2)
    assert (first.incarnation, second.incarnation) == (a.incarnation, new.incarnation)
    place = again.ask_first(second)
    again.wait_for_notice(again.driver.notices.base)
    assert again.ask(first, 2).result(LIMIT_S) == (SlotInfo("a", 0, 0, 0, 2, 1, 2), 3)
    assert place.result(LIMIT_S)
    assert again.end() is None
    next_journal.close()
