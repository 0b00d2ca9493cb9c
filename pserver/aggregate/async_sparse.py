"""Take a step for every trainer's gradients of rows, or discard those of a slow trainer (asynchronous sparse services).

Only the rows of the batch are updated. Decay is applied once for each step of a row. Gradients that are too old are
discarded as on a dense service. The trainer of a discarded gradient is not informed, because it fetches rows before
every batch.

Source: spec/distributed.md 3.8; ParameterServer2.cpp of v0.10 (asyncSGD).
"""

from __future__ import annotations

from typing import Literal

from pserver.aggregate.staleness import StalenessLimits, make_staleness
from pserver.aggregate.sync_sparse import SparseInbox
from pserver.store.sparse_shard import SparseShard


class SparseSteps(SparseInbox):
    """The gradients of rows of one sparse service, by trainer.

    Args: trainers: number of trainers; 0: trainers join and leave. limits: limits of the age of gradients.
    """

    is_asynchronous: Literal[True] = True

    def __init__(self, shard: SparseShard, trainers: int, limits: StalenessLimits) -> None:
        super().__init__(shard)
        ratio = shard.optimization.async_lagged_grad_discard_ratio
        self.staleness = make_staleness(trainers, limits, ratio)

    @property
    def is_open(self) -> bool:
        """Whether a round is open; always True, because no push to an asynchronous service begins a round."""
        return True

    def has_all_of(self, trainer: int) -> bool:
        """Return False: without rounds, a trainer has more gradients to send until it ends the pass."""
        return False

    def apply(self, trainer: int) -> memoryview | None:
        """Take the step of a trainer's complete gradients, or discard them; return the answer's payload, which is
        empty.

        The learning-rate schedule counts the samples of earlier steps, without those of these gradients.
        """
        gradients = self._gradients.pop(trainer, None)
        if gradients is None:
            return None
        if self.staleness.is_kept(trainer):
            self.shard.step_sparse([gradients], 0)
            self.shard.samples += self._samples[trainer]
        return memoryview(b"")

    def copy_values(self, trainer: int) -> memoryview:
        """Return the payload of the answer to a push, which is empty."""
        return memoryview(b"")
