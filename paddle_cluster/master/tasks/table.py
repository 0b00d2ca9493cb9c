"""The tasks of the present pass, and the orders in which they are assigned.

A record of an earlier pass means TODO. Therefore no record changes when a pass begins, and a pass begins fast, even
with a million tasks.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
from collections.abc import Callable, Iterator, Sequence

from paddle_base.messages.envelope import MemberId
from paddle_cluster.master.tasks.records import Hold, PassAccount, TaskRecord, TaskStatus

MOST_NAMES = 100  # maximum names of discarded tasks in the account of a pass


@dataclasses.dataclass
class PassSums:
    """Sums over the records of the present pass; `twice`: the tasks whose records have repeats."""

    dispatches: int = 0
    failures: int = 0
    samples: int = 0
    repeated: int = 0
    twice: dict[int, None] = dataclasses.field(default_factory=dict)

    def count(self, number: int, record: TaskRecord, sign: int) -> None:
        """Add a record to the sums (sign 1), or subtract it (sign -1)."""
        self.dispatches += sign * record.tries
        self.failures += sign * record.failures
        self.samples += sign * record.samples
        if record.repeats:
            self.repeated += sign * sum(samples for _, samples in record.repeats)
            self.twice[number] = None


class TaskTable:
    """The tasks. `records` has the tasks that were ever assigned; only `put` changes a task.

    Args: moved: function that is called with each member that has received its first task or lost its last task.
    """

    def __init__(self, moved: Callable[[MemberId], None]) -> None:
        self._moved = moved
        self.files: list[tuple[str, ...]] = []
        self.records: dict[int, TaskRecord] = {}
        self.pass_number = 0
        self.pending: dict[int, None] = {}  # pending tasks, in the order of their first dispatch
        self.done = 0
        self.failed: dict[int, None] = {}
        self.sums = PassSums()
        self._fresh = 0  # a task number; all tasks with a smaller number were assigned in this pass
        # tasks that were assigned in this pass and taken back; an OrderedDict finds its first key fast even after many
        # deletions
        self._again: collections.OrderedDict[int, None] = collections.OrderedDict()
        # a heap of (deadline, task, epoch); some entries are outdated
        self._deadlines: list[tuple[float, int, int]] = []
        self._held: dict[MemberId, dict[int, Hold]] = {}  # the tasks of each member, with one dispatch each

    @property
    def todo(self) -> int:
        """The number of tasks that wait to be assigned."""
        return len(self.files) - len(self.pending) - self.done - len(self.failed)

    def current(self, number: int) -> TaskRecord:
        """Return a task's record in this pass."""
        record = self.records.get(number)
        if record is None:
            return TaskRecord(self.pass_number, TaskStatus.TODO)
        if record.pass_number != self.pass_number:
            is_done = record.status is TaskStatus.DONE
            before = (record.pass_number, record.holds[0].epoch) if is_done else record.before
            return TaskRecord(self.pass_number, TaskStatus.TODO, record.epoch, before=before)
        return record

    def put(self, number: int, record: TaskRecord) -> None:
        """Change a task of this pass."""
        before = self.current(number)
        stays = before.status is record.status is TaskStatus.TODO and before.tries > 0  # the task keeps its place
        self._forget(number, before, stays=stays)
        self._enter(number, record, stays=stays)

    def restore(self, number: int, record: TaskRecord) -> None:
        """Load a task from the store; the task must have no record yet. The loaded record may be of an earlier pass."""
        if record.pass_number == self.pass_number:
            self._enter(number, record, stays=False)
        else:
            self.records[number] = record

    def begin_pass(self, number: int) -> None:
        """Make every task TODO."""
        self.pass_number, self.done, self._fresh = number, 0, 0
        self.pending, self.failed, self.sums = {}, {}, PassSums()
        self._again.clear()
        self._deadlines.clear()
        self._held.clear()

    def next_todo(self) -> int | None:
        """Return the next task to assign. Tasks that were not yet assigned in this pass precede tasks taken back."""
        while self._fresh < len(self.files):
            record = self.records.get(self._fresh)
            if record is None or record.pass_number != self.pass_number:
                return self._fresh
            self._fresh += 1
        return next(iter(self._again), None)

    def held_by(self, member: MemberId) -> list[int]:
        """Return the tasks that a member has, in order."""
        return sorted(self._held.get(member, ()))

    def find_request(self, member: MemberId, request: int) -> tuple[int, Hold] | None:
        """Return the task that was assigned for a member's request, and the dispatch of this task."""
        held = self._held.get(member, {})
        return next(((number, hold) for number, hold in held.items() if hold.request == request), None)

    def is_held_by(self, member: MemberId) -> bool:
        """Return whether a member has a task."""
        return member in self._held

    def take_expired(self, now: float) -> Iterator[tuple[int, Hold]]:
        """Yield once each dispatch whose time limit is over."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number, epoch = heapq.heappop(self._deadlines)
            record = self.current(number)
            if record.status is not TaskStatus.PENDING:
                continue
            for hold in record.holds:
                if hold.epoch == epoch and hold.deadline <= now:
                    yield number, hold

    def account(self, now: float) -> PassAccount:
        """Return the account of the present pass."""
        names = tuple(self.name(number) for number in list(self.failed)[:MOST_NAMES])
        reported = ((number, epoch) for number in self.sums.twice for epoch, _ in self.records[number].repeats)
        return PassAccount(
            pass_number=self.pass_number,
            done=self.done,
            discarded=len(self.failed),
            dispatches=self.sums.dispatches,
            failures=self.sums.failures,
            samples=self.sums.samples,
            ended=now,
            names=names,
            repeated=self.sums.repeated,
            reported=tuple(reported),
        )

    def name(self, number: int) -> str:
        """Return the name of a task for users: its number and its files."""
        return f"{number} ({_shorten(self.files[number])})"

    def _enter(self, number: int, record: TaskRecord, *, stays: bool) -> None:
        """Store a task's record. If `stays` is False, add the task to the tasks of its status."""
        self.records[number] = record
        self.sums.count(number, record, 1)
        if stays:
            return
        if record.status is TaskStatus.PENDING:
            self.pending[number] = None
            for hold in record.holds:
                if hold.member not in self._held:
                    self._held[hold.member] = {}
                    self._moved(hold.member)
                self._held[hold.member][number] = hold
                heapq.heappush(self._deadlines, (hold.deadline, number, hold.epoch))
        elif record.status is TaskStatus.DONE:
            self.done += 1
        elif record.status is TaskStatus.FAILED:
            self.failed[number] = None
        else:
            self._again[number] = None

    def _forget(self, number: int, record: TaskRecord, *, stays: bool) -> None:
        """Subtract a task's record. If `stays` is False, remove the task from the tasks of its status."""
        self.sums.count(number, record, -1)
        if record.status is TaskStatus.PENDING:
            del self.pending[number]
            for hold in record.holds:
                self._held[hold.member].pop(number, None)
                if not self._held[hold.member]:
                    del self._held[hold.member]
                    self._moved(hold.member)
        elif record.status is TaskStatus.DONE:
            self.done -= 1
        elif record.status is TaskStatus.FAILED:
            del self.failed[number]
        elif not stays:
            self._again.pop(number, None)  # with ranks, the assigned task is not always the first


def _shorten(files: Sequence[str]) -> str:
    shown = ", ".join(files[:3])
    return f"{shown} and {len(files) - 3} more" if len(files) > 3 else shown
