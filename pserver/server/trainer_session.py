"""A trainer that has joined a service: its connections, its current request and the answers to this request. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from paddle_base.runtime.errors import PaddleError
from pserver.wire import protocol
from pserver.wire.authentication import DATA, HEARTBEAT, TOKEN_BYTES
from pserver.wire.protocol import NOTHING, Message, MessageFlag, Op
from pserver.wire.shared_memory import SharedMemory
from pserver.wire.views import EPOCH_CODE, EpochChangedError

if TYPE_CHECKING:
    from pserver.server.arithmetic import Mode

# the name of a connection and a message for it; None closes the connection after the pending messages are sent
Outgoing = tuple[bytes, Message | None]
_NO_MEMORY = memoryview(b"")


@dataclass
class RequestInHand:
    """The current request of a trainer."""

    sequence: int = 0
    pieces: set[int] = field(default_factory=set)  # numbers of the received pieces of the request
    answers: dict[int, Message] = field(default_factory=dict)  # the answers to each piece
    doing: str = "joined"  # the trainer's last action, for messages

    def begin(self, sequence: int, doing: str) -> None:
        """Begin another request, of which no piece is received."""
        self.sequence, self.doing = sequence, doing
        self.pieces.clear()
        self.answers.clear()


@dataclass
class PassProgress:
    """The position of a trainer in its passes."""

    passes: int = 0  # number of finished passes
    batch: int = 0  # number of batches of the pass whose steps were taken
    starts_at: int = 0  # number of batches of the pass that an earlier attempt has trained
    pushed: float = 0.0  # time at which the last piece of a gradient arrived, in seconds of the service's clock
    keeps_values: bool = False  # whether the answer to the trainer's gradient must contain no values
    is_waiting: bool = False  # whether the trainer waits for the start of a pass, or for initial values
    has_finished_pass: bool = True


class TrainerSession:
    """A trainer that has joined.

    Args: number: the trainer's id. token: the first part of the names of its connections. address: the trainer's
        address, for log messages. hello: the note of its hello. session: bytes that identify the job and attempt in
        every message. heard: time at which it joined, in seconds. sequence: sequence number of its hello.
    """

    def __init__(
        self,
        number: int,
        token: bytes,
        address: str,
        hello: dict[str, Any],
        *,
        session: bytes,
        heard: float,
        sequence: int = 0,
    ) -> None:
        self.number, self.address, self.hello = number, address, hello
        # the names of the trainer's two connections; no other connection belongs to this trainer
        self.names = (token + DATA, token + HEARTBEAT)
        self.session = session
        self.heard = heard
        self.suspected: float | None = None  # time at which the trainer's connection closed
        self.has_left = False
        self.checkpoint_part: Any = None  # JSON; the trainer's part of a checkpoint
        self.memory: SharedMemory | None = None  # contains the trainer's payloads, if the trainer runs on this host
        self.request = RequestInHand(sequence)
        self.progress = PassProgress()

    def __str__(self) -> str:
        return f"trainer {self.number} at {self.address}"

    @property
    def token(self) -> bytes:
        """The first part of the names of the trainer's connections."""
        return self.names[0][:TOKEN_BYTES]

    # ----- Requests -----

    def has_taken(self, message: Message) -> bool:
        """Return whether this piece of the current request has arrived before."""
        return message.sequence == self.request.sequence and message.piece in self.request.pieces

    def take(self, message: Message, doing: str) -> None:
        """Record a piece of a request; the first piece begins the request."""
        if message.sequence != self.request.sequence:
            self.request.begin(message.sequence, doing)
        self.request.pieces.add(message.piece)

    def take_push(self, sequence: int, flags: int, now: float, piece: int = 0) -> None:
        """Record a piece of a gradient, which shows that the trainer is alive.

        Args: flags: those of the message. now: the time in seconds.
        """
        self.heard, self.suspected = now, None
        progress, request = self.progress, self.request
        if sequence != request.sequence:
            request.begin(sequence, f"pushed batch {progress.batch + 1} of pass {progress.passes}")
        request.pieces.add(piece)
        progress.pushed, progress.keeps_values = now, flags & MessageFlag.KEEP != 0

    def payload_of(self, message: Message) -> memoryview:
        """Return the array of a message, from the message itself or from the shared memory."""
        if message.flags & MessageFlag.LOCAL and self.memory is not None:
            return protocol.cut_local(self.memory.outbox, message)
        return memoryview(message.payload[0] if message.payload else b"")

    @property
    def inbox(self) -> memoryview:
        """The shared memory for arrays to the trainer; empty if there is none."""
        return _NO_MEMORY if self.memory is None else self.memory.inbox

    # ----- Answers -----

    def send(self, message: Message) -> Outgoing:
        """Return a message with the name of the trainer's data connection."""
        return self.names[0], message

    def acknowledge(self, message: Message) -> Outgoing:
        """Confirm a piece of a request."""
        return self.reply(message.op, piece=message.piece)

    def reply(
        self,
        op: Op,
        payload: memoryview | None = None,
        *,
        piece: int = 0,
        flags: int = MessageFlag.NONE,
        note: Mapping[str, Any] = NOTHING,
    ) -> Outgoing:
        """Answer the current request, and store the answer.

        The payload is not copied, because the next step changes the values only after every trainer has received them
        and has pushed.
        """
        flags |= MessageFlag.ANSWER
        parts: tuple[memoryview, ...] = () if payload is None else (payload,)
        shared = protocol.cut(self.inbox, piece)
        argument = 0
        if payload is not None and 0 < payload.nbytes <= len(shared):
            argument = payload.nbytes
            if self.memory is None or not self.memory.holds(payload):  # otherwise it is this piece of the shared memory
                shared[:argument] = payload
            flags, parts = flags | MessageFlag.LOCAL, ()
        request = self.request
        answer = Message(op, self.session, self.number, request.sequence, argument, flags, note, parts, piece)
        request.answers[piece] = answer
        return self.names[0], answer

    def reply_array(
        self, op: Op, array: memoryview, note: Mapping[str, Any] = NOTHING, flags: int = MessageFlag.NONE
    ) -> list[Outgoing]:
        """Answer with an array of bytes, piece by piece; the first piece contains the note, all pieces the flags."""
        return [
            self.reply(op, protocol.cut(array, piece), piece=piece, flags=flags, note=NOTHING if piece else note)
            for piece in range(protocol.count_pieces(len(array)))
        ]

    def refuse(self, error: PaddleError) -> Outgoing:
        """Answer every piece of the current request with one error."""
        answer = make_error(self.session, self.number, self.request.sequence, error)
        self.request.answers = dict.fromkeys(self.request.pieces, answer)
        return self.names[0], answer

    def repeat(self, piece: int) -> list[Outgoing]:
        """Return the answers to a repeated piece, which counts once.

        A request may have more answers than pieces. Every piece then brings back each n-th answer, for n pieces.
        """
        request = self.request
        count = len(request.pieces)
        return [
            self.send(answer)
            for number, answer in request.answers.items()
            if number == piece or (number >= count and number % count == piece)
        ]

    def answer_ping(self, ping: Message, waits_for: str) -> Message:
        """Return the answer to a PING: the progress of the current request, and what the service waits for."""
        note = {
            "received": self.request.sequence,
            "pieces": len(self.request.pieces),
            "answers": len(self.request.answers),
            "waits_for": waits_for,
        }
        return Message(Op.PING, self.session, self.number, ping.sequence, ping.argument, MessageFlag.ANSWER, note)


