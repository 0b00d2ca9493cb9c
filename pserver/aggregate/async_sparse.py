"""Step every trainer's gradients of rows by themselves, or discard those of a late trainer (asynchronous training).

Only the rows of the batch take the step; the others wait. Decay is that of one step for each step that a row takes.
Gradients that are too old are discarded as on a dense service. Their trainer is not told: it fetches rows before every
batch anyway.

Source: spec/distributed.md 3.8; ParameterServer2.cpp of v0.10 (asyncSGD).
"""

from __future__ import annotations

from typing import Literal

from pserver.aggregate.staleness import StalenessLimits, make_staleness
from pserver.aggregate.sync_sparse import SparseInbox
from pserver.store.sparse_shard import SparseShard


class SparseSteps(SparseInbox):
    """The gradients of rows of one sparse service, by trainer.

    Args: trainers: their number; 0: they come and go.  limits: which gradients are too old.
    """

    is_asynchronous: Literal[True] = True

    def __init__(self, shard: SparseShard, trainers: int, limits: StalenessLimits) -> None:
        super().__init__(shard)
        ratio = shard.optimization.async_lagged_grad_discard_ratio
        self.staleness = make_staleness(trainers, limits, ratio)

    @property
    def is_open(self) -> bool:
        """No trainer waits for another one's gradients."""
        return True

    def has_all_of(self, trainer: int) -> bool:
        """Return whether a trainer has sent all that the others wait for: not before it ends the pass."""
        return False

    def apply(self, trainer: int) -> memoryview | None:
        """Take the step of a trainer's gradients, or discard them, once all are here; return that nothing goes back.

        The schedule stands at the samples before this step.
        """
        gradients = self._gradients.pop(trainer, None)
        if gradients is None:
            return None
        if self.staleness.is_kept(trainer):
            self.shard.step_sparse([gradients], 0)
            self.shard.samples += self._samples[trainer]
        return memoryview(b"")

    def copy_values(self, trainer: int) -> memoryview:
        """Return that nothing goes back with the answer to a push."""
        return memoryview(b"")
