"""Step every trainer's gradient by itself, or discard that of a late trainer (asynchronous training, dense services).

A gradient takes its step as soon as its last piece has come. One that is too old (`pserver.aggregate.staleness`) is
discarded. Either way its trainer gets the values as they are then, in a copy: the next step, of another trainer, may
be taken before these values have left.

Source: ParameterServer2.cpp of v0.10 (asyncSGD).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from pserver.aggregate.staleness import StalenessLimits, make_staleness
from pserver.aggregate.sync_dense import check_piece
from pserver.optim.settings import Array
from pserver.store.shard import DenseShard
from pserver.wire import protocol
from pserver.wire.protocol import Buffer
from runtime import glog
from runtime.errors import BugError


class AsynchronousSteps:
    """The gradients of one dense service that are not complete yet, by trainer.

    Args: trainers: their number; 0: they come and go.  limits: which gradients are too old.
    """

    answers_with_values = True
    is_asynchronous: Literal[True] = True
    counts_passes = False  # as in v0.10, neither schedules by pass nor decay that is due know of its end

    def __init__(self, shard: DenseShard, trainers: int, limits: StalenessLimits) -> None:
        self.shard = shard
        self.values = shard.values.view("B").data
        self.pieces = protocol.count_pieces(shard.values.nbytes)
        ratio = shard.optimization.async_lagged_grad_discard_ratio
        self.staleness = make_staleness(trainers, limits, ratio)
        if limits.choose(ratio) != ratio:
            glog.warning(
                f"async_lagged_grad_discard_ratio is {ratio:g}, not above --async_lagged_ratio_min={limits.least:g}: "
                f"--async_lagged_ratio_default={limits.default:g} counts"
            )
        threshold = self.staleness.threshold if trainers else f"{limits.choose(ratio):g} x trainers"
        glog.info(f"discard lagged async gradient ratio: {limits.choose(ratio):g} asyncLaggedhreshold: {threshold}")
        self._sent: dict[int, dict[int, Buffer]] = {}
        self._samples: dict[int, int] = {}
        self._copies: dict[int, Array] = {}

    @property
    def is_open(self) -> bool:
        """No trainer waits for another one's gradient."""
        return True

    def has_all_of(self, trainer: int) -> bool:
        """Return whether a trainer has sent all that the others wait for: not before it ends the pass."""
        return False

    def piece_bytes(self, piece: int) -> int:
        """Return the length of a piece; none is that long where there is no such piece."""
        return len(protocol.cut(self.values, piece)) if piece < self.pieces else -1

    def add(self, trainer: int, piece: int, gradient: Buffer, samples: int, flags: int, length: int = 0) -> None:
        """Take a piece of a trainer's gradient; nothing of it is copied.

        Raises: BugError: if it has not the length of this piece, or comes twice.
        """
        sent = self._sent.setdefault(trainer, {})
        check_piece(self.pieces, self.piece_bytes(piece), piece, gradient, piece in sent)
        sent[piece] = gradient
        self._samples[trainer] = samples

    def apply(self, trainer: int) -> memoryview | None:
        """Take the step of a trainer's gradient, or discard it, once all of it is here; return its copy of the values.

        The schedule stands at the samples before this step. The copy is good until the trainer's next gradient.
        """
        sent = self._sent[trainer]
        if len(sent) < self.pieces:
            return None
        if self.staleness.is_kept(trainer):
            self.shard.begin_step(0)
            for piece, gradient in sorted(sent.items()):
                self.shard.step_range(piece * protocol.piece_elements(), [np.frombuffer(gradient, np.float32)])
            self.shard.finish_step()
            self.shard.samples += self._samples[trainer]
        sent.clear()
        return self.copy_values(trainer)

    def copy_values(self, trainer: int) -> memoryview:
        """Return the trainer's copy of the values, as they are now."""
        copy = self._copies.get(trainer)
        if copy is None:
            copy = self._copies[trainer] = np.empty_like(self.shard.values)
        np.copyto(copy, self.shard.values)
        return copy.view("B").data

    def drop(self, trainer: int) -> None:
        """Drop the pieces of a gradient that is not complete."""
        self._sent.pop(trainer, None)

    def free(self, trainer: int) -> None:
        """Give the memory of a trainer back that is gone."""
        for kept in (self._copies, self._samples):
            kept.pop(trainer, None)

    def look_up(self, trainer: int, piece: int, payload: Buffer, length: int) -> memoryview | None:
        """Only sparse services give rows.

        Raises: BugError.
        """
        raise BugError(f"trainer {trainer} asks for rows of a service that has no tables")
