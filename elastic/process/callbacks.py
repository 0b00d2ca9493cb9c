"""What a training loop calls at its batches and epochs, so that a state follows it; as Horovod's Keras callbacks."""

from __future__ import annotations

from typing import Any


class CommitStateCallback:
    """Commits a state every so many batches, and at the end of an epoch.

    Args: state: an `elastic.state.State`.  batches_per_commit: 0: at the end of an epoch only.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        self.state, self.batches_per_commit = state, batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_batch_end(self, batch: int, logs: object = None) -> None:
        """Count a batch, and commit when it is time."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.commit()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Commit."""
        self.commit()

    def commit(self) -> None:
        """Commit, and count anew."""
        self.batches_remaining = self.batches_per_commit
        self.state.commit()


class UpdateBatchStateCallback:
    """Keeps `state.batch`, and shortens the first epoch after a reset by the batches that were committed.

    Attributes: steps_per_epoch: of a whole epoch; None: not known.
    """

    def __init__(self, state: Any, steps_per_epoch: int | None = None) -> None:
        self.state, self.steps_per_epoch = state, steps_per_epoch

    def steps_of_epoch(self) -> int | None:
        """Return how many batches the present epoch still has."""
        return None if self.steps_per_epoch is None else max(0, self.steps_per_epoch - self.state.batch)

    def on_batch_end(self, batch: int, logs: object = None) -> None:
        """Count a batch."""
        self.state.batch += 1

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Begin to count anew."""
        self.state.batch = 0


class UpdateEpochStateCallback:
    """Keeps `state.epoch` over resets, after which the loop counts its epochs from 0."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self.initial_epoch = int(state.epoch)

    def on_train_begin(self, logs: object = None) -> None:
        """Take note of the epoch that training goes on with."""
        self.initial_epoch = int(self.state.epoch)

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Count an epoch."""
        self.state.epoch = self.initial_epoch + epoch + 1
