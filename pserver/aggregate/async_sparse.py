"""Apply every trainer's gradients of rows alone, or discard a slow trainer's gradients (asynchronous sparse services).

Only the rows of the batch are updated. Decay is applied once for each step of a row. Gradients that are too old are
discarded as on a dense service. A trainer is not informed that its gradients were discarded, because it fetches the
current rows before every batch.

Source: spec/distributed.md 3.8; ParameterServer2.cpp of v0.10 (asyncSGD).
"""

from __future__ import annotations

from collections.abc import Set
from typing import Literal

from pserver.aggregate.staleness import StalenessLimits, make_staleness
from pserver.aggregate.sync_sparse import SparseInbox
from pserver.store.sparse_shard import SparseShard


class SparseSteps(SparseInbox):
    """For each trainer, the gradients of rows on one sparse service.

    Args: trainers: number of trainers, or 0 if trainers join and leave. limits: limits of the age of gradients.
    """

    is_asynchronous: Literal[True] = True

    def __init__(self, shard: SparseShard, trainers: int, limits: StalenessLimits) -> None:
        super().__init__(shard)
        ratio = shard.optimization.async_lagged_grad_discard_ratio
        self.staleness = make_staleness(trainers, limits, ratio)

    @property
    def is_open(self) -> bool:
        """Always True: a push to an asynchronous service never begins a round."""
        return True

    def list_missing(self, trainers: Set[int]) -> list[int]:
        """Return the trainers, ascending: without rounds, a trainer sends gradients until it ends the pass."""
        return sorted(trainers)

    def apply(self, trainer: int) -> memoryview | None:
        """Apply or discard a trainer's gradients, and return the empty payload of the answer. Do nothing and return
        None if the gradients are incomplete.

        The learning-rate schedule counts the samples of earlier steps, but not the samples of these gradients.
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
