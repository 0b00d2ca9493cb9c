"""Any order of reports, ends, hosts that come and go, and cooldowns that end: what holds for driver and registry.

- The ranks of a generation are 0 to size - 1, each once, and each slot has one process that counts.
- Rank 0 has the state, whenever a process that has it is a member of the next generation.
- A generation is decided once. When all of its members have reported, nobody of them waits for ever.
- A process that takes no part any more is told so, and its end changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from membership_story import make_record
from scripted_workers import LIMIT_S, ScriptedJob, ScriptedProcess

from paddle_cluster.elastic import discovery as discovery_module
from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.membership_file import describe
from paddle_cluster.elastic.worker import HostUpdateResult

HOSTS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=4)
LEAST, MOST = 2, 5


class DriverStory(RuleBasedStateMachine):
    """A driver whose workers and hosts do what hypothesis draws; all wait for new workers, as in Horovod."""

    waits = True

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.patches = [
            mock.patch("paddle_cluster.elastic.driver.DISCOVER_HOSTS_FREQUENCY_SECS", 0.002),
            mock.patch.object(discovery_module, "time", mock.Mock(monotonic=lambda: self.now)),
        ]
        for one in self.patches:
            one.start()
        self.asked: dict[str, tuple[int, Future[tuple[SlotInfo, int] | None]]] = {}
        self.generation = 1
        self.decided: list[int] = []
        self.first_asked: dict[str, Future[tuple[SlotInfo, int] | None]] = {}  # by newcomer that has asked
        self.placed: dict[str, int] = {}  # by process: the first generation in which it was seen as a member

    @initialize()
    def begin(self) -> None:
        hosts = {"a": 2, "b": 1, "c": 1}
        self.job = ScriptedJob(
            hosts, LEAST, MOST, failures=2, cooldown_range=[10, 40], timeout=LIMIT_S, waits=self.waits
        )
        self.driver, self.registry = self.job.driver, self.job.driver._worker_registry
        decide = self.registry._decide

        def note_decision() -> None:
            self.decided.append(self.registry.last_rendezvous())
            decide()

        self.registry._decide = note_decision  # type: ignore[method-assign]
        self.job.start(4)
        self.placed = {one.incarnation: 1 for one in self.job.processes}
        self.settle()

    # ---- what may happen

    @rule(hosts=HOSTS)
    def change_hosts(self, hosts: dict[str, int]) -> None:
        self.job.discovery.set(hosts)
        manager = self.driver._host_manager
        self.wait(lambda: manager._current.host_slots == hosts or self.driver.finished())
        self.settle()

    @rule()
    def end_cooldowns(self) -> None:
        self.now += 100.0
        manager = self.driver._host_manager
        there = self.job.discovery.find_available_hosts_and_slots()
        states = [one for host, one in list(manager._states.items()) if host in there]
        self.wait(lambda: not any(one.is_resurrected() for one in states) or self.gone())
        self.settle()

    @rule(data=st.data())
    def say_ready(self, data: st.DataObject) -> None:
        waiting = [one for one in self.members() if not self.has_asked(one)]
        if waiting:
            self.ask(data.draw(st.sampled_from(waiting)))
            self.settle()

    @rule(data=st.data())
    def say_ready_twice(self, data: st.DataObject) -> None:
        asked = [one for one in self.members() if self.has_asked(one)]
        if asked:
            self.ask(data.draw(st.sampled_from(asked)))
            self.settle()

    @rule(data=st.data(), code=st.sampled_from([0, 1, 137]))
    def fail(self, data: st.DataObject, code: int) -> None:
        members = self.members()
        if members:
            process = data.draw(st.sampled_from(members))
            process.commands.put(code)
            self.wait(lambda: self.has_ended(process))
            self.settle()

    @rule(data=st.data())
    def let_an_old_process_end_late(self, data: st.DataObject) -> None:
        names = {one.incarnation for one in self.members()}
        old = [one for one in self.job.processes if one.incarnation not in names and one.is_stubborn]
        if old:
            process = data.draw(st.sampled_from(old))
            before = self.job.recorded()
            process.is_stubborn = False
            process.commands.put(1)
            self.settle()
            assert self.gone() or self.job.recorded() == before

    @precondition(lambda self: not self.gone())
    @rule(data=st.data())
    def be_stubborn(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.job.processes)).is_stubborn = True

    # ---- what holds

    @invariant()
    def ranks_are_contiguous(self) -> None:
        slots = [one for host in self.driver.host_assignments.values() for one in host]
        assert sorted(one.rank for one in slots) == list(range(len(slots)))
        assert len({(one.hostname, one.local_rank) for one in slots}) == len(slots) <= MOST
        assert {one.size for one in slots} <= {len(slots)}

    @invariant()
    def a_generation_is_decided_once(self) -> None:
        assert self.decided == sorted(set(self.decided))
        assert len(self.decided) >= self.generation - 1

    @invariant()
    def what_is_told_of_the_job_is_whole(self) -> None:
        record = make_record(self.driver.history, time.time())
        generations, members = record["generations"], record["members"]
        assert [one["number"] for one in generations] == list(range(1, len(generations) + 1))
        assert [one["rank"] for one in members] == list(range(generations[-1]["size"]))
        assert len({one["process"] for one in members}) == len(members)
        assert all(one["lost"] >= 0 for one in generations)
        assert len(list(describe(record, 0.0, is_late=False))) >= 4 + len(generations) + len(members)

    @invariant()
    def those_who_ask_for_an_earlier_generation_are_answered(self) -> None:
        for generation, answer in self.asked.values():
            if generation < self.generation or self.gone():
                found = answer.result(LIMIT_S)
                assert found is not None
                assert found[1] >= generation

    def teardown(self) -> None:
        if hasattr(self, "job"):
            for process in self.job.processes:
                process.is_stubborn = False
            self.job.end()
            for answer in (*(one for _, one in self.asked.values()), *self.first_asked.values()):
                answer.result(LIMIT_S)
        for one in self.patches:
            one.stop()

    # ---- how to look at it

    def gone(self) -> bool:
        return self.driver.finished()

    def wait(self, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + LIMIT_S
        with self.registry._changed:
            while not is_so():
                assert time.monotonic() < until
                self.registry._changed.wait(0.002)

    def members(self) -> list[ScriptedProcess]:
        """The processes that count and live, in the order of their start."""
        table = self.driver._members
        found = [(one, table.find(one.place, one.incarnation)) for one in self.job.processes]
        if self.gone():
            return []
        return [one for one, member in found if member is not None and not member.is_ended and not member.is_awaited]

    def newcomers(self) -> list[ScriptedProcess]:
        """The live processes without a place."""
        names = {one.name for one in self.driver._newcomers.list_all()}
        return [] if self.gone() else [one for one in self.job.processes if one.incarnation in names]

    def has_been(self, process: ScriptedProcess, newest: int) -> bool:
        """Return whether a process was a member before the newest generation."""
        return self.placed.setdefault(process.incarnation, newest) < newest

    def has_asked(self, process: ScriptedProcess) -> bool:
        return self.asked.get(process.incarnation, (0, None))[0] == self.generation

    def ask(self, process: ScriptedProcess) -> None:
        self.asked[process.incarnation] = (self.generation, self.job.ask(process, self.generation))
        place = process.place
        self.wait(
            lambda: (
                self.gone()
                or place in self.registry._states
                or self.registry._is_deciding
                or self.registry.last_rendezvous() > self.generation
                or not self.driver.has_rank_assignment(*place)
            )
        )

    def has_ended(self, process: ScriptedProcess) -> bool:
        member = self.driver._members.find(process.place, process.incarnation)
        if member is None or self.gone():
            return True
        if self.registry._is_deciding:  # the end counts when the decision has been made
            return member.is_ended
        return member.is_ended and (
            self.registry._states.get(process.place) == "FAILURE" or not self.driver.has_rank_assignment(*process.place)
        )

    def settle(self) -> None:
        """Wait until a decision that is due is made, unless it waits for slots; look at what has come of it."""
        hosts = self.driver._host_manager
        self.wait(
            lambda: self.gone() or not self.registry._is_deciding or hosts.current_hosts.count_available_slots() < LEAST
        )
        newest = self.registry.last_rendezvous()
        if self.gone() or self.registry._is_deciding or newest == self.generation:
            return
        survivors = {one.incarnation for one in self.members() if self.has_been(one, newest)}
        assert newest == self.generation + 1
        self.generation = newest
        wanted = {(host, one.local_rank) for host, slots in self.driver.host_assignments.items() for one in slots}
        self.wait(lambda: self.gone() or {one.place for one in self.members()} == wanted)
        first = self.driver.get_coordinator_info()
        if not self.gone() and first is not None:
            leader = next(one for one in self.members() if one.place == (first.hostname, first.local_rank))
            assert leader.incarnation in survivors


class NewcomerStory(DriverStory):
    """The same, and nobody waits for a newcomer.

    - A newcomer is no member until it is ready, and its end changes nothing for the members.
    - A newcomer that is ready has a place in the next generation, or is told that it has none.
    """

    waits = False

    def settle(self) -> None:
        """Wait also until the driver has handled the present hosts, and its newcomers have begun."""
        super().settle()
        watch = self.driver._watch
        for _ in range(2):
            with watch._looked:
                assert self.gone() or watch._looked.wait(LIMIT_S) or self.gone()
        self.driver._note_change(HostUpdateResult.mixed)
        self.wait(lambda: self.gone() or len(self.newcomers()) == len(self.driver._newcomers.list_all()))

    @rule(data=st.data())
    def a_newcomer_is_ready(self, data: st.DataObject) -> None:
        waiting = [one for one in self.newcomers() if one.incarnation not in self.first_asked]
        if waiting:
            process = data.draw(st.sampled_from(waiting))
            self.first_asked[process.incarnation] = self.job.ask_first(process)
            member = self.driver._members.find(process.place, process.incarnation)
            self.wait(lambda: self.gone() or member is None or member.asked is not None)

    @rule(data=st.data(), code=st.sampled_from([0, 1, 137]))
    def a_newcomer_fails(self, data: st.DataObject, code: int) -> None:
        found = self.newcomers()
        if found:
            process, before = data.draw(st.sampled_from(found)), self.job.recorded()
            process.commands.put(code)
            self.wait(lambda: self.driver._members.find(process.place, process.incarnation) is None or self.gone())
            self.settle()
            assert self.gone() or self.job.recorded() == before

    @invariant()
    def newcomers_are_no_members(self) -> None:
        places = {(one.hostname, one.local_rank) for host in self.driver.host_assignments.values() for one in host}
        awaited = [one.slot for one in self.driver._newcomers.list_all()]
        assert len(set(awaited)) == len(awaited)
        assert not places.intersection(awaited)

    @invariant()
    def newcomers_that_asked_are_answered_when_they_have_a_place(self) -> None:
        awaited = {one.name for one in self.driver._newcomers.list_all()}
        is_deciding = self.registry._is_deciding  # after `settle`: it waits for slots, and everybody with it
        for name, answer in self.first_asked.items():
            if (name not in awaited and not is_deciding) or self.gone():
                assert answer.result(LIMIT_S) is not None


DriverStory.TestCase.settings = settings(max_examples=6, stateful_step_count=20, deadline=None)
TestDriverStory = DriverStory.TestCase
NewcomerStory.TestCase.settings = DriverStory.TestCase.settings
TestNewcomerStory = NewcomerStory.TestCase
