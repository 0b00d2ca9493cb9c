"""The data that a service stores for each trainer of a task job, even for a trainer that has left."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from paddle_base.runtime.schema import Integer, Items, Row, Text
from pserver.wire import notes, views
from pserver.wire.notes import show

MAX_KNOWN = 1 << 16  # maximum number of trainers; above it, the absent trainers that joined first are removed
MAX_UID = 256  # maximum characters of a UID
MAX_PUSH = (1 << 63) - 1  # maximum number of a push
UID, PUSH = Text(MAX_UID), Integer(0, MAX_PUSH)
ROSTER = Items(Row((views.NUMBER, UID, notes.INTEGER, PUSH)), notes.MAX_VALUES)


@dataclass
class KnownTrainer:
    """The process that has joined with a trainer's number. `push`: number of the process's last applied asynchronous
    push.
    """

    uid: str
    incarnation: int
    push: int = 0


class Roster:
    """All trainers that have joined a service."""

    def __init__(self) -> None:
        self._known: dict[int, KnownTrainer] = {}  # the trainers by number, in the order of their last join

    def refuse(self, number: int, uid: str, incarnation: int, *, is_connected: bool) -> str:
        """Return why a process cannot join with a trainer's number, or "" if it can.

        The master assigns a number to only one process. Two processes with one number belong to two jobs or two
        masters, or to a master that has lost its store. Incarnations have no order, because they come from clocks.

        Args: is_connected: whether the process that has the number is connected.
        """
        known = self._known.get(number)
        if known is None or (known.uid == uid and (known.incarnation == incarnation or not is_connected)):
            return ""
        if known.uid != uid:
            return f"the number {number} belongs to {show(known.uid)}, but the trainer is {show(uid)}"
        return f"it is incarnation {incarnation} of {show(uid)}, but incarnation {known.incarnation} is connected"

    def note(self, number: int, uid: str, incarnation: int, present: Container[int] = ()) -> None:
        """Record that a process joins. The push numbers of a new process restart from 1.

        Args: present: the numbers of the present trainers.
        """
        known = self._known.pop(number, None)
        if known is None or (known.uid, known.incarnation) != (uid, incarnation):
            known = KnownTrainer(uid, incarnation)
        self._known[number] = known
        if len(self._known) > MAX_KNOWN:
            gone = next((one for one in self._known if one not in present), None)
            if gone is not None:
                del self._known[gone]

    def last_push(self, number: int) -> int:
        """Return the number of a trainer's last applied push, or 0 if no push was applied."""
        known = self._known.get(number)
        return known.push if known else 0

    def count_push(self, number: int, push: int) -> None:
        """Record that a push of a trainer is applied."""
        self._known[number].push = push

    def write(self) -> list[list[Any]]:
        """Return the roster as JSON: number, UID, incarnation and last push of each trainer."""
        return [[number, one.uid, one.incarnation, one.push] for number, one in self._known.items()]

    @classmethod
    def read(cls, rows: Sequence[Any]) -> Roster:
        """Return the roster from the JSON that `write` has returned, and that has the shape ROSTER."""
        made = cls()
        made._known = {number: KnownTrainer(*known) for number, *known in rows[-MAX_KNOWN:]}
        return made
