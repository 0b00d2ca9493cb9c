"""The samples that bench/networks.py drew, in batches of tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Sequences(NamedTuple):
    """The ids of sequences that are padded with zeros. Shapes: ids: (longest length, samples); lengths: (samples,)."""

    ids: Tensor
    lengths: Tensor

    @property
    def mask(self) -> Tensor:
        """Whether each id belongs to a sequence, and not to the padding. Shapes: (longest length, samples)."""
        return torch.arange(len(self.ids))[:, None] < self.lengths


class Data:
    """All samples of a directory; `samples` is their number."""

    def __init__(self, directory: Path) -> None:
        self._slots = json.loads((directory / "slots.json").read_text(encoding="utf-8"))
        with np.load(directory / "data/train.npz") as arrays:
            self._arrays = dict(arrays)
        self._starts = {
            name: np.concatenate([[0], np.cumsum(lengths)[:-1]])
            for name, lengths in self._arrays.items()
            if name.startswith("lengths of ")
        }
        self.samples = int(self._arrays["samples"])

    def batches(self, order: np.ndarray, size: int) -> Iterator[dict[str, Tensor | Sequences]]:
        """Yields the slots of each batch, with samples in the given order."""
        for start in range(0, len(order), size):
            numbers = order[start : start + size]
            yield {name: self._take(name, kind, group, numbers) for name, (kind, _, group) in self._slots.items()}

    def _take(self, name: str, kind: str, group: str, numbers: np.ndarray) -> Tensor | Sequences:
        values = self._arrays[name]
        if kind != "sequence":
            return torch.from_numpy(values[numbers])
        lengths, starts = self._arrays[f"lengths of {group}"][numbers], self._starts[f"lengths of {group}"][numbers]
        steps = np.arange(lengths.max())[:, None]
        inside = steps < lengths
        ids = np.where(inside, values[np.where(inside, starts + steps, 0)], 0)
        return Sequences(torch.from_numpy(ids), torch.from_numpy(lengths))
