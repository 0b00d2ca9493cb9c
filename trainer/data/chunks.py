"""A chunk: encoded samples on their way from the reading thread to the pool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy.typing as npt

CHUNK_BYTES = 1 << 20  # maximum bytes of a chunk; a chunk of large samples therefore has fewer samples


@dataclass(frozen=True)
class Chunk:
    """Samples in the order of reading. `units` has the units of each sample; None means that each counts one unit."""

    rows: int
    encoded: list[tuple[npt.NDArray[Any], ...]]
    units: list[int] | None

    @cached_property
    def size(self) -> int:
        """The bytes of the encoded slots."""
        return sum(part.nbytes for slot in self.encoded for part in slot)

    @cached_property
    def total(self) -> int:
        """The sum of the units of the samples."""
        return self.rows if self.units is None else sum(self.units)
