"""A PUSH that is known before it arrives, except for its gradient, its samples and two flags. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pserver.server.peer import Peer
from pserver.server.trainer_session import TrainerSession
from pserver.wire import protocol
from pserver.wire.protocol import Message, MessageFlag

if TYPE_CHECKING:
    from paddle_base.kernels.server_rounds import ExpectedMessage
    from pserver.optim.settings import Array
    from pserver.server.arithmetic import Mode


@dataclass(eq=False, slots=True)
class ForeseenPush:
    """The next push on a connection; the same object stands for the push of each round.

    - `rounds`: the object that receives the gradient.
    - `expected`: the received bytes and their place in memory.
    - `gradient`: the place of the gradient, in this memory or in the memory that is shared with the trainer.
    - `sequence`: sequence number of the push.
    - `is_expected`: whether the push is received by `RoundTraffic`.
    - `is_taken`: whether the push is complete, and not answered yet.
    - `flags`, `samples`: those of the complete push.
    """

    peer: Peer
    trainer: TrainerSession
    rounds: Mode
    expected: ExpectedMessage
    gradient: Array
    sequence: int
    is_expected: bool = True
    is_taken: bool = False
    flags: int = MessageFlag.NONE
    samples: int = 0

    def read(self) -> Message:
        """Return the complete push as a message."""
        payload = self.expected.payload
        return protocol.read_push(self.expected.header, (payload,) if payload else ())
