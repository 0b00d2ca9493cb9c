"""Callbacks that keep a state up to date during an epoch, as those of Horovod for Keras."""

from __future__ import annotations

from typing import Any


class CommitStateCallback:
    """Commits a state after every `batches_per_commit` batches, and at the end of an epoch.

    Args: state: an `paddle_cluster.elastic.state.State`.  batches_per_commit: number of batches between two commits; 0:
        commit only at the end of an epoch.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        self.state, self.batches_per_commit = state, batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_batch_end(self, batch: int, logs: object = None) -> None:
        """Count a batch, and commit if `batches_per_commit` batches have been counted since the last commit."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.commit()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Commit."""
        self.commit()

    def commit(self) -> None:
        """Commit, and reset the count of batches."""
        self.batches_remaining = self.batches_per_commit
        self.state.commit()


class UpdateBatchStateCallback:
    """Updates `state.batch`; the first epoch after a reset does not repeat the batches that were committed before.

    Attributes: steps_per_epoch: number of batches of a whole epoch; None: the number is unknown.
    """

    def __init__(self, state: Any, steps_per_epoch: int | None = None) -> None:
        self.state, self.steps_per_epoch = state, steps_per_epoch

    def steps_of_epoch(self) -> int | None:
        """Return the number of remaining batches of the present epoch."""
        return None if self.steps_per_epoch is None else max(0, self.steps_per_epoch - self.state.batch)

    def on_batch_end(self, batch: int, logs: object = None) -> None:
        """Count a batch."""
        self.state.batch += 1

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Reset the count of batches."""
        self.state.batch = 0


class UpdateEpochStateCallback:
    """Updates `state.epoch`; the number stays correct after a reset, when the loop counts its epochs from 0 again."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self.initial_epoch = int(state.epoch)

    def on_train_begin(self, logs: object = None) -> None:
        """Record the epoch from which training continues."""
        self.initial_epoch = int(self.state.epoch)

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Count an epoch."""
        self.state.epoch = self.initial_epoch + epoch + 1
