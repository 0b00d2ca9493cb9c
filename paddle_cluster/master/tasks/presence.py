"""The view: the list of the members that take part in synchronous rounds at a moment.

A member is in the view while it holds a task, and also between a report and the member's next request. If the next
request must wait, the member is not in the view. A member with work therefore stays in the view. A member leaves the
view at once when it waits for a task, when it has no more tasks in the pass, when its task is taken back, and when its
connection is lost. The other members therefore never wait for a killed trainer. A member that reconnects within its
lease still has its task, and enters the view again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from paddle_base.messages.envelope import MemberId
from paddle_cluster.master.tasks.records import TaskView

BETWEEN_S = 5.0  # seconds after a report until a member that does not make its next request leaves the view
COUNTER_BITS = 20  # bits of an epoch that count the views of one leader; the higher bits are the leader's token


class Presence:
    """The present view, and the data that determine the view.

    The store does not contain these data, because the views of a later leader have larger epochs.

    Args: leader: the token of the leader. Each later leader has a larger token.
    """

    def __init__(self, leader: int) -> None:
        self.view = TaskView(leader << COUNTER_BITS, ())
        self._members: dict[MemberId, int] = {}  # the members of the view, and their numbers
        self._between: dict[MemberId, float] = {}  # members between two tasks, and the deadline of their next request
        self._away: set[MemberId] = set()  # members without connection
        self._moved: set[MemberId] = set()

    @property
    def is_exhausted(self) -> bool:
        """Whether the epochs of this leader are exhausted; another leader must then take over."""
        return (self.view.epoch + 1) % (1 << COUNTER_BITS) == 0

    def move(self, member: MemberId) -> None:
        """Record that a member has received its first task, or lost its last task."""
        self._moved.add(member)

    def report(self, member: MemberId, now: float) -> None:
        """Record that a member has ended its task, and will request another task."""
        self._between[member] = now + BETWEEN_S
        self._moved.add(member)

    def want(self, member: MemberId) -> None:
        """Record that a member has requested a task; the member leaves the view now if it gets no task."""
        self.drop([member])

    def leave(self, member: MemberId) -> None:
        """Record that a member's connection is lost."""
        self._away.add(member)
        self._moved.add(member)

    def is_away(self, member: MemberId) -> bool:
        """Return whether this leader has seen the end of a member's connection."""
        return member in self._away

    def back(self, member: MemberId) -> None:
        """Record that a member is connected, or is removed."""
        if member in self._away:
            self._away.remove(member)
            self._moved.add(member)

    def expire(self, now: float) -> None:
        """Remove members that have not requested their next task in time."""
        self.drop([member for member, until in self._between.items() if until <= now])

    def drop(self, members: Iterable[MemberId]) -> None:
        """Keep these members in the view only if they have a task."""
        for member in members:
            if self._between.pop(member, None) is not None:
                self._moved.add(member)

    def settle(self, holds: Callable[[MemberId], bool], number: Callable[[MemberId], int]) -> bool:
        """Update the view; return whether it has changed.

        Args: holds: function that returns whether a member has a task.  number: function that returns its number.
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
