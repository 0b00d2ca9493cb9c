"""The whole protocol in any order: late and repeated messages, lost members, leaders that die between two writes."""

import itertools
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from master_story import Story, member

from paddle_base.messages.envelope import MemberId
from paddle_cluster.master.tasks.encoding import decode_state
from paddle_cluster.master.tasks.events import (
    FAILED,
    FINISHED,
    GRANTED,
    RETURNED,
    MemberIn,
    MemberLeaves,
    TaskReported,
    TaskWanted,
)
from paddle_cluster.master.tasks.presence import BETWEEN_S
from paddle_cluster.master.tasks.records import Phase, TaskStatus

NAMES = ("a", "b", "c")
PASSES = 3
MOST_STEPS = 400  # of one trainer that is left alone, until the job has ended

DIES = st.sampled_from((None, None, None, None, 0, 1, 2, 3))  # after so many writes of the event

Grant = tuple[MemberId, int, int, int]  # who, task, epoch, pass


class AnyOrder(RuleBasedStateMachine):
    """Members that do anything, against one master after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story()
        self.lives = dict.fromkeys(NAMES, 1)
        self.grants: list[Grant] = []
        self.asked: dict[int, TaskWanted] = {}  # by ticket
        self.finished: defaultdict[tuple[int, int], set[int]] = defaultdict(set)  # (pass, task) -> epochs accepted
        self.repeated: dict[bool, set[tuple[int, int, int]]] = {True: set(), False: set()}  # surely, perhaps
        self.seen: set[int] = set()
        self.saving: tuple[MemberId, float, int] | None = None  # the last one that was granted a save, until when, pass
        self.given: dict[int, MemberId] = {}  # numbers
        self.between: dict[MemberId, float] = {}  # between two tasks, and until when that counts
        self.away: set[MemberId] = set()  # whose connection is lost
        self.leader = 0  # that self.between and self.away are about

    @initialize(
        tasks=st.integers(1, 6),
        failures=st.integers(0, 2),
        speculate=st.booleans(),
        ranks=st.sampled_from((0, 0, 0, 1)),
    )
    def begin(self, tasks: int, failures: int, speculate: bool, ranks: int) -> None:
        self.story = Story(
            tasks,
            num_passes=PASSES,
            failures_max=failures,
            speculate=speculate and not ranks,
            ranks=ranks,
            time_least=3.0,
            time_most=20.0,
            member_ttl=4.0,
        )
        self.story.join(*NAMES)

    # ----- What members do

    @rule(name=st.sampled_from(NAMES), ahead=st.sampled_from((-1, 0, 0, 1)), times=st.integers(1, 4), dies=DIES)
    def want(self, name: str, ahead: int, times: int, dies: int | None) -> None:
        who = member(name, self.lives[name])
        self.story.happen(MemberIn(who))  # as every client does before it asks
        self.story.dies_after = dies
        pass_number = max(0, self.story.state.table.pass_number + ahead)
        for _ in range(times):
            self.ask_for(who, pass_number, len(self.asked) + 1)

    @precondition(lambda self: self.grants)
    @rule(outcome=st.sampled_from((FINISHED, FAILED, RETURNED)), back=st.integers(1, 3), wants=st.booleans(), dies=DIES)
    def report_one_of_the_last(self, outcome: str, back: int, wants: bool, dies: int | None) -> None:
        self.story.dies_after = dies
        self.say(self.grants[-min(back, len(self.grants))], outcome, wants=wants)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def want_again(self, data: st.DataObject) -> None:
        before = data.draw(st.sampled_from(list(self.asked.values())))
        self.ask_for(before.member, before.pass_number, before.request)

    @precondition(lambda self: self.grants)
    @rule(
        data=st.data(),
        outcome=st.sampled_from((FINISHED, FINISHED, FINISHED, FAILED, RETURNED)),
        wants=st.booleans(),
        dies=DIES,
    )
    def report(self, data: st.DataObject, outcome: str, wants: bool, dies: int | None) -> None:
        """Any grant, however old, and however often it was reported; with a question for the next task or without."""
        self.story.dies_after = dies
        self.say(data.draw(st.sampled_from(self.grants)), outcome, wants=wants)

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def report_what_is_with_another(self, data: st.DataObject, name: str) -> None:
        _, number, epoch, pass_number = data.draw(st.sampled_from(self.grants))
        self.say((member(name, self.lives[name]), number, epoch, pass_number), FINISHED)

    @rule(name=st.sampled_from(NAMES))
    def join(self, name: str) -> None:
        self.story.happen(MemberIn(member(name, self.lives[name])))

    @rule(name=st.sampled_from(NAMES), dies=DIES)
    def begin_anew(self, name: str, dies: int | None) -> None:
        self.story.dies_after = dies
        self.lives[name] += 1
        self.story.happen(MemberIn(member(name, self.lives[name])))

    @rule(name=st.sampled_from(NAMES), polite=st.booleans(), dies=DIES)
    def leave(self, name: str, polite: bool, dies: int | None) -> None:
        self.story.dies_after = dies
        self.story.happen(MemberLeaves(None, member(name, self.lives[name]), "it leaves", is_polite=polite))

    @rule(name=st.sampled_from(NAMES))
    def cut(self, name: str) -> None:
        self.story.cut(name, self.lives[name])
        self.away.add(member(name, self.lives[name]))

    @rule(seconds=st.sampled_from((0.1, 1.0, 2.5, 25.0)), dies=DIES)
    def advance(self, seconds: float, dies: int | None) -> None:
        self.story.dies_after = dies
        self.story.advance(seconds)

    @rule(name=st.sampled_from(NAMES), behind=st.integers(0, 2), dies=DIES)
    def save(self, name: str, behind: int, dies: int | None) -> None:
        head = self.story.state.head
        pass_number = max(0, (head.ended if head else 0) + 1 - behind)
        self.story.dies_after = dies
        leader, had = self.story.leader, self.saving
        if self.story.save(name, pass_number, 3.0, self.lives[name]) == GRANTED:
            assert leader == self.story.leader
            who, until = member(name, self.lives[name]), self.story.now + 3.0
            if had is not None and had[0] != who and had[1] > self.story.now and head and had[2] > head.saved:
                known = self.story.state.members.get(had[0].uid)
                assert known is None or known.id != had[0], "two members save"
            self.saving = (who, until, pass_number)
        slot = self.story.state.save
        if leader != self.story.leader and slot is not None and slot.member == member(name, self.lives[name]):
            self.saving = (slot.member, slot.until, slot.pass_number)  # stored, and its leader died before the answer

    @rule(name=st.sampled_from(NAMES), behind=st.integers(0, 2), dies=DIES)
    def end_save(self, name: str, behind: int, dies: int | None) -> None:
        head = self.story.state.head
        saved = head.saved if head else -1
        pass_number = max(0, (head.ended if head else 0) + 1 - behind)
        self.story.dies_after = dies
        if self.story.saved(name, pass_number, self.lives[name]) and pass_number > saved:
            assert self.saving is not None and self.saving[::2] == (member(name, self.lives[name]), pass_number)

    # ----- What happens to masters

    @rule()
    def another_leader(self) -> None:
        self.story.restart()

    # ----- What must hold

    @invariant()
    def answers_are_right(self) -> None:
        """Take note of what members were told."""
        for ticket in self.story.answers.keys() - self.seen:
            self.seen.add(ticket)
            answer = self.story.answers[ticket]
            if ticket in self.asked and isinstance(answer, dict) and "accepted" in answer:
                answer = answer["next"]
            if ticket in self.asked and isinstance(answer, dict) and answer["state"] == "task":
                wanted = self.asked[ticket]
                assert answer["pass"] == wanted.pass_number
                self.grants.append((wanted.member, answer["task"]["id"], answer["task"]["epoch"], answer["pass"]))

    @invariant()
    def a_task_is_finished_once_in_a_pass(self) -> None:
        assert all(len(epochs) == 1 for epochs in self.finished.values())

    @invariant()
    def accounts_are_complete(self) -> None:
        table = self.story.state.table
        for account in self.story.state.accounts.values():
            assert account.done + account.discarded == len(table.files)
            assert account.dispatches >= account.done
            assert account.samples == 10 * account.done
        for pass_number, _ in self.finished:
            assert pass_number <= table.pass_number

    @invariant()
    def what_was_trained_in_vain_is_counted_once(self) -> None:
        surely, perhaps = self.repeated[True], self.repeated[True] | self.repeated[False]
        for number, account in self.story.state.accounts.items():
            least, most = (sum(one[0] == number for one in some) for some in (surely, perhaps))
            assert 10 * least <= account.repeated <= 10 * most
            assert account.repeated == 10 * len(account.reported)
        sums, now = self.story.state.table.sums, self.story.state.table.pass_number
        if now not in self.story.state.accounts:
            assert sums.repeated >= 10 * sum(one[0] == now for one in surely)

    @invariant()
    def the_job_is_done_when_its_last_pass_is_saved(self) -> None:
        head = self.story.state.head
        if head is not None:
            assert (head.phase is Phase.DONE) == (head.saved == PASSES - 1)
            assert head.saved <= head.ended
            assert head.phase is not Phase.SAVING or len(self.story.state.accounts) == PASSES

    @invariant()
    def a_number_is_never_given_twice(self) -> None:
        for who, number in self.story.numbers.items():
            assert self.given.setdefault(number, who) == who
        assert len(set(self.story.numbers.values())) == len(self.story.numbers)

    @invariant()
    def epochs_only_grow(self) -> None:
        epochs = [epoch for epoch, _ in self.story.views]
        assert all(one < other for one, other in itertools.pairwise(epochs))

    @invariant()
    def a_view_has_exactly_those_with_a_task_and_those_between_two_that_are_connected(self) -> None:
        state = self.story.state
        if self.leader != self.story.leader:
            self.leader, self.between, self.away = self.story.leader, {}, set()
        known = {one.id: one for one in state.members.values()}
        self.away = {who for who in self.away if who in known and known[who].until is not None}
        self.between = {
            who: until
            for who, until in self.between.items()
            if until > self.story.now and who.uid in state.members and state.members[who.uid].id == who
        }
        holders = {hold.member for number in state.table.pending for hold in state.table.current(number).holds}
        expected = {state.numbers[who.uid].number for who in (holders | set(self.between)) - self.away}
        view = state.presence.view
        assert view.members == tuple(sorted(expected))
        told = self.story.views[-1] if self.story.views else (0, ())
        assert told == (view.epoch, view.members) or (not view.members and told[0] < view.epoch)

    @invariant()
    def no_task_is_lost(self) -> None:
        """A task that nobody has is TODO; who has one is a member, whose end gives it back."""
        state = self.story.state
        for number in range(len(state.table.files)):
            record = state.table.current(number)
            assert (record.status is TaskStatus.PENDING) == (number in state.table.pending)
            if record.status is TaskStatus.PENDING:
                assert 1 <= len(record.holds) <= 2
                for hold in record.holds:
                    assert state.members[hold.member.uid].id == hold.member
                    assert number in state.table.held_by(hold.member)
        todo = [one for one in range(len(state.table.files)) if state.table.current(one).status is TaskStatus.TODO]
        assert len(todo) == state.table.todo
        assert (state.table.next_todo() in todo) if todo else (state.table.next_todo() is None)

    @invariant()
    def what_is_stored_is_what_is_known(self) -> None:
        state = self.story.state
        stored = decode_state(self.story.settings, sorted(self.story.pairs.items()), self.story.now)
        assert stored.head == state.head
        assert {uid: one.id for uid, one in stored.members.items()} == {u: one.id for u, one in state.members.items()}
        assert stored.numbers == state.numbers
        assert stored.accounts == state.accounts
        assert stored.table.sums == state.table.sums
        for number in range(len(state.table.files)):
            one, other = stored.table.current(number), state.table.current(number)
            assert (one.status, one.epoch, one.failures) == (other.status, other.epoch, other.failures)
            assert [(hold.member, hold.epoch, hold.since) for hold in one.holds] == [
                (hold.member, hold.epoch, hold.since) for hold in other.holds
            ]

    def teardown(self) -> None:
        """The job always ends: one trainer that is left alone brings it there."""
        story, last = self.story, member("last")
        if story.state.head is None:
            return
        story.dies_after = None
        if story.settings.ranks:
            for known in [one.id for one in story.state.members.values()]:
                story.happen(MemberLeaves(None, known, "it leaves", is_polite=True))
        story.happen(MemberIn(last))
        for _ in range(MOST_STEPS):
            if story.state.is_over:
                break
            story.advance(1.0)
            ticket = self.ask_for(last, story.state.table.pass_number, len(self.asked) + 1)
            self.answers_are_right()
            answer = story.answers.get(ticket)
            if isinstance(answer, dict) and answer["state"] == "task":
                self.say(self.grants[-1], FINISHED)
            elif isinstance(answer, dict) and story.save("last", answer["pass"] - 1) == GRANTED:
                assert story.saved("last", answer["pass"] - 1)
        assert story.state.is_over
        self.accounts_are_complete()
        self.a_task_is_finished_once_in_a_pass()
        assert story.state.head.phase is Phase.FAILED or len(story.state.accounts) == PASSES

    # -----

    def ask_for(self, who: MemberId, pass_number: int, request: int) -> int:
        ticket = next(self.story.tickets)
        self.asked[ticket] = TaskWanted(ticket, who, request, pass_number, self.story.now + 30.0)
        self.story.happen(self.asked[ticket])
        self.between.pop(who, None)
        return ticket

    def say(self, grant: Grant, outcome: str, *, wants: bool = False) -> None:
        who, number, epoch, pass_number = grant
        record = self.story.state.table.records.get(number)
        holds = [(hold.member, hold.epoch) for hold in record.holds] if record else []
        was_done = record is not None and record.status is TaskStatus.DONE
        leader = self.story.leader
        is_before = record is not None and record.before == (pass_number, epoch)

        def make(ticket: int) -> TaskReported:
            if wants:
                self.asked[ticket] = TaskWanted(ticket, who, len(self.asked) + 1, pass_number, 0.0)
            return TaskReported(
                ticket, who, pass_number, number, epoch, outcome, 10, "a reason", self.asked.get(ticket)
            )

        answer = self.story.ask(make)
        if isinstance(answer, dict):  # else its leader has died
            assert answer["accepted"] == ((who, epoch) in holds or is_before), "a stale holder closes nothing"
        counts = not isinstance(answer, dict) or not answer["accepted"] or (outcome != FINISHED and not was_done)
        if counts and not is_before:
            self.repeated[isinstance(answer, dict)].add((pass_number, number, epoch))
        if isinstance(answer, dict) and answer["accepted"] and not was_done and not is_before and outcome != RETURNED:
            self.between[who] = self.story.now + BETWEEN_S
        if wants:
            self.between.pop(who, None)
        assert isinstance(answer, dict) or self.story.leader > leader
        if outcome == FINISHED and isinstance(answer, dict) and answer["accepted"]:
            self.finished[pass_number, number].add(epoch)


OPTIONS = settings(stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.timeout(600)  # on a machine that is busy
class TestAnyOrder(AnyOrder.TestCase):
    settings = settings(OPTIONS, max_examples=40)


@pytest.mark.nightly
@pytest.mark.timeout(600)
class TestManyOrders(AnyOrder.TestCase):
    settings = settings(OPTIONS, max_examples=400)