class PushForm(NamedTuple):
    """What is known of a PUSH of one piece before it arrives.

    `rounds`: the object that receives the gradient. `length`: bytes of the gradient.
    """

    trainer: TrainerSession
    rounds: Mode
    sequence: int
    length: int

    @property
    def is_local(self) -> bool:
        """Whether the gradient is in shared memory."""
        return self.trainer.memory is not None

    @property
    def header(self) -> bytes:
        """The header, see `protocol.pack_push`."""
        trainer, _, sequence, length = self
        return protocol.pack_push(trainer.session, trainer.number, sequence, length, is_local=self.is_local)


def reply_values(trainers: Sequence[TrainerSession], values: memoryview, piece: int, flags: int) -> list[Outgoing]:
    """Answer a piece of a PUSH of each trainer with the same values, as `TrainerSession.reply` does.

    A trainer that keeps its values gets none.
    """
    out: list[Outgoing] = []
    op, whole, nothing, of_answer = Op.PUSH, (values,), (), flags | MessageFlag.ANSWER
    for trainer in trainers:
        keeps_values, request = trainer.progress.keeps_values, trainer.request
        if trainer.memory is not None:
            out.append(trainer.reply(op, None if keeps_values else values, piece=piece, flags=flags))
            continue
        parts = nothing if keeps_values else whole
        answer = Message(op, trainer.session, trainer.number, request.sequence, 0, of_answer, NOTHING, parts, piece)
        request.answers[piece] = answer
        out.append((trainer.names[0], answer))
    return out


def make_error(session: bytes, trainer: int, sequence: int, error: PaddleError, *, is_fatal: bool = False) -> Message:
    """Return the message for an error.

    Args: trainer: the number of the receiving trainer, or -1 if it is unknown.
        is_fatal: whether the job cannot continue.
    """
    flags = MessageFlag.ANSWER | (MessageFlag.FATAL if is_fatal else MessageFlag.NONE)
    note: dict[str, Any] = {"message": str(error)[: protocol.MAX_REASON], "exit_code": error.exit_code}
    if isinstance(error, EpochChangedError):
        note |= {"code": EPOCH_CODE, "epoch": error.epoch}
    return Message(Op.ERROR, session, trainer, sequence, flags=flags, note=note)
