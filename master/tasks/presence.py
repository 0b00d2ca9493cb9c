"""Which members take part at a moment, for rounds of all of them (pure).

A member is in the view while it holds a task, and between the report on a task and its next question for one, unless
that question has to wait. So a member with work to do stays. It is out at once when it waits for a task, when the pass
is over for it, when its task was taken back, and when its connection is lost: nobody waits for a trainer that was
killed. One that is back within its lease has its task still, and is in the view again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from master.tasks.records import TaskView
from messages.envelope import MemberId

BETWEEN_S = 5.0  # that a member may take from a report to its next question; a hung one is out of the view then
COUNTER_BITS = 20  # of an epoch: views of one leader; the bits above them are the leader's token


class Presence:
    """The present view, and what it follows from. None of it is stored: a later leader's epochs are larger.

    Args: leader: the token of the leader, which grows from leader to leader.
    """

    def __init__(self, leader: int) -> None:
        self.view = TaskView(leader << COUNTER_BITS, ())
        self._members: dict[MemberId, int] = {}  # in the view, and their numbers
        self._between: dict[MemberId, float] = {}  # between two tasks, and until when they may be
        self._away: set[MemberId] = set()  # whose connection is lost
        self._moved: set[MemberId] = set()

    @property
    def is_exhausted(self) -> bool:
        """Whether the epochs of this leader are used up, so that another one must follow."""
        return (self.view.epoch + 1) % (1 << COUNTER_BITS) == 0

    def move(self, member: MemberId) -> None:
        """Take note that a member's first task has come, or its last one has gone."""
        self._moved.add(member)

    def report(self, member: MemberId, now: float) -> None:
        """Take note that a member has ended its task, and will want another one."""
        self._between[member] = now + BETWEEN_S
        self._moved.add(member)

    def want(self, member: MemberId) -> None:
        """Take note that a member has asked for a task: it has one now, or is out of the view."""
        self.drop([member])

    def leave(self, member: MemberId) -> None:
        """Take note that a member's connection is lost."""
        self._away.add(member)
        self._moved.add(member)

    def back(self, member: MemberId) -> None:
        """Take note that a member is connected, or is forgotten."""
        if member in self._away:
            self._away.remove(member)
            self._moved.add(member)

    def expire(self, now: float) -> None:
        """Take out the members that have not asked for their next task in time."""
        self.drop([member for member, until in self._between.items() if until <= now])

    def drop(self, members: Iterable[MemberId]) -> None:
        """Let members count by their tasks alone."""
        for member in members:
            if self._between.pop(member, None) is not None:
                self._moved.add(member)

    def settle(self, holds: Callable[[MemberId], bool], number: Callable[[MemberId], int]) -> bool:
        """Bring the view up to date; return whether it has changed.

        Args: holds: whether a member has a task.  number: a member's number.
        """
        moved, self._moved = self._moved, set()
        changed = False
        for member in moved:
            is_in = member not in self._away and (member in self._between or holds(member))
            if is_in == (member in self._members):
                continue
            changed = True
            if is_in:
                self._members[member] = number(member)
            else:
                del self._members[member]
        if changed:
            self.view = TaskView(self.view.epoch + 1, tuple(sorted(self._members.values())))
        return changed
