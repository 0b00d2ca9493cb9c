"""Which samples of an epoch are left, and which of them are this rank's.

Names and behaviour are those of Horovod 0.28's `ElasticSampler`; the order needs no torch.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sized
from typing import Any

from elastic.process import operations


class ElasticSampler:
    """Divides the samples that are left in an epoch among the ranks, again after every change of ranks.

        for batch, indices in enumerate(batches(sampler)):
            ...
            sampler.record_batch(batch, len(indices))
            state.commit()
        sampler.set_epoch(epoch + 1)      # at the end of an epoch

    All ranks have the same order. The last samples of an epoch are repeated where the ranks would get unequal numbers.

    Args: dataset: its length counts.  shuffle: another order in each epoch.  seed: of the order.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = self.processed_num = 0
        self.num_replicas, self.rank = 1, 0
        self.remaining_indices: list[int] = []
        self.num_samples = self.total_size = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; nothing of it is processed. Call it at the end of the one before."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Take note that every rank has processed a batch of this size."""
        self.processed_num += batch_size * self.num_replicas

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Return this rank's samples of a batch, counted from the last reset."""
        indices = list(self)
        return indices[batch_idx * batch_size : (batch_idx + 1) * batch_size]

    def state_dict(self) -> dict[str, int]:
        """Return where the epoch stands."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.epoch, self.processed_num = int(state_dict["epoch"]), int(state_dict["processed_num"])
        self.reset()

    def reset(self) -> None:
        """Divide what is left among the ranks that there are now."""
        self.num_replicas, self.rank = operations.size(), operations.rank()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        """Yield this rank's samples, as many as every other rank has."""
        left = self.remaining_indices
        padded = (left[place % len(left)] for place in range(self.rank, self.total_size, self.num_replicas))
        return iter(list(padded))

    def __len__(self) -> int:
        return self.num_samples
