"""One request to every service, and all their answers: pieces, repeats and deadlines (the client's sockets).

An array goes in pieces, each a message of its own, and comes back in pieces. What was lost with a connection is found
by asking: a PING follows the request on the same connection, and its answer follows the request's answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pserver import glog, protocol
from pserver.channel import Channel
from pserver.errors import LostPeerError, PaddleError, PeerUnreachableError
from pserver.heartbeat import error_of
from pserver.links import Watch
from pserver.protocol import Buffer, Flag, Message, Op
from pserver.pulse import PULSE
from pserver.transport import Pool

POLL_INTERVAL = 0.25  # seconds
ASK_INTERVAL = 1.0  # seconds between two questions what a server waits for
REPORT_INTERVAL = 30.0  # seconds between two log lines about one wait


def one_piece(channel: Channel) -> int:
    """Return the number of pieces of what fits into one message."""
    return 1


class Ask(NamedTuple):
    """One request as it goes to each service."""

    op: Op
    doing: str  # for messages
    argument: int = 0
    samples: int = 0
    flags: int = Flag.NONE
    note: Callable[[Channel, int], Mapping[str, Any]] | None = None  # of a piece
    pieces: Callable[[Channel], int] = one_piece
    send: Callable[[Channel, int], memoryview | list[memoryview]] | None = None  # the payload of a piece
    answers: Callable[[Channel], int] = one_piece
    take: Callable[[Channel, Message, memoryview], None] | None = None  # a piece of the answer, with its payload
    into: Callable[[Channel, int], list[memoryview] | None] | None = None  # where a piece of the answer goes uncopied


class Exchange:
    """Sends requests of one trainer and collects the answers.

    Args: channels: one to each service, in order.  session, trainer, num_trainers: of the messages.
        peer_timeout, wait_timeout: seconds, see `Client`.  failure: returns why the job cannot go on, if it cannot.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        session: bytes,
        trainer: int,
        num_trainers: int,
        *,
        peer_timeout: float,
        wait_timeout: float,
        failure: Callable[[], PaddleError | None],
    ) -> None:
        self._session, self._trainer = session, trainer
        # every trainer begins with another server, so that they do not all call the first one first
        first = trainer * len(channels) // max(num_trainers, 1)
        self._channels = [*channels[first:], *channels[:first]]
        self._of_link = {channel.link: channel for channel in channels}
        self._watch = Watch([channel.link for channel in self._channels])
        self._pool = Pool()
        self._peer_timeout, self._wait_timeout = peer_timeout, wait_timeout
        self._failure = failure
        for channel in channels:
            channel.link.place = partial(self._place, channel)
        self._sequence = 0
        self._ask = Ask(Op.PING, "nothing")
        self._flags = Flag.NONE

    def request(self, ask: Ask, timeout: float | None = None) -> int:
        """Send a request to every service and return when all have answered; returns what flags the answers had.

        Raises: LostPeerError, PeerUnreachableError: a service does not answer.  PaddleError: what one answered.
        """
        self.begin(ask)
        self.send_rest()
        return self.collect(timeout)

    @property
    def channels(self) -> Sequence[Channel]:
        """The channels in the order in which this trainer calls them."""
        return self._channels

    def begin(self, ask: Ask) -> None:
        """Begin a request; its pieces are sent by `send` or `send_rest`, and `collect` waits for the answers."""
        self._raise_failure()
        self._sequence += 1
        self._ask, self._flags = ask, Flag.NONE
        for channel in self._channels:
            channel.unsent = set(range(ask.pieces(channel)))
            channel.pending = set(range(ask.answers(channel)))
            channel.placed.clear()

    def send_early(self, is_ready: Callable[[Channel, int], bool]) -> None:
        """Send those pieces that are ready already, but for the first of each service, which says that all is said."""
        for channel in self._channels:
            for piece in [one for one in sorted(channel.unsent, reverse=True) if one and is_ready(channel, one)]:
                self.send(channel, piece)
        self._read(0)

    def send_rest(self, flags: int = Flag.NONE) -> None:
        """Send what was not sent yet, to all services by turns, and read meanwhile; `flags` go along."""
        self._ask = self._ask._replace(flags=self._ask.flags | flags)
        waiting = [(channel, sorted(channel.unsent)) for channel in self._channels]
        for turn in range(max(len(pieces) for _, pieces in waiting)):
            if turn:
                self._read(0)
            for channel, pieces in waiting:
                if turn < len(pieces):
                    self.send(channel, pieces[turn])

    def send(self, channel: Channel, piece: int) -> None:
        """Send one piece of the request in hand."""
        ask = self._ask
        channel.unsent.discard(piece)
        sent = () if ask.send is None else ask.send(channel, piece)
        payload: Sequence[Buffer] = (sent,) if isinstance(sent, memoryview) else sent
        flags = ask.flags
        if payload and channel.memory is not None and ask.op == Op.PUSH:
            payload, flags = (), flags | Flag.LOCAL
        message = Message(
            ask.op,
            self._session,
            self._trainer,
            self._sequence,
            ask.argument,
            flags,
            ask.note(channel, piece) if ask.note else {},
            payload,
            piece,
            ask.samples,
        )
        channel.send(protocol.encode(message, channel.key))

    def collect(self, timeout: float | None = None) -> int:
        """Wait for the answers to the request in hand."""
        started = time.monotonic()
        deadline = started + (self._wait_timeout if timeout is None else timeout)
        asked, reported = started, started
        while pending := [channel for channel in self._channels if channel.pending]:
            self._read(POLL_INTERVAL)
            PULSE.turned = now = time.monotonic()
            if now - asked < min(ASK_INTERVAL, self._peer_timeout / 5):
                self._raise_failure()
                continue
            pending = [channel for channel in pending if channel.pending]
            if not pending:
                break
            self._raise_failure()
            if now > deadline:
                raise self._late(pending, now - started)
            asked = now
            self._ask_progress(pending)
            if now - reported > REPORT_INTERVAL:
                reported = now
                glog.info(f"waiting for {now - started:.0f} s to {self._ask.doing}: {_describe(pending)}")
        return self._flags

    def abort(self, reason: str) -> None:
        """Tell every service why this trainer gives up; never waits, never raises."""
        message = Message(Op.ABORT, self._session, self._trainer, self._sequence + 1, note={"reason": reason})
        for channel in self._channels:
            channel.link.send(protocol.encode(message, channel.key))

    # ----- What comes -----

    def _read(self, timeout: float) -> None:
        for link, messages in self._watch.wait(timeout):
            for frames in messages:
                self._receive(self._of_link[link], frames)

    def _place(self, channel: Channel, frames: Sequence[Buffer], size: int) -> Sequence[memoryview]:
        """Return where the payload of an answer is read to: to where it belongs, if that is known and it is signed."""
        op, flags, sequence, piece = protocol.peek(frames[0])
        ask = self._ask
        if ask.into is not None and (op, flags & Flag.ANSWER, sequence) == (ask.op, Flag.ANSWER, self._sequence):
            parts = ask.into(channel, piece) if piece in channel.pending else None
            if parts is not None and sum(map(len, parts)) == size and protocol.is_signed(frames, channel.key):
                channel.placed.add(piece)
                return parts
        return [self._pool.take(size)]

    def _receive(self, channel: Channel, frames: Sequence[Buffer]) -> None:
        try:
            answer = protocol.decode(frames)
        except protocol.ProtocolError as exc:
            raise PeerUnreachableError(f"{channel.name} answers what is no message of ours: {exc}") from exc
        if answer.op == Op.ERROR and (answer.flags & Flag.FATAL or answer.sequence in (0, self._sequence)):
            raise error_of(answer, channel.name)
        if answer.sequence != self._sequence or not protocol.is_signed(frames, channel.key):
            return  # late: the answer to a request that was repeated
        if answer.op == Op.PING:
            self._repeat_if_lost(channel, answer)
        elif answer.op == self._ask.op and answer.piece in channel.pending:
            if self._ask.take is not None and answer.piece not in channel.placed:
                self._ask.take(channel, answer, channel.payload_of(answer))
            self._flags |= answer.flags
            channel.pending.discard(answer.piece)
            if not channel.pending:
                channel.last = f"answered '{self._ask.doing}'"

    def _ask_progress(self, pending: Collection[Channel]) -> None:
        """Ask on the data connection, behind the request, how far a server is with it.

        While some servers do not answer the hello, the others are asked: there is no heartbeat yet to assure them. A
        hello that was lost with its connection is said again: a server does not talk with strangers.
        """
        if self._ask.op == Op.HELLO:
            for channel in pending:
                if channel.breaks != channel.link.breaks:
                    channel.breaks = channel.link.breaks
                    self.send(channel, min(channel.pending))
        others = [channel for channel in self._channels if channel not in pending]
        for channel in others if self._ask.op == Op.HELLO else pending:
            ping = Message(Op.PING, self._session, self._trainer, self._sequence)
            if not channel.link.waiting:  # one that is not there is asked when it is
                channel.link.send(protocol.encode(ping, channel.key))

    def _repeat_if_lost(self, channel: Channel, pong: Message) -> None:
        """Send pieces again that the server never got, or whose answer was lost with a connection.

        The question went out after the request and its answer comes after the request's, on one connection: so what
        has not arrived by now was lost. The server counts a repeated piece once.
        """
        note, ask = pong.note, self._ask
        channel.waits_for = glog.clean(note.get("waits_for", ""))
        if not channel.pending:
            return
        pieces, answers = ask.pieces(channel), ask.answers(channel)
        arrived = note.get("received") == self._sequence and note.get("pieces") == pieces - len(channel.unsent)
        if arrived and note.get("answers", 0) <= answers - len(channel.pending):
            return
        glog.warning(f"{channel.name} lost '{ask.doing}' with a connection; sending it again")
        for piece in range(pieces) if pieces != answers else sorted(channel.pending - channel.unsent):
            self.send(channel, piece)

    # ----- What can go wrong -----

    def _raise_failure(self) -> None:
        failure = self._failure()
        if failure:
            last = "; ".join(
                f"{channel.name} last {channel.last}"
                for channel in self._channels
                if f"{channel.name} is lost" in str(failure)
            )
            raise type(failure)(f"{failure} ({last})" if last else str(failure))

    def _late(self, pending: Collection[Channel], waited: float) -> PaddleError:
        kind = PeerUnreachableError if self._ask.op == Op.HELLO else LostPeerError
        return kind(f"trainer {self._trainer} waited {waited:.0f} s to {self._ask.doing}: {_describe(pending)}")


def _describe(pending: Collection[Channel]) -> str:
    return "; ".join(
        f"{channel.name} " + (f"waits for {channel.waits_for}" if channel.waits_for else "does not answer")
        for channel in list(pending)[:4]
    )
