"""Steps of a batch that the trainers divide, and the state that a trainer keeps, goes back to, and gives to others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastic.process import operations
from pserver.store.snapshot import CheckpointState, Part
from runtime.errors import DataError
from trainer.arrays.encoding import decoding
from trainer.updaters.collective import CollectiveTrainers, CollectiveUpdater, StepTotals


class DividedUpdater(CollectiveUpdater):
    """The optimiser of every trainer; each step is that of the whole batch, however many trainers divide it.

    Raises (step, finish_pass): HorovodInternalError: a trainer is lost.  DataError: the trainers do not have the same
        batch.
    """

    _whole = 0  # samples of the batch in hand

    def connect(self, restored: CheckpointState | None = None) -> dict[str, Any] | None:
        """Prune the first values; those of the others come with the state of trainer 0."""
        self._local.pruning.start()
        return None

    def expect(self, samples: int) -> None:
        """Take note of the samples of the whole batch in hand."""
        self._whole = samples

    def step(self, samples: int, checkpoint: bool = False) -> bool:
        """Make one step with the gradients of all shares, of which this trainer's has `samples` samples.

        Args: checkpoint: whether this trainer asks that all commit after this step.
        Returns: whether any trainer did.
        """
        self._local.pruning.mask_gradients()
        totals = self._add_up(self._table.gradients, StepTotals(samples, int(checkpoint), self._whole))
        self._check_totals(totals, self._whole)
        self._local.apply(self._sums, totals.samples)
        return bool(totals.wanting)

    def finish_pass(self, own: dict[str, Any] | None = None) -> None:
        """End the pass together with the others."""
        self._sums[:] = 0
        self._check_totals(self._add_up(self._sums, StepTotals(0, 0, 0)), 0)
        self._local.finish_pass()

    @staticmethod
    def _check_totals(totals: StepTotals, whole: int) -> None:
        if totals.active != whole * operations.size() or totals.samples != whole:
            raise DataError(
                f"the trainers do not have the same batch: this one has {whole} samples in it, all together "
                f"{totals.samples}; the data provider must give every process the same samples in the same order"
            )

    def finish(self) -> None:
        """Leave."""
        operations.shutdown()

    # ----- Its state

    def take(self) -> Part:
        """Return the state of the optimiser with the values, whose arrays change with the next step."""
        return self._local.take()

    def put_back(self, part: Part) -> None:
        """Go on from such a state.

        Raises: ConfigError: it does not fit this job.
        """
        self._local.put_back(part)

    def take_masks(self) -> dict[str, Any]:
        """Return what is pruned, as JSON can hold it."""
        return self._local.pruning.state()

    def put_back_masks(self, masks: Mapping[str, Any]) -> None:
        """Prune the same."""
        with decoding("masks"):
            self._local.pruning.go_on(masks)


class DividedTrainers(CollectiveTrainers):
    """Makes the updater of a job whose trainers come and go."""

    updater = DividedUpdater
