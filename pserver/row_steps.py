"""Asynchronous steps of one sparse service: the gradients of a batch are a step of their own, of its rows only.

Rows that are not sent wait; decay, where there is any, is that of one step for each that a row takes. Gradients that
are too old are discarded as on a dense service, without a word to their trainer, who fetches rows before every batch.

Source: spec/distributed.md 3.8; ParameterServer2.cpp of v0.10 (asyncSGD).
"""

from __future__ import annotations

from typing import Literal

from pserver.lag import Lag, LagLimits
from pserver.row_rounds import RowInbox
from pserver.row_shard import RowShard


class RowSteps(RowInbox):
    """What each trainer has sent of its gradients."""

    is_asynchronous: Literal[True] = True

    def __init__(self, shard: RowShard, trainers: int, limits: LagLimits) -> None:
        super().__init__(shard)
        ratio = shard.optimization.async_lagged_grad_discard_ratio
        self.lag = Lag(trainers, limits.threshold(trainers, ratio))

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
        if self.lag.is_kept(trainer):
            self.shard.step_rows([gradients], 0)
            self.shard.samples += self._samples[trainer]
        return memoryview(b"")
