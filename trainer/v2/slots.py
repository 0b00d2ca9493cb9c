"""The inputs of a network under the names that `DataFeeder` gave them in v0.10: slots by number.

Source: spec/v2.md section 15, the tests of the data feeder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainer.arrays.arguments import Argument


class Frame(NamedTuple):
    """The size of the pictures of a slot, in pixels."""

    height: int
    width: int


_NO_FRAME = Frame(0, 0)


class Slots(dict[str, Argument]):
    """{data layer: its values}, in the order of the data layers, whose numbers are those of the slots.

    Args: frames: {number of a slot: the size of its pictures}, for slots whose samples are arrays of pictures.
    """

    def __init__(self, values: Mapping[str, Argument], frames: Mapping[int, Frame] | None = None) -> None:
        super().__init__(values)
        self._frames = frames or {}

    def _slot(self, number: int) -> Argument:
        if not 0 <= number < len(self):
            raise IndexError(f"there is no slot {number}; there are {len(self)}")
        return list(self.values())[number]

    def getSlotNum(self) -> int:
        """Return the number of slots."""
        return len(self)

    def getSlotFrameHeight(self, number: int) -> int:
        """Return the height of the pictures of a slot in pixels; 0 if its rows are no pictures."""
        self._slot(number)
        return self._frames.get(number, _NO_FRAME).height

    def getSlotFrameWidth(self, number: int) -> int:
        """Return the width of the pictures of a slot in pixels; 0 if its rows are no pictures."""
        self._slot(number)
        return self._frames.get(number, _NO_FRAME).width

    def getSlotValue(self, number: int) -> Matrix:
        """Return the dense or sparse rows of a slot."""
        return Matrix(self._slot(number))

    def getSlotIds(self, number: int) -> Numbers:
        """Return the ids of a slot: one of each row."""
        return Numbers(self._slot(number).ids)

    def getSlotSequenceStartPositions(self, number: int) -> Numbers:
        """Return the first row of each sequence of a slot, and the number of rows."""
        return Numbers(self._slot(number).starts)

    def getSlotSubSequenceStartPositions(self, number: int) -> Numbers:
        """Return the first row of each sub-sequence of a slot, and the number of rows."""
        return Numbers(self._slot(number).sub_starts)


class Numbers:
    """A vector of ids or of positions; it has none if the slot is of another kind."""

    def __init__(self, numbers: npt.ArrayLike | None) -> None:
        self._numbers = np.array([] if numbers is None else numbers, np.int32).reshape(-1)

    def copyToNumpyArray(self) -> npt.NDArray[np.int32]:
        """Return the numbers: (rows,) int32."""
        return self._numbers.copy()


class Matrix:
    """The rows of a slot, dense or sparse."""

    def __init__(self, slot: Argument) -> None:
        self._slot = slot

    def copyToNumpyMat(self) -> npt.NDArray[np.float32]:
        """Return all rows: (rows, size) float32."""
        if self._slot.sparse is not None:
            return self._slot.sparse.to_dense()
        return np.array(self._slot.value, np.float32)

    def getSparseRowCols(self, row: int) -> list[int]:
        """Return the columns of a sparse row, in the order of the sample."""
        return [column for column, _ in self.getSparseRowColsVal(row)]

    def getSparseRowColsVal(self, row: int) -> list[tuple[int, float]]:
        """Return the columns and the values of a sparse row, in the order of the sample.

        Raises: IndexError: there is no such row. TypeError: the slot is not sparse.
        """
        sparse: Any = self._slot.sparse
        if sparse is None:
            raise TypeError("the slot has dense rows; use copyToNumpyMat()")
        if not 0 <= row < sparse.rows:
            raise IndexError(f"there is no row {row}; there are {sparse.rows}")
        part = sparse.cut(row, row + 1)
        values = [1.0] * len(part.ids) if part.values is None else part.values.tolist()
        return list(zip(part.ids.tolist(), values, strict=True))
