"""Update the parameters for divided batches; provide the state that a trainer commits, restores and sends to others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle_base.runtime.errors import DataError
from paddle_cluster.elastic.process import operations
from pserver.store.snapshot import CheckpointState
from trainer.arrays.encoding import decoding
from trainer.updaters.collective import CollectiveTrainers, CollectiveUpdater, StepTotals
from trainer.updaters.local import LocalUpdater


class DividedUpdater(CollectiveUpdater):
    """The updater of each trainer. The result of a step does not depend on how many trainers divide the batch.

    Raises: HorovodInternalError: a trainer is lost (`step`, `finish_pass`). DataError: the trainers do not have the
        same batch (`step`, `finish_pass`).
    """

    _whole = 0  # number of samples of the current batch, over all trainers

    def connect(self, restored: CheckpointState | None = None) -> dict[str, Any] | None:
        """Prune the initial values. `TrainingState.sync` later sends the values of trainer 0 to the other trainers."""
        self.pruning.start()
        return None

    def expect(self, samples: int) -> None:
        """Set the number of samples that the current batch has over all trainers."""
        self._whole = samples

    def step(self, samples: int, checkpoint: bool = False) -> bool:
        """Take one step with the gradients of all shares; this trainer's share has `samples` samples.

        Args: checkpoint: whether this trainer requests that all trainers commit after this step.
        Returns: whether any trainer requested a commit.
        """
        self.pruning.mask_gradients()
        totals = self._add_up(self._table.gradients, StepTotals(samples, int(checkpoint), self._whole))
        self._check_totals(totals, self._whole)
        self.apply(self._sums, totals.samples)
        return bool(totals.wanting)

    def finish_pass(self, own: dict[str, Any] | None = None) -> None:
        """End the pass together with the other trainers."""
        self._sums[:] = 0
        self._check_totals(self._add_up(self._sums, StepTotals(0, 0, 0)), 0)
        LocalUpdater.finish_pass(self)

    @staticmethod
    def _check_totals(totals: StepTotals, whole: int) -> None:
        trainers = operations.size()
        if totals.active != whole * trainers or totals.samples != whole:
            raise DataError(
                f"the trainers do not have the same batch: this trainer's batch has {whole} samples, the batches of "
                f"all {trainers} trainers have {totals.active} (expected: {whole * trainers}), and their shares have "
                f"{totals.samples} (expected: {whole}); the data provider must give every process the same "
                "samples in the same order"
            )

    def finish(self) -> None:
        """Leave the job."""
        operations.shutdown()

    # ----- The state

    def take_masks(self) -> dict[str, Any]:
        """Return the pruning masks in a form that JSON can store."""
        return self.pruning.state()

    def put_back_masks(self, masks: Mapping[str, Any]) -> None:
        """Restore pruning masks."""
        with decoding("masks"):
            self.pruning.go_on(masks)


class DividedTrainers(CollectiveTrainers):
    """Create the updater of a job whose trainers join and leave."""

    updater = DividedUpdater
