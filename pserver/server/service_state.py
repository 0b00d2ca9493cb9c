"""The state that the handlers of one service share: the service's options, its values and the progress of its pass.

The module uses no sockets and no clock. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError
from pserver.aggregate.staleness import StalenessLimits
from pserver.server.admission import Identity
from pserver.server.stragglers import BarrierLog, Stragglers
from pserver.server.trainer_session import Outgoing, TrainerSession
from pserver.wire.protocol import NOTHING, Message, MessageFlag, Op

if TYPE_CHECKING:
    from pserver.server.arithmetic import Mode
    from pserver.store.shard import Shard

# seconds until the trainers that a round waits for are logged, and until each repetition of this log line
STALL_PERIOD = 60.0


@dataclass(frozen=True)
class ServiceOptions:
    """The settings of a service."""

    peer_timeout: float = 10.0  # seconds
    join_timeout: float = 600.0  # seconds
    log_period: int = 500  # number of batches between two log lines of a pass; 0: no log lines
    staleness_limits: StalenessLimits = field(default_factory=StalenessLimits)
    threads: int = 1  # number of threads that take a step together
    barrier_log: BarrierLog = field(default_factory=BarrierLog)


class ServiceCounters:
    """Counters of a service since its start, for the metrics; other threads may read them at any moment."""

    rounds = passes = 0
    step_seconds = 0.0  # seconds spent in the optimiser
    round_seconds = 0.0  # seconds from the first piece of a round to its end, added up over all rounds


class ServiceState:
    """The values of a service and the state of its pass.

    Attributes:

    - `rounds`: the object that receives the gradients; None until all initial values have arrived.
    - `batch`: number of rounds in this pass; in asynchronous training, number of trainer 0's batches.
    - `active`: the trainers that have not finished the pass, sorted by number.
    - `stall_due`: time of the next log line about the trainers that a round waits for, in seconds of the event loop's
      clock.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.rounds: Mode | None = None
        self.in_pass = False
        self.batch = 0
        self.active: list[TrainerSession] = []
        self.stall_due = float("inf")
        self.counters = ServiceCounters()
        self.stragglers = Stragglers()

    @property
    def shard(self) -> Shard | None:
        """The values and the optimiser, or None before the initial values have arrived."""
        return self.rounds.shard if self.rounds else None

    def require_rounds(self) -> Mode:
        """Return the object that receives the gradients.

        Raises: BugError: the service has no initial values yet.
        """
        if self.rounds is None:
            raise BugError(f"{self.identity} has no values yet")
        return self.rounds

    def reply_values(self, trainer: TrainerSession, op: Op, note: Mapping[str, Any] = NOTHING) -> list[Outgoing]:
        """Answer a request with the values."""
        glog.info("pserver: getParameter", at="ParameterServer2.cpp:707")
        return trainer.reply_array(op, self.require_rounds().values, note)


def length_of(message: Message) -> int:
    """Return the length in bytes of an array of rows, from the message's note or from the length of its only piece.

    The result is -1 if the note is invalid.
    """
    piece = message.argument if message.flags & MessageFlag.LOCAL else sum(map(len, message.payload))
    length = message.note.get("bytes", piece)
    return length if isinstance(length, int) else -1
