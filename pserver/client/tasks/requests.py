"""The requests of a task job: ENTER, COMMIT, GOODBYE, and pushes that have a number or belong to a round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from paddle_base.runtime.errors import LostPeerError, PaddleError
from pserver.client.server_channel import (
    FetchVector,
    PushVector,
    SendVector,
    ServerChannel,
    ServiceRequest,
    VectorTransfer,
)
from pserver.client.sparse_rows import PackedRows, SendRows
from pserver.optim.settings import Array
from pserver.wire.protocol import Message, MessageFlag, Op
from pserver.wire.views import EnterAnswer, EpochChangedError, MembershipView, read_answer, write_view

Check = Callable[[], bool]


class Goodbye(ServiceRequest):
    """The GOODBYE of a trainer. The request waits only for connected services, because a server that has ended needs no
    GOODBYE.

    Args: channels: the channels of all services.
    """

    def __init__(self, channels: Collection[ServerChannel]) -> None:
        super().__init__(Op.GOODBYE, "say goodbye")
        self._channels = channels

    def interruption(self) -> PaddleError | None:
        """Return an error if all services that have not answered have disconnected."""
        waiting = [one for one in self._channels if one.pending]
        if any(one.connection.closed is None for one in waiting):
            return None
        names = ", ".join(one.name for one in waiting[:4])
        return LostPeerError(f"the connection to {names} is closed; a server removes a disconnected trainer by itself")


class EnterRequest(ServiceRequest):
    """Enter a view; a service then refuses the COMMIT of a trainer that is still in an earlier view.

    Attributes: answers: the state of the rounds of each service.
    """

    def __init__(self, view: MembershipView) -> None:
        super().__init__(Op.ENTER, f"enter epoch {view.epoch}", note=write_view(view))
        self.answers: dict[ServerChannel, EnterAnswer] = {}

    def take(self, channel: ServerChannel, answer: Message, payload: memoryview) -> None:
        """Store the answer of a service.

        Raises: BugError: the message is not an answer to ENTER.
        """
        self.answers[channel] = read_answer(answer.note)


class CommitRound(ServiceRequest):
    """Commit a round on some of the services; their answers confirm the commit.

    Args: channels: the channels of the services that commit, among them those of other clients.
    """

    def __init__(self, doing: str, note: Mapping[str, Any], channels: Collection[ServerChannel]) -> None:
        super().__init__(Op.COMMIT, doing, note=note)
        self._asked = frozenset(channels)

    def count_pieces(self, channel: ServerChannel) -> int:
        """Return the number of pieces for a service: 1 if the service is to commit, otherwise 0."""
        return int(channel in self._asked)

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the number of pieces of a service's answer: 1 if the service is to commit, otherwise 0."""
        return self.count_pieces(channel)


class CommitValues(FetchVector):
    """Commit a round on dense services; the answers contain the values after the step, which are received in place."""

    def __init__(self, doing: str, note: Mapping[str, Any], channels: Collection[ServerChannel], values: Array) -> None:
        super().__init__(Op.COMMIT, doing, values, note=note)
        self._asked = frozenset(channels)

    def count_pieces(self, channel: ServerChannel) -> int:
        """Return the number of pieces for a service: 1 if the service is to commit, otherwise 0."""
        return int(channel in self._asked)

    def describe_transfer(self) -> VectorTransfer:
        """Return the values."""
        return VectorTransfer(None, self._values)

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the number of pieces of a service's values, or 0 if the service is not to commit."""
        return super().count_answers(channel) if channel in self._asked else 0

    def place_for(self, channel: ServerChannel, piece: int) -> list[memoryview] | None:
        """Return the memory of the values of a piece."""
        return channel.layout.parts_of(self._values, piece)


class CountedPush(PushVector):
    """A gradient that the server applies alone, in its own step. The note contains the number of the push."""

    is_note_repeated = True

    def __init__(self, doing: str, gradient: Array, values: Array, samples: int, note: Mapping[str, Any]) -> None:
        super().__init__(doing, gradient, values, samples)
        self.note = note


class CountedRows(SendRows):
    """Gradients of rows that the server applies alone, in one step. Their note contains the number of the push."""

    def __init__(self, doing: str, packed: PackedRows, samples: int, note: Mapping[str, Any]) -> None:
        super().__init__(Op.PUSH, doing, packed, samples=samples)
        self.note = note

    def note_for(self, channel: ServerChannel, piece: int) -> Mapping[str, Any]:
        """Return the note, which is the same for every piece. The note of an array of several pieces also contains the
        length of the array.
        """
        return {**super().note_for(channel, piece), **self.note}


class RoundPush(SendVector):
    """A gradient of a round. A service answers all pieces, without values, when it has the gradients of all members.

    Args: is_current: a function that returns whether the round's view is still the newest view of this trainer.
    """

    is_note_repeated = True

    def __init__(self, doing: str, gradient: Array, samples: int, note: Mapping[str, Any], is_current: Check) -> None:
        super().__init__(Op.PUSH, doing, gradient, samples=samples)
        self.note = note
        self._is_current = is_current

    def describe_transfer(self) -> VectorTransfer:
        """Return the gradient."""
        return VectorTransfer(self._flat, None, MessageFlag.ANSWER | MessageFlag.PREPARED)

    def interruption(self) -> PaddleError | None:
        """Return an error if the view has changed. The round may then wait for a member that is lost."""
        return _find_change(self.doing, self._is_current)


class RoundRows(CountedRows):
    """Gradients of rows of a round; a service answers when it has the gradients of all members."""

    def describe_transfer(self) -> VectorTransfer:
        """Return the memory of all arrays."""
        return VectorTransfer(self._packed.memory, None, MessageFlag.ANSWER | MessageFlag.PREPARED)

    def __init__(
        self,
        doing: str,
        packed: PackedRows,
        samples: int,
        note: Mapping[str, Any],
        is_current: Check,
    ) -> None:
        super().__init__(doing, packed, samples, note)
        self._is_current = is_current

    def interruption(self) -> PaddleError | None:
        """Return an error if the view has changed."""
        return _find_change(self.doing, self._is_current)


def _find_change(doing: str, is_current: Check) -> PaddleError | None:
    return None if is_current() else EpochChangedError(f"the view has changed: this trainer does not {doing}")
