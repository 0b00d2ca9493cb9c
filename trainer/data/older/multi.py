"""Read the several sources of a MultiData at once. Each source provides its share of every batch.

Source: gserver/dataproviders/MultiDataProvider.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument
from trainer.data.source import DataSource

KIND = "multi"


@dataclass
class SharedSource:
    """One of the sources of a MultiData.

    Attributes: ratio: the weight of the source; its share of a batch is its ratio divided by the sum of all ratios.
        is_main: whether the pass ends when the source ends; a source that is not main restarts. begun: number of
        batches of the pass before the latest start or restart of the source.
    """

    source: DataSource
    ratio: int
    is_main: bool
    begun: int = 0


class MultiSource:
    """A source of batches that contain samples of several sources. The slots of the sources have different names.

    In a test a source that has ended does not restart. The test ends when all sources have ended.

    Raises: ConfigError: there is no main source, or a share is not above 0.
    """

    def __init__(self, parts: Sequence[SharedSource], *, is_train: bool) -> None:
        self._parts, self._is_train = list(parts), is_train
        self._batches = 0
        if not any(part.is_main for part in parts):
            raise ConfigError("MultiData has no main source: set is_main_data=True for one source")
        if (ratio := min(part.ratio for part in parts)) < 1:
            raise ConfigError(
                f"MultiData has a source with data_ratio={ratio}: set a data_ratio of at least 1 for each source"
            )
        self._total = sum(part.ratio for part in parts)

    def look(self) -> None:
        """Read a sample of each entry of the lists of all sources (see DataSource)."""
        for part in self._parts:
            part.source.look()

    def start_pass(self) -> None:
        """Begin a pass of every source."""
        self._batches = 0
        for part in self._parts:
            self._begin(part)

    def close(self) -> None:
        """Stop reading."""
        for part in self._parts:
            part.source.close()

    def next_batch(self, size: int) -> tuple[dict[str, Argument], int] | None:
        """Return the next batch of about `size` units, and its exact size in units; None after the last batch.

        Raises: see DataSource.
        """
        slots: dict[str, Argument] = {}
        units = 0
        for part in self._parts:
            share = self._share(part, size)
            found = part.source.next_batch(share)
            if found is None and self._is_train:
                if part.is_main:
                    return None
                self._begin(part)
                found = part.source.next_batch(share)
                if found is None:
                    return None
            if found is None:
                found = part.source.nothing(), 0
            slots |= found[0]
            units += found[1]
        self._batches += 1
        return (slots, units) if units else None

    def is_ready(self, size: int) -> bool:
        """Whether `next_batch` will not wait for a provider, and no source begins again.

        A source that begins again reads its provider anew, and its position in a checkpoint must not come from a batch
        that is not trained yet.
        """
        return all(
            part.source.is_ready(self._share(part, size)) and (part.is_main or part.source.has_units())
            for part in self._parts
        )

    def track(self) -> None:
        """Begin to store the data that `position` returns."""
        for part in self._parts:
            part.source.track()

    @property
    def is_read(self) -> bool:
        """Whether no provider is being read now."""
        return all(part.source.is_read for part in self._parts)

    def position(self, batches: int | None) -> dict[str, Any]:
        """Return the state with which another process can continue (see DataSource)."""
        parts = [
            part.source.position(None if batches is None else max(0, batches - part.begun)) for part in self._parts
        ]
        begun = [part.begun for part in self._parts]
        return {"parts": parts, "begun": begun, "batches": batches, "is_read": all(one["is_read"] for one in parts)}

    def resume(self, position: Mapping[str, Any], size: int) -> None:
        """Continue at a position that `position` has returned; `size` is the batch size."""
        for part, one, begun in zip(self._parts, position["parts"], position["begun"], strict=True):
            part.source.resume(one, self._share(part, size))
            part.begun = begun
        self._batches = position["batches"] or 0

    def _share(self, part: SharedSource, size: int) -> int:
        share = size * part.ratio // self._total
        if not share:
            raise ConfigError(
                f"a batch_size of {size} gives no sample to a source with data_ratio={part.ratio}; raise batch_size"
            )
        return share

    def _begin(self, part: SharedSource) -> None:
        part.begun = self._batches
        part.source.start_pass()
