"""Add the gradients of all trainers in trainer-id order, then take one step (synchronous dense services).

A round waits for the gradient of every trainer and discards none. Gradients arrive in pieces. The step of a piece is
taken after every trainer of the round has sent the piece. The new values of a piece are sent back while later pieces
still arrive. The result is bit-equal for any order of arrival and for any division of the vector into pieces.
`pserver.store.updates.steps.sum_gradients` adds the gradients. `sync_sparse` makes synchronous rounds for rows of
tables.

Source: ParameterServer2.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Literal

import numpy as np

from paddle_base.runtime.errors import BugError
from pserver.optim.settings import Array
from pserver.store.shard import DenseShard
from pserver.wire import protocol
from pserver.wire.protocol import Buffer, MessageFlag


class SynchronousRounds:
    """The open round of one dense service: the pieces that each trainer has sent.

    This class, `SparseRounds`, `AsynchronousSteps` and `SparseSteps` have three class attributes and `push_bytes`:

    - `answers_with_values`: whether the answer to a push contains values.
    - `is_asynchronous`: whether every gradient is a separate step.
    - `counts_passes`: whether the shard is informed of the end of a pass.

    `push_bytes` is the length of every gradient if a gradient always has one piece of the same length, else None.
    """

    answers_with_values: Literal[True] = True
    is_asynchronous: Literal[False] = False
    counts_passes = True

    def __init__(self, shard: DenseShard) -> None:
        self.shard = shard
        self.values = shard.values.view("B").data
        self.pieces = protocol.count_pieces(shard.values.nbytes)
        self.push_bytes = shard.values.nbytes if self.pieces == 1 else None
        self._sent: list[dict[int, Array]] = [{} for _ in range(self.pieces)]
        self._samples: dict[int, int] = {}
        self._stepped = 0
        self._asked = MessageFlag.NONE

    @property
    def is_open(self) -> bool:
        """Whether any piece of the round has arrived."""
        return bool(self._samples)

    def has_all_of(self, trainer: int) -> bool:
        """Return whether a trainer has sent all its pieces."""
        return all(self._stepped == self.pieces or trainer in sent for sent in self._sent)

    def list_missing(self, trainers: Set[int]) -> list[int]:
        """Return those of some trainers that have not sent all their pieces, ascending."""
        if self.pieces > 1:
            return sorted(one for one in trainers if not self.has_all_of(one))
        # a loop over all trainers would take longer than all the rest of a ping
        return [] if self._stepped else sorted(trainers - self._sent[0].keys())

    def add(self, trainer: int, piece: int, gradient: Buffer, samples: int, flags: int, length: int = 0) -> None:
        """Store a piece of a trainer's gradient without copying it; `length` is not used for dense gradients.

        Raises: BugError: the piece has the wrong length, or is sent twice.
        """
        has_come = piece < self.pieces and trainer in self._sent[piece]
        check_piece(self.pieces, self.piece_bytes(piece), piece, gradient, has_come)
        self._sent[piece][trainer] = np.frombuffer(gradient, np.float32)
        self._samples[trainer] = samples
        self._asked |= flags & MessageFlag.CHECKPOINT

    def add_whole(self, trainer: int, gradient: Array, samples: int, flags: int) -> bool:
        """Store a gradient of `push_bytes` bytes that is one piece; return False if the trainer has sent it before."""
        sent = self._sent[0]
        if trainer in sent:
            return False
        sent[trainer] = gradient
        self._samples[trainer] = samples
        self._asked |= flags & MessageFlag.CHECKPOINT
        return True

    def piece_bytes(self, piece: int) -> int:
        """Return the length of a piece in bytes; -1 if the piece does not exist."""
        if self.pieces == 1:
            return -1 if piece else self.values.nbytes
        return len(protocol.cut(self.values, piece)) if piece < self.pieces else -1

    def waits(self, piece: int, trainers: int) -> bool:
        """Return whether fewer than `trainers` trainers have sent a piece."""
        return len(self._sent[piece]) < trainers

    def step(self, pieces: Sequence[int], trainers: Sequence[int]) -> list[int]:
        """Apply the sum of the gradients of each given piece that all trainers of the round have sent. Return the
        numbers of these pieces.

        Args: trainers: the ids of the round's trainers, ascending; their gradients are added in this order.
        """
        done = []
        for piece in pieces:
            sent = self._sent[piece]
            if not sent or len(sent) < len(trainers):
                continue
            if not self._stepped:
                self.shard.begin_step(sum(self._samples.values()))
            self.shard.step_range(piece * protocol.piece_elements(), [sent[trainer] for trainer in trainers])
            sent.clear()
            self._stepped += 1
            done.append(piece)
        return done

    def drop(self, trainer: int) -> None:
        """Drop a trainer's gradients of a round in which no piece has been updated yet."""
        for sent in self._sent:
            sent.pop(trainer, None)
        self._samples.pop(trainer, None)

    def free(self, trainer: int) -> None:
        """Do nothing: a trainer that has left uses no memory in a synchronous dense service."""

    def look_up(self, trainer: int, piece: int, payload: Buffer, length: int) -> memoryview | None:
        """Raise an error: only sparse services have rows.

        Raises: BugError.
        """
        raise BugError(f"trainer {trainer} asks for rows of a service that has no tables")

    def finish(self) -> int | None:
        """End the round if the steps of all its pieces are taken. Return the combined flags of the round's pushes, or
        None if the round is still open.
        """
        if self._stepped < self.pieces:
            return None
        self.shard.finish_step()
        asked, self._asked, self._stepped = self._asked, MessageFlag.NONE, 0
        self._samples.clear()
        return asked


def check_piece(pieces: int, expected: int, piece: int, gradient: Buffer, has_come: bool) -> None:
    """Check that a piece of a gradient has the expected length and was not sent before.

    Raises: BugError.
    """
    length = memoryview(gradient).nbytes
    if length != expected or has_come:
        raise BugError(
            f"piece {piece} of {pieces} of a gradient is sent twice, or has {length} bytes instead of {expected}"
        )
