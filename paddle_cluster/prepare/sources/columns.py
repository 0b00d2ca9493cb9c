"""Statistics of a table's columns: mean, deviation and range of number columns, and the values of other columns.

The module reads each row once, and its memory does not depend on the number of rows. It computes mean and variance by
Welford's algorithm, because a difference of sums of squares would lose precision.
Source: B. P. Welford, Note on a method for calculating corrected sums of squares and products, Technometrics 4, 1962.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from paddle_cluster.prepare.limits import OBJECT_BYTES, Meter

VALUES = 1000  # maximum number of distinct values of a column that are counted; a column with more has no counts
LEAST_IDS = 10  # rows from which on a column can look like ids
LARGEST = 3.4028234663852886e38  # the largest float32, because trainers compute with float32


def read_number(field: str) -> float | None:
    """Return the number in a field, or None for inf, nan, and numbers larger than a float32."""
    try:
        value = float(field)
    except ValueError:
        return None
    # float() also accepts 1_0 and digits of other scripts; nan fails, because a comparison with nan is False
    return value if -LARGEST <= value <= LARGEST and field.isascii() and "_" not in field else None


class RunningMoments:
    """Computes count, mean, deviation and range of numbers that arrive one by one."""

    def __init__(self) -> None:
        self.count = 0
        self.low = math.inf
        self.high = -math.inf
        self._origin = 0.0  # the first number; distances from this number are exact even if all numbers are large
        self._mean = 0.0  # relative to _origin
        self._squares = 0.0  # sum of the squared distances from the mean

    def add(self, value: float) -> None:
        """Add one number to the statistics."""
        if not self.count:
            self._origin = value
        self.count += 1
        shifted = value - self._origin
        distance = shifted - self._mean
        self._mean += distance / self.count
        self._squares += distance * (shifted - self._mean)
        if value < self.low:
            self.low = value
        if value > self.high:
            self.high = value

    @property
    def mean(self) -> float:
        """The mean of the numbers; at least one number is necessary."""
        return self._origin + self._mean

    @property
    def deviation(self) -> float:
        """The population standard deviation of the numbers; at least one number is necessary."""
        return math.sqrt(self._squares / self.count)


class ColumnSummary:
    """The statistics of one column.

    Args: memory: counts the bytes of the distinct values that are held in memory.  missing: words that stand for a
    missing value, as an empty field does.
    """

    def __init__(self, name: str, memory: Meter, missing: Collection[str] = ()) -> None:
        self.name = name
        self._missing_words = frozenset(missing)
        self.missing = 0
        self.numbers = RunningMoments()
        self.others = 0
        # place and text of the first field that is not a number
        self.first_other: tuple[str, str] | None = None
        self.is_rising = True  # whether each field is a whole number above the one before, as ids are
        self._memory = memory
        self._values: dict[str, int] | None = {}
        self._held = 0

    @property
    def is_number(self) -> bool:
        """Whether the column has at least one number, and all its other fields are numbers or empty."""
        return self.numbers.count > 0 and not self.others

    def add(self, field: str, name: str, line: int, unit: str = "line") -> None:
        """Add one field to the statistics.

        Args: name, line, unit: the place of the field, for messages (see `TableRow`).
        Raises: DataError: if the distinct values exceed DATA_MAX_MEMORY.
        """
        if not field or field.isspace() or field.strip() in self._missing_words:
            self.missing += 1
            return
        value = read_number(field)
        if self.is_rising:
            self.is_rising = value is not None and value > self.numbers.high and value.is_integer()
        if value is None:
            self.others += 1
            if self.first_other is None:
                self.first_other = (f"{name} {unit} {line}", field)
        else:
            self.numbers.add(value)
        if self._values is not None:
            self._add_value(field, name)

    def _add_value(self, field: str, name: str) -> None:
        assert self._values is not None
        count = self._values.get(field, 0)
        self._values[field] = count + 1
        if count:
            return
        size = len(field) + OBJECT_BYTES
        self._held += size
        self._memory.take(size, f"{name}, the different values of column {self.name!r}")
        if len(self._values) > VALUES:
            self._memory.give_back(self._held)
            self._values = None

    @property
    def counts(self) -> dict[str, int] | None:
        """The number of rows of each value, or None if the column has more than VALUES different values."""
        return self._values

    @property
    def has_whole_numbers(self) -> bool:
        """Whether all values are whole numbers, such as labels and codes; False if `counts` is None."""
        return self.is_number and _are_whole(self._values)

    @property
    def looks_like_ids(self) -> bool:
        """Whether each row has a value of its own: rising whole numbers, or words that never recur."""
        count = self.numbers.count + self.others
        if count < LEAST_IDS:
            return False
        return self.is_rising or (not self.is_number and self._values is not None and len(self._values) == count)

    def describe(self, *, is_class: bool = False) -> dict[str, object]:
        """Return the column's entry of columns.json; docs/data.md describes this file.

        Args: is_class: whether the column is the label and has classes; then `values` has all kinds of numbers.
        """
        about: dict[str, object] = {"name": self.name, "kind": "number" if self.is_number else "text"}
        about |= {"count": self.numbers.count + self.others, "missing": self.missing}
        if self.is_number:
            moments = self.numbers
            about |= {"mean": moments.mean, "std": moments.deviation, "min": moments.low, "max": moments.high}
        is_told = is_class or not self.is_number or _are_whole(self._values)
        counts = None if self._values is None or not is_told else self._values
        if counts is not None:
            about["values"] = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
        elif is_told:
            about["values"] = None
        return about


def _are_whole(values: dict[str, int] | None) -> bool:
    """Return whether all values are whole numbers, such as labels and codes, whose counts are useful."""
    return values is not None and all(value.lstrip("+-").isdigit() for value in values)
