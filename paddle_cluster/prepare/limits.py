"""Limits of the data job's input. Without limits, input from an untrusted source could exhaust disk and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paddle_base.runtime.errors import DataError

LINE_BYTES = 4 << 20  # maximum bytes of a line of text, and of a row of a table
FILES = 1_000_000  # maximum number of files in a folder, and of members of an archive
# bytes that Python needs for a short line in addition to its characters: two strings, a tuple and their references
OBJECT_BYTES = 256


@dataclass
class Meter:
    """Counts bytes, and raises an error if their number exceeds a limit.

    Args: variable: the variable of the environment that sets the limit.  limit: maximum number of bytes.  manner: the
    words that follow the number of bytes in the error message, for example "when it is unpacked".
    """

    variable: str
    limit: int
    manner: str
    taken: int = 0

    def fresh(self) -> Meter:
        """Return a meter with the same limit and a count of 0."""
        return replace(self, taken=0)

    def take(self, count: int, name: str) -> None:
        """Count further bytes of the file `name`.

        Raises: DataError: if all counted bytes together exceed the limit.
        """
        self.taken += count
        if self.taken > self.limit:
            raise DataError(
                f"{name}: the input has more than {self.limit} bytes {self.manner}; set {self.variable} to a larger "
                "number if your input is meant to be so large"
            )

    def give_back(self, count: int) -> None:
        """Subtract bytes that are no longer in memory."""
        self.taken -= count


def disk_meter(limit: int) -> Meter:
    """Return a meter for the limit of DATA_MAX_BYTES."""
    return Meter("DATA_MAX_BYTES", limit, "when it is unpacked")


def memory_meter(limit: int) -> Meter:
    """Return a meter for the limit of DATA_MAX_MEMORY."""
    return Meter("DATA_MAX_MEMORY", limit, "that must be held in memory")
