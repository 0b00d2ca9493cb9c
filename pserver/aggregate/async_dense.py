"""Apply every trainer's gradient alone, or discard the gradient of a slow trainer (asynchronous dense services).

The step of a gradient is taken after the last piece of the gradient has arrived. A gradient that is too old
(`pserver.aggregate.staleness`) is discarded. The trainer always receives a copy of the current values, because a step
of another trainer may change the values themselves before they are sent.

Source: ParameterServer2.cpp of v0.10 (asyncSGD).
"""

from __future__ import annotations

from collections.abc import Set
from typing import Literal

import numpy as np

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError
from pserver.aggregate.staleness import StalenessLimits, make_staleness
from pserver.aggregate.sync_dense import check_piece
from pserver.optim.settings import Array
from pserver.store.shard import DenseShard
from pserver.wire import protocol
from pserver.wire.protocol import Buffer


class AsynchronousSteps:
    """For each trainer, the incomplete gradient on one dense service.

    Args: trainers: number of trainers, or 0 if trainers join and leave. limits: limits of the age of gradients.
    """

    answers_with_values: Literal[True] = True
    is_asynchronous: Literal[True] = True
    counts_passes = False  # as in v0.10, the shard is not informed of the end of a pass

    def __init__(self, shard: DenseShard, trainers: int, limits: StalenessLimits) -> None:
        self.shard = shard
        self.values = shard.values.view("B").data
        self.pieces = protocol.count_pieces(shard.values.nbytes)
        self.push_bytes = shard.values.nbytes if self.pieces == 1 else None
        ratio = shard.optimization.async_lagged_grad_discard_ratio
        self.staleness = make_staleness(trainers, limits, ratio)
        if limits.choose(ratio) != ratio:
            glog.warning(
                f"async_lagged_grad_discard_ratio is {ratio:g}, which is not above "
                f"--async_lagged_ratio_min={limits.least:g}; --async_lagged_ratio_default={limits.default:g} is used"
            )
        threshold = self.staleness.threshold if trainers else f"{limits.choose(ratio):g} x trainers"
        glog.info(f"discard lagged async gradient ratio: {limits.choose(ratio):g} asyncLaggedhreshold: {threshold}")
        self._sent: dict[int, dict[int, Array]] = {}
        self._samples: dict[int, int] = {}
        self._copies: dict[int, tuple[Array, memoryview]] = {}

    @property
    def is_open(self) -> bool:
        """Always True: a push to an asynchronous service never begins a round."""
        return True

    def list_missing(self, trainers: Set[int]) -> list[int]:
        """Return the trainers, ascending: without rounds, a trainer sends gradients until it ends the pass."""
        return sorted(trainers)

    def piece_bytes(self, piece: int) -> int:
        """Return the length of a piece in bytes; -1 if the piece does not exist."""
        return len(protocol.cut(self.values, piece)) if piece < self.pieces else -1

    def add(self, trainer: int, piece: int, gradient: Buffer, samples: int, flags: int, length: int = 0) -> None:
        """Store a piece of a trainer's gradient without copying it.

        Raises: BugError: the piece has the wrong length, or is sent twice.
        """
        sent = self._sent.setdefault(trainer, {})
        check_piece(self.pieces, self.piece_bytes(piece), piece, gradient, piece in sent)
        sent[piece] = np.frombuffer(gradient, np.float32)
        self._samples[trainer] = samples

    def add_whole(self, trainer: int, gradient: Array, samples: int) -> bool:
        """Store a gradient of `push_bytes` bytes that is one piece; return False if the trainer has sent it before."""
        sent = self._sent.setdefault(trainer, {})
        if sent:
            return False
        sent[0] = gradient
        self._samples[trainer] = samples
        return True

    def apply(self, trainer: int) -> memoryview | None:
        """Apply or discard a trainer's gradient, and return the trainer's copy of the values. Do nothing and return
        None if the gradient is incomplete.

        The learning-rate schedule counts the samples of earlier steps, but not the samples of this gradient. The copy
        is valid until the trainer's next gradient.
        """
        sent = self._sent[trainer]
        if len(sent) < self.pieces:
            return None
        if self.staleness.is_kept(trainer):
            self.shard.begin_step(0)
            for piece, gradient in sorted(sent.items()):
                self.shard.step_range(piece * protocol.piece_elements(), [gradient])
            self.shard.finish_step()
            self.shard.samples += self._samples[trainer]
        sent.clear()
        return self.copy_values(trainer)

    def copy_values(self, trainer: int) -> memoryview:
        """Return the trainer's copy of the current values."""
        copy = self._copies.get(trainer)
        if copy is None:
            array = np.empty_like(self.shard.values)
            copy = self._copies[trainer] = array, array.view("B").data
        np.copyto(copy[0], self.shard.values)
        return copy[1]

    def drop(self, trainer: int) -> None:
        """Drop the pieces of an incomplete gradient."""
        self._sent.pop(trainer, None)

    def free(self, trainer: int) -> None:
        """Release the memory of a trainer that has left."""
        for kept in (self._copies, self._samples):
            kept.pop(trainer, None)

    def look_up(self, trainer: int, piece: int, payload: Buffer, length: int) -> memoryview | None:
        """Raise an error: only sparse services have rows.

        Raises: BugError.
        """
        raise BugError(f"trainer {trainer} asks for rows of a service that has no tables")
