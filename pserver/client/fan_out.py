"""Send a request to every service, repeat lost pieces, and collect the answers before a deadline.

An array is sent and received in pieces, each of which is a message. A PING follows the request on the same connection,
and the answer to the PING follows the answers to the request. If the PING is answered before the request, a message was
lost when an earlier connection broke.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, LostPeerError, PaddleError, PeerUnreachableError
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_base.runtime.rate_limit import RateLimit
from pserver.client.connection import Poller
from pserver.client.heartbeat import error_of
from pserver.client.request import ServiceRequest
from pserver.client.server_channel import ServerChannel
from pserver.wire import notes, protocol
from pserver.wire.connection import Pool
from pserver.wire.protocol import Buffer, Message, MessageFlag, Op

POLL_INTERVAL = 0.25  # maximum seconds that one read waits for answers
ASK_INTERVAL = 1.0  # seconds between two PINGs to a server that has not answered
REPORT_INTERVAL = 30.0  # seconds between two log lines about one wait
# seconds until a wait before the first push is logged; short, because a server or trainer may not have started
FIRST_REPORT = 2.0
START_HINT = "; start `paddle pserver` there, or correct --pservers and --port"


class FanOut:
    """Sends the requests of one trainer to every service and collects the answers.

    Args: channels: the channel of each service, in the order of the services. trainer: number of this trainer.
        first: number of the service to which requests are sent first. peer_timeout, wait_timeout: see
        `ClientOptions`. failure: a function that returns an error that ends the job, or None.
    """

    def __init__(
        self,
        channels: Sequence[ServerChannel],
        trainer: int,
        *,
        first: int,
        peer_timeout: float,
        wait_timeout: float,
        failure: Callable[[], PaddleError | None],
    ) -> None:
        self._trainer = trainer
        self._channels = [*channels[first:], *channels[:first]]
        self._of_connection = {channel.connection: channel for channel in channels}
        self._poller = Poller([channel.connection for channel in self._channels])
        self._pool = Pool()
        self._peer_timeout, self._wait_timeout = peer_timeout, wait_timeout
        self._failure = failure
        for channel in channels:
            channel.connection.place = partial(self._place, channel)
        self._request = ServiceRequest(Op.PING, "nothing")
        self._has_pushed = False

    def request(self, request: ServiceRequest, timeout: float | None = None) -> int:
        """Send a request to every service, wait for all answers, and return the flags of the answers.

        Raises: LostPeerError, PeerUnreachableError: a service does not answer. PaddleError: a service answered with
            this error.
        """
        self.begin(request)
        self.send_rest()
        return self.collect(timeout)

    def begin(self, request: ServiceRequest) -> None:
        """Begin a request; `send` or `send_rest` send its pieces, and `collect` waits for the answers."""
        self._raise_failure()
        self._request = request
        self._has_pushed |= request.op == Op.PUSH
        for channel in self._channels:
            channel.begin(request.count_pieces(channel), request.count_answers(channel))

    def send_early(self, is_ready: Callable[[ServerChannel, int], bool]) -> None:
        """Send the pieces that are ready, except piece 0 of each service, whose flags are known only in `send_rest`."""
        for channel in self._channels:
            for piece in [one for one in sorted(channel.unsent, reverse=True) if one and is_ready(channel, one)]:
                self.send(channel, piece)
        self._read(0)

    def send_rest(self, flags: int = MessageFlag.NONE) -> None:
        """Send the remaining pieces to all services in turn, with `flags` added, and receive answers meanwhile."""
        self._request.flags |= flags
        waiting = [(channel, sorted(channel.unsent)) for channel in self._channels]
        for turn in range(max(len(pieces) for _, pieces in waiting)):
            if turn:
                self._read(0)
            for channel, pieces in waiting:
                if turn < len(pieces):
                    self.send(channel, pieces[turn])

    def send(self, channel: ServerChannel, piece: int) -> None:
        """Send one piece of the current request."""
        request = self._request
        payload, flags, argument = request.payload_for(channel, piece), request.flags, request.argument
        if request.op == Op.PUSH and (length := channel.measure_local(payload)):
            payload, flags, argument = (), flags | MessageFlag.LOCAL, length
        message = Message(
            request.op,
            channel.session,
            self._trainer,
            channel.sequence,
            argument,
            flags,
            request.note_for(channel, piece),
            payload,
            piece,
            request.samples,
        )
        try:
            channel.send(message)
        except protocol.ProtocolError as exc:
            raise BugError(f"trainer {self._trainer} cannot {request.doing}: {exc}") from exc

    def collect(self, timeout: float | None = None) -> int:
        """Wait for the answers to the current request, and return their flags."""
        started = time.monotonic()
        deadline = started + (self._wait_timeout if timeout is None else timeout)
        asked = started
        lines = RateLimit(REPORT_INTERVAL, started + (REPORT_INTERVAL if self._has_pushed else FIRST_REPORT))
        while pending := [channel for channel in self._channels if channel.pending]:
            self._read(POLL_INTERVAL)
            self._raise_refusal(pending)
            LIVENESS.turned = now = time.monotonic()
            pending = [channel for channel in pending if channel.pending]
            if not pending:
                break
            self._raise_failure()
            if interruption := self._request.interruption():
                raise interruption
            if now - asked < min(ASK_INTERVAL, self._peer_timeout / 5):
                continue
            if now > deadline:
                raise self._late(pending, now - started)
            asked = now
            self._ask_progress(pending)
            if lines.is_due(now):
                hint = START_HINT if self._request.op == Op.HELLO and _has_silent(pending) else ""
                glog.info(f"has waited {now - started:.0f} s to {self._request.doing}: {_describe(pending)}{hint}")
        return self._request.answer_flags

    def abort(self, reason: str) -> None:
        """Send every service the reason why this trainer gives up. The method neither blocks nor raises an error."""
        for channel in self._channels:
            message = Message(Op.ABORT, channel.session, self._trainer, channel.sequence + 1, note={"reason": reason})
            channel.connection.send(message)

    # ----- Receiving -----

    def _read(self, timeout: float) -> None:
        for connection, messages in self._poller.wait(timeout):
            for frames in messages:
                self._receive(self._of_connection[connection], frames)

    def _place(self, channel: ServerChannel, frames: Sequence[Buffer], size: int) -> Sequence[memoryview]:
        """Return the memory for the payload of an answer.

        A signed answer is received directly into the final place of its payload, if this place is known. Any other
        answer is received into a buffer of the pool.
        """
        op, flags, sequence, piece = protocol.peek(frames[0])
        request = self._request
        if (op, flags & MessageFlag.ANSWER, sequence) == (request.op, MessageFlag.ANSWER, channel.sequence):
            parts = request.place_for(channel, piece) if piece in channel.pending else None
            key = channel.connection.keys.receiving
            if parts is not None and sum(map(len, parts)) == size and protocol.is_signed(frames, key):
                channel.placed.add(piece)
                return parts
        return [self._pool.take(size)]

    def _receive(self, channel: ServerChannel, frames: Sequence[Buffer]) -> None:
        """Handle a message of a server.

        Raises: PaddleError: the message reports this error, or is not a valid answer.
        """
        try:
            answer = protocol.decode(frames)
        except protocol.ProtocolError as exc:
            raise PeerUnreachableError(
                f"{channel.name} sends an answer that is not a message of this protocol: {exc}"
            ) from exc
        if answer.op == Op.ERROR and (answer.flags & MessageFlag.FATAL or answer.sequence in (0, channel.sequence)):
            raise error_of(answer, channel.name)
        if answer.sequence != channel.sequence:
            return  # a late answer to an earlier, repeated request
        try:
            self._take(channel, answer)
        except PaddleError:
            raise
        except Exception as exc:  # an authenticated but faulty message must not end this trainer with an unknown error
            raise LostPeerError(
                f"{channel.name} sends an invalid answer to '{self._request.doing}' "
                f"({type(exc).__name__}: {glog.clean(exc, 200)})"
            ) from exc

    def _take(self, channel: ServerChannel, answer: Message) -> None:
        if answer.op == Op.PING:
            self._repeat_if_lost(channel, answer)
        elif answer.op == self._request.op and answer.piece in channel.pending:
            if answer.piece not in channel.placed:
                self._request.take(channel, answer, channel.payload_of(answer))
            self._request.answer_flags |= answer.flags
            channel.pending.discard(answer.piece)
            if not channel.pending:
                channel.last = f"answered '{self._request.doing}'"

    def _ask_progress(self, pending: Collection[ServerChannel]) -> None:
        """Send a PING on the data connection, after the request. The answer reports what a server has received, and
        what it waits for.

        While some servers have not answered the hello, the PINGs go to the servers that have answered, because
        heartbeats begin only after the hello. A hello that was lost when its connection broke is sent again, because a
        server does not answer a PING of a trainer that has not joined.
        """
        if self._request.op == Op.HELLO:
            for channel in pending:
                if channel.breaks != channel.connection.breaks:
                    channel.breaks = channel.connection.breaks
                    self.send(channel, min(channel.pending))
        others = [channel for channel in self._channels if channel not in pending]
        for channel in others if self._request.op == Op.HELLO else pending:
            ping = Message(Op.PING, channel.session, self._trainer, channel.sequence)
            if not channel.connection.waiting:  # without a connection, a PING would only wait behind other messages
                channel.connection.send(ping)

    def _repeat_if_lost(self, channel: ServerChannel, pong: Message) -> None:
        """Send pieces again that the server never received, or whose answer was lost when a connection broke.

        The PING was sent after the request on the same connection, so its answer arrives after the answers to the
        request. The PING's answer contains the numbers of received pieces and of sent answers. If this trainer has sent
        more pieces or has received fewer answers, some were lost. The server counts a repeated piece once.
        """
        note, request = pong.note, self._request
        channel.waits_for = glog.clean(note.get("waits_for", ""))
        if not channel.pending:
            return
        pieces, answers = request.count_pieces(channel), request.count_answers(channel)
        arrived = note.get("received") == channel.sequence and note.get("pieces") == pieces - len(channel.unsent)
        if arrived and notes.get_integer(note, "answers") <= answers - len(channel.pending):
            return
        glog.warning(
            f"the connection to {channel.name} broke, and '{request.doing}' or its answer was lost; "
            "the request is sent again"
        )
        for piece in range(pieces) if pieces != answers else sorted(channel.pending - channel.unsent):
            self.send(channel, piece)

    # ----- Errors -----

    def _raise_refusal(self, pending: Collection[ServerChannel]) -> None:
        """Raise an error if a server's handshake has failed, because this trainer then cannot join."""
        for channel in pending if self._request.op == Op.HELLO else ():
            if channel.connection.fault:
                raise PeerUnreachableError(
                    f"{channel.name} is not a server of trainer {self._trainer}'s job: {channel.connection.fault}"
                )

    def _raise_failure(self) -> None:
        failure = self._failure()
        if failure:
            last = "; ".join(
                f"{channel.name} last {channel.last}"
                for channel in self._channels
                if f"{channel.name} is lost" in str(failure)
            )
            raise type(failure)(f"{failure} ({last})" if last else str(failure))

    def _late(self, pending: Collection[ServerChannel], waited: float) -> PaddleError:
        kind = PeerUnreachableError if self._request.op == Op.HELLO else LostPeerError
        return kind(f"trainer {self._trainer} waited {waited:.0f} s to {self._request.doing}: {_describe(pending)}")


def _has_silent(pending: Collection[ServerChannel]) -> bool:
    return any(not channel.waits_for for channel in pending)


def _describe(pending: Collection[ServerChannel]) -> str:
    return "; ".join(
        f"{channel.name} " + (f"waits for {channel.waits_for}" if channel.waits_for else channel.connection.silence)
        for channel in list(pending)[:4]
    )
