"""The samples of an epoch, divided among the ranks, and divided again after a change of ranks."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sized
from typing import Any

from paddle_cluster.elastic.process import operations


class ElasticSampler:
    """Divides the unprocessed samples of an epoch among the ranks, and divides them again after a change of ranks.

        for batch, indices in enumerate(batches(sampler)):
            ...
            sampler.record_batch(batch, len(indices))
            state.commit()
        sampler.set_epoch(epoch + 1)      # at the end of an epoch

    All ranks use the same order. Some samples are repeated at the end of an epoch, so every rank gets the same number
    of samples.

    Args: dataset: its length is the number of samples.  shuffle: whether each epoch has another order.  seed: seed of
        the shuffle.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = self.processed_num = 0
        self.num_replicas, self.rank = 1, 0
        self.remaining_indices: list[int] = []
        self.num_samples = self.total_size = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch without processed samples. Call this method at the end of the previous epoch."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Record that every rank has processed a batch of this size."""
        self.processed_num += batch_size * self.num_replicas

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Return this rank's samples of a batch; batch 0 is the first batch after the last reset."""
        indices = list(self)
        return indices[batch_idx * batch_size : (batch_idx + 1) * batch_size]

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and the number of its processed samples."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from the result of `state_dict`.

        Raises: ValueError: processed_num is negative.
        """
        epoch, processed_num = int(state_dict["epoch"]), int(state_dict["processed_num"])
        if processed_num < 0:
            raise ValueError(f"processed_num is {processed_num}; it is a number of samples, at least 0")
        self.epoch, self.processed_num = epoch, processed_num
        self.reset()

    def reset(self) -> None:
        """Divide the unprocessed samples among the present ranks."""
        self.rank, self.num_replicas = self._find_place()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def _find_place(self) -> tuple[int, int]:
        """Return this rank and the number of ranks."""
        return operations.rank(), operations.size()

    def __iter__(self) -> Iterator[int]:
        """Yield this rank's samples; every rank yields the same number of samples."""
        left = self.remaining_indices
        padded = (left[place % len(left)] for place in range(self.rank, self.total_size, self.num_replicas))
        return iter(list(padded))

    def __len__(self) -> int:
        return self.num_samples
