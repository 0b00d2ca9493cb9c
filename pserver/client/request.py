"""The requests to services that send or fetch arrays, and the memory that the answers are stored in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pserver.client.server_channel import ServerChannel, ServiceRequest
from pserver.optim.settings import Array
from pserver.wire import protocol
from pserver.wire.protocol import NOTHING, Buffer, Message, MessageFlag, Op


class FetchVector(ServiceRequest):
    """A request whose answers contain the services' elements of a flat vector, which are received in place."""

    def __init__(
        self, op: Op, doing: str, values: Array, argument: int = 0, *, note: Mapping[str, Any] = NOTHING
    ) -> None:
        super().__init__(op, doing, argument, note=note)
        self._values = values

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the number of pieces that contain the service's elements."""
        return channel.layout.pieces

    def take(self, channel: ServerChannel, answer: Message, payload: memoryview) -> None:
        """Copy the elements of a piece into the vector."""
        super().take(channel, answer, payload)
        channel.layout.scatter(payload, self._values, answer.piece)


class SendVector(ServiceRequest):
    """A request that sends every service its elements of a flat vector; each piece is answered."""

    def __init__(self, op: Op, doing: str, flat: Array, *, samples: int = 0, flags: int = MessageFlag.NONE) -> None:
        super().__init__(op, doing, samples=samples, flags=flags)
        self._flat = flat

    def count_pieces(self, channel: ServerChannel) -> int:
        """Return the number of pieces that contain the service's elements."""
        return channel.layout.pieces

    def payload_for(self, channel: ServerChannel, piece: int) -> Sequence[Buffer]:
        """Return the elements of a piece."""
        return channel.gather(self._flat, piece)

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the number of answers, which equals the number of sent pieces."""
        return channel.layout.pieces


class PushVector(SendVector):
    """A gradient for every service; the answers contain the new values, which are received in place.

    Args: samples: number of samples of this trainer's batch.
    """

    def __init__(self, doing: str, gradient: Array, values: Array, samples: int) -> None:
        super().__init__(Op.PUSH, doing, gradient, samples=samples)
        self._values = values

    def place_for(self, channel: ServerChannel, piece: int) -> list[memoryview] | None:
        """Return the memory of the values of a piece."""
        return channel.layout.parts_of(self._values, piece)

    def take(self, channel: ServerChannel, answer: Message, payload: memoryview) -> None:
        """Copy the values of a piece into the vector."""
        channel.layout.scatter(payload, self._values, answer.piece)


class SendArrays(ServiceRequest):
    """A request that sends each service a separate array; each piece is answered."""

    def __init__(self, op: Op, doing: str, arrays: Mapping[ServerChannel, memoryview], argument: int = 0) -> None:
        super().__init__(op, doing, argument)
        self._arrays = arrays

    def count_pieces(self, channel: ServerChannel) -> int:
        """Return the number of pieces of the service's array."""
        return protocol.count_pieces(len(self._arrays[channel]))

    def payload_for(self, channel: ServerChannel, piece: int) -> Sequence[Buffer]:
        """Return a piece of the service's array."""
        return (protocol.cut(self._arrays[channel], piece),)

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the number of answers, which equals the number of sent pieces."""
        return self.count_pieces(channel)


class FetchArrays(ServiceRequest):
    """A FETCH request that each service answers with a separate array, which is copied into the given memory."""

    def __init__(self, doing: str, argument: int, arrays: Mapping[ServerChannel, memoryview]) -> None:
        super().__init__(Op.FETCH, doing, argument)
        self._arrays = arrays

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the number of pieces of the service's array."""
        return protocol.count_pieces(len(self._arrays[channel]))

    def take(self, channel: ServerChannel, answer: Message, payload: memoryview) -> None:
        """Copy a piece into the array of the service."""
        protocol.cut(self._arrays[channel], answer.piece)[:] = payload
