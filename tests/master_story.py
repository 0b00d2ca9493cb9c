"""The rules of a master, with members whose requests a test makes one by one."""

from __future__ import annotations

import itertools
from typing import Any

from paddle_base.messages.envelope import MemberId
from paddle_cluster.master.tasks.dataset import digest_of, group_files
from paddle_cluster.master.tasks.encoding import decode_state, encode_change
from paddle_cluster.master.tasks.events import (
    FINISHED,
    DatasetGiven,
    Event,
    JoinRefusal,
    MemberIn,
    MemberLeaves,
    MemberOut,
    MemberWelcome,
    Notice,
    SaveDone,
    SaveWanted,
    TaskReported,
    TaskWanted,
    TicketAnswer,
    TicketRefusal,
    TimePasses,
)
from paddle_cluster.master.tasks.rules import step
from paddle_cluster.master.tasks.state import MasterState, TaskSettings


def member(name: str, incarnation: int = 1) -> MemberId:
    return MemberId(name, incarnation)


class Story:
    """The state of a master, a clock, and the answers; every change is written to a simulated store."""

    def __init__(self, tasks: int = 0, **settings: Any) -> None:
        self.settings = TaskSettings(**settings)
        self.state = MasterState(self.settings, 1)
        self.now = 1000.0
        self.pairs: dict[str, str] = {}
        self.answers: dict[int, Any] = {}
        self.notes: list[str] = []
        self.tickets = itertools.count(1)
        self.leader = 1
        self.numbers: dict[MemberId, int] = {}  # the numbers that members got when they joined
        self.refused: list[tuple[MemberId, str]] = []  # members that could not join, and why
        self.views: list[tuple[int, tuple[int, ...]]] = []  # the views that members received
        # number of writes after which the leader dies in the next event; its answers are lost
        self.dies_after: int | None = None
        if tasks:
            self.give_dataset(tasks)

    def happen(self, event: Event) -> None:
        outcome = step(self.state, event, self.now)
        writes = [encode_change(change) for change in outcome.changes]
        if self.dies_after is not None:
            self.store(writes[: self.dies_after])
            self.dies_after = None
            self.restart()
            return
        self.store(writes)
        for effect in outcome.effects:
            if isinstance(effect, Notice):
                self.notes.append(effect.text)
            elif isinstance(effect, TicketAnswer):
                assert effect.ticket not in self.answers, "a question is answered twice"
                self.answers[effect.ticket] = effect.body  # type: ignore[index]
            elif isinstance(effect, TicketRefusal):
                self.answers[effect.ticket] = effect.code  # type: ignore[index]
            elif isinstance(effect, MemberWelcome):
                assert effect.number is not None
                self.numbers[effect.member] = effect.number
            elif isinstance(effect, JoinRefusal):
                self.refused.append((effect.member, effect.code))
            else:
                view = self.state.presence.view
                self.views.append((view.epoch, view.members))

    def store(self, writes: list[tuple[str, str | None]]) -> None:
        for key, value in writes:
            if value is None:
                self.pairs.pop(key, None)
            else:
                self.pairs[key] = value

    def restart(self) -> None:
        """Let another leader load the stored state."""
        self.leader += 1
        self.state = decode_state(self.settings, sorted(self.pairs.items()), self.now, self.leader)
        self.happen(TimePasses())

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.happen(TimePasses())

    def give_dataset(self, tasks: int, config: str = "") -> Any:
        files = [f"part-{number:05d}" for number in range(tasks)]
        return self.ask(
            lambda ticket: DatasetGiven(ticket, digest_of(files), config, tasks, tuple(group_files(files, 1)))
        )

    def ask(self, make: Any) -> Any:
        ticket = next(self.tickets)
        self.happen(make(ticket))
        return self.answers.get(ticket, "waits")

    def join(self, *names: str, incarnation: int = 1) -> None:
        """Let processes join; as in the server, the connection of an earlier process of the same name has ended."""
        for name in names:
            known = self.state.members.get(name)
            if known is not None and known.until is None and known.id != member(name, incarnation):
                self.cut(name, known.id.incarnation)
            self.happen(MemberIn(member(name, incarnation)))

    def cut(self, name: str, incarnation: int = 1) -> None:
        self.happen(MemberOut(member(name, incarnation), "its connection is gone"))

    def leave(self, name: str) -> None:
        self.ask(lambda ticket: MemberLeaves(ticket, member(name), "it leaves", is_polite=True))

    def want(self, name: str, pass_number: int = 0, request: int = 0, patience: float = 30.0) -> int:
        """Ask for a task; return the ticket."""
        ticket = next(self.tickets)
        request = request or ticket
        self.happen(TaskWanted(ticket, member(name), request, pass_number, self.now + patience))
        return ticket

    def get(self, name: str, pass_number: int = 0, request: int = 0) -> Any:
        """Ask for a task; return the answer, or "waits" if there is no answer yet."""
        return self.answers.get(self.want(name, pass_number, request), "waits")

    def take(self, name: str, pass_number: int = 0) -> tuple[int, int]:
        """Ask for a task that is given at once; return its number and epoch."""
        answer = self.get(name, pass_number)
        assert answer["state"] == "task", answer
        return answer["task"]["id"], answer["task"]["epoch"]

    def report(
        self,
        name: str,
        task: tuple[int, int],
        outcome: str = FINISHED,
        incarnation: int = 1,
        pass_number: int | None = None,
    ) -> Any:
        """Report a task as finished; return whether the master accepts it, or the code of the refusal."""
        who, number = member(name, incarnation), self.state.table.pass_number if pass_number is None else pass_number
        answer = self.ask(lambda ticket: TaskReported(ticket, who, number, *task, outcome, 10, "a reason"))
        return answer["accepted"] if isinstance(answer, dict) else answer

    def finish_all(self, name: str, pass_number: int, tasks: int) -> None:
        """Take so many tasks of a pass, and report each as finished."""
        for _ in range(tasks):
            assert self.report(name, self.take(name, pass_number))

    def report_and_want(self, name: str, task: tuple[int, int], outcome: str = FINISHED, request: int = 0) -> Any:
        """Report a task and ask for the next task of the pass in one request; return the answer."""
        who, number = member(name), self.state.table.pass_number

        def make(ticket: int) -> TaskReported:
            wanted = TaskWanted(ticket, who, request or ticket, number, 0.0)
            return TaskReported(ticket, who, number, *task, outcome, 10, "a reason", wanted)

        return self.ask(make)

    def save(self, name: str, pass_number: int = 0, block: float = 5.0, incarnation: int = 1) -> str:
        """Return the state of the answer, or the code of the refusal."""
        who = member(name, incarnation)
        answer = self.ask(lambda ticket: SaveWanted(ticket, who, block, pass_number))
        return answer["state"] if isinstance(answer, dict) else str(answer)

    def saved(self, name: str, pass_number: int = 0, incarnation: int = 1) -> bool:
        answer = self.ask(lambda ticket: SaveDone(ticket, member(name, incarnation), pass_number))
        return isinstance(answer, dict) and bool(answer["accepted"])

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Return the pass and the numbers of tasks: todo, pending, done, failed."""
        table = self.state.table
        return table.pass_number, table.todo, len(table.pending), table.done, len(table.failed)
