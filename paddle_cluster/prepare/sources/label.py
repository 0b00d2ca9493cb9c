"""The column of a table that a network learns to predict: its classes, or its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from paddle_base.runtime.errors import DataError
from paddle_cluster.prepare.limits import OBJECT_BYTES
from paddle_cluster.prepare.log import say
from paddle_cluster.prepare.sources.columns import ColumnSummary
from paddle_cluster.prepare.sources.table import Table
from paddle_cluster.prepare.values import Settings

CLASSES = 10_000  # maximum number of distinct labels
FEW_CODES, MOST_CODES = 10, 100  # numbers of different whole numbers: so few are classes, and more than these are not
ROWS_OF_CODE = 5  # between both bounds whole numbers are classes if each occurs so often on average


class LabelColumn:
    """The column that CSV_LABEL names, or none.

    Args: table: its rows are given to `class_of` while they are read.
    Attributes: place: the position of the column, or None.  task: "classes" or "number" after `decide`, or None without
    a label.  classes: label -> number of its class; empty if the label is a number.
    """

    def __init__(self, table: Table, settings: Settings) -> None:
        self.place = table.place_of("CSV_LABEL", settings.csv_label) if settings.csv_label else None
        self.task: str | None = None
        self.classes: dict[str, int] = {}
        self._asked = settings.csv_task
        self._is_full = False
        self._memory = table.memory
        self._column = None if self.place is None else table.columns[self.place]

    def class_of(self, fields: Sequence[str]) -> int:
        """Return the number of a row's class, or 0 without a label.

        Raises: DataError: if there are too many classes.
        """
        if self.place is None or self._asked == "number" or self._is_full:
            return 0
        label = fields[self.place]
        if label not in self.classes:
            self._memory.take(len(label) + OBJECT_BYTES, "the different values of CSV_LABEL")
            self._is_full = len(self.classes) >= CLASSES
            if self._is_full:
                self._require_numbers()
                return 0
        return self.classes.setdefault(label, len(self.classes))

    def decide(self) -> None:
        """Find out after the last row what the label is, and log it.

        Raises: DataError: if the label should be numbers, but has other words.
        """
        if self._column is None:
            return
        column = self._column
        self.task = self._asked
        if self._is_full or self._asked == "number":
            self._require_numbers()
            self.task = "number"
        elif self._asked == "auto":
            self.task = "number" if column.is_number and not _are_codes(column) else "classes"
        if self.task == "number":
            self.classes = {}
        found = "a number" if self.task == "number" else f"one of {len(column.counts or self.classes)} classes"
        if self._asked == "auto":
            say(f"the label {column.name!r} is taken for {found}; CSV_TASK changes this")

    def _require_numbers(self) -> None:
        column = self._column
        assert column is not None
        if column.is_number and self._asked != "classes":
            return
        if self._asked == "number":
            place, field = column.first_other or ("the table", "")
            raise DataError(
                f"{place}: the label {column.name!r} has {field[:60]!r}, which is not a number; correct it, "
                "or add it to CSV_MISSING, or set CSV_TASK=classes"
            )
        raise DataError(
            f"the column CSV_LABEL={column.name} has more than {CLASSES} values; set CSV_TASK=number if it has numbers "
            "to predict, or unset CSV_LABEL, because such a column names no classes"
        )


def _are_codes(column: ColumnSummary) -> bool:
    """Return whether the numbers of a column look like classes: few different whole numbers, of which each recurs."""
    counts = column.counts
    if counts is None or not column.has_whole_numbers:
        return False
    few = len(counts) <= FEW_CODES
    return few or (len(counts) <= MOST_CODES and sum(counts.values()) >= ROWS_OF_CODE * len(counts))
