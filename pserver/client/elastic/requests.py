"""The requests of an elastic job: ENTER, COMMIT, and pushes that say which push or round they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from pserver.client.request import FetchVector, PushVector, SendVector, ServiceRequest
from pserver.client.server_channel import ServerChannel
from pserver.client.sparse_rows import SendRows
from pserver.optim.settings import Array
from pserver.wire.protocol import Message, Op
from pserver.wire.views import EnterAnswer, EpochChangedError, MembershipView, read_answer, write_view
from runtime.errors import LostPeerError, PaddleError

Check = Callable[[], bool]


class Goodbye(ServiceRequest):
    """The end of a trainer. It waits only for services that are connected: a server that has ended is no loss now.

    Args: channels: to all services.
    """

    def __init__(self, channels: Collection[ServerChannel]) -> None:
        super().__init__(Op.GOODBYE, "say goodbye")
        self._channels = channels

    def interruption(self) -> PaddleError | None:
        """Return that the services which have not answered are gone."""
        waiting = [one for one in self._channels if one.pending]
        if any(one.connection.closed is None for one in waiting):
            return None
        names = ", ".join(one.name for one in waiting[:4])
        return LostPeerError(f"{names}: the connection is closed; a server forgets a trainer that is gone")


class EnterRequest(ServiceRequest):
    """Take part in the rounds of a view, whose earlier rounds end with this.

    Attributes: answers: what each service says of its rounds.
    """

    def __init__(self, view: MembershipView) -> None:
        super().__init__(Op.ENTER, f"enter epoch {view.epoch}", note=write_view(view))
        self.answers: dict[ServerChannel, EnterAnswer] = {}

    def take(self, channel: ServerChannel, answer: Message, payload: memoryview) -> None:
        """Keep what a service says.

        Raises: BugError: it is no answer to ENTER.
        """
        self.answers[channel] = read_answer(answer.note)


class CommitRound(ServiceRequest):
    """Take the step of a round, at some of the services; they answer that it is done.

    Args: channels: these services.
    """

    def __init__(self, doing: str, note: Mapping[str, Any], channels: Collection[ServerChannel]) -> None:
        super().__init__(Op.COMMIT, doing, note=note)
        self._asked = frozenset(channels)

    def count_pieces(self, channel: ServerChannel) -> int:
        """Return 1 for the services in question."""
        return int(channel in self._asked)

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the same number."""
        return self.count_pieces(channel)


class CommitValues(FetchVector):
    """The same for dense services, whose answers bring the values after the step, which are read into their places."""

    def __init__(self, doing: str, note: Mapping[str, Any], channels: Collection[ServerChannel], values: Array) -> None:
        super().__init__(Op.COMMIT, doing, values, note=note)
        self._asked = frozenset(channels)

    def count_pieces(self, channel: ServerChannel) -> int:
        """Return 1 for the services in question."""
        return int(channel in self._asked)

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the number of pieces of the service's elements."""
        return super().count_answers(channel) if channel in self._asked else 0

    def place_for(self, channel: ServerChannel, piece: int) -> list[memoryview] | None:
        """Return the memory of the values of a piece."""
        return channel.layout.parts_of(self._values, piece)


class CountedPush(PushVector):
    """A gradient that is a step of its own, with the note that says which one of this trainer it is."""

    def __init__(self, doing: str, gradient: Array, values: Array, samples: int, note: Mapping[str, Any]) -> None:
        super().__init__(doing, gradient, values, samples)
        self.note = note

    def note_for(self, channel: ServerChannel, piece: int) -> Mapping[str, Any]:
        """Return the note, which every piece has."""
        return self.note


class CountedRows(SendRows):
    """The same for the rows of tables."""

    def __init__(
        self, doing: str, bodies: Mapping[ServerChannel, memoryview], samples: int, note: Mapping[str, Any]
    ) -> None:
        super().__init__(Op.PUSH, doing, bodies, samples=samples)
        self.note = note

    def note_for(self, channel: ServerChannel, piece: int) -> Mapping[str, Any]:
        """Return the note, which every piece has, with the length of an array of several pieces."""
        return {**super().note_for(channel, piece), **self.note}


class RoundPush(SendVector):
    """A gradient of a round; each piece is answered when the service has those of all members, without values.

    Args: is_current: whether the round's view is still the newest one that this trainer knows.
    """

    def __init__(self, doing: str, gradient: Array, samples: int, note: Mapping[str, Any], is_current: Check) -> None:
        super().__init__(Op.PUSH, doing, gradient, samples=samples)
        self.note = note
        self._is_current = is_current

    def note_for(self, channel: ServerChannel, piece: int) -> Mapping[str, Any]:
        """Return the note, which every piece has."""
        return self.note

    def interruption(self) -> PaddleError | None:
        """Return that the view has changed: a round waits for a member that may be gone."""
        return None if self._is_current() else EpochChangedError(f"the view has changed: not going on to {self.doing}")


class RoundRows(CountedRows):
    """The same for the rows of tables."""

    def __init__(
        self,
        doing: str,
        bodies: Mapping[ServerChannel, memoryview],
        samples: int,
        note: Mapping[str, Any],
        is_current: Check,
    ) -> None:
        super().__init__(doing, bodies, samples, note)
        self._is_current = is_current

    def interruption(self) -> PaddleError | None:
        """Return that the view has changed."""
        return None if self._is_current() else EpochChangedError(f"the view has changed: not going on to {self.doing}")
