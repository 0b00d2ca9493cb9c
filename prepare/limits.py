"""Limits of the data job's input: input from another party could otherwise exhaust disk and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from prepare.errors import InputError

LINE_BYTES = 4 << 20  # bytes of a line of text, and of a row of a table
FILES = 1_000_000  # files in a folder, and members of an archive
DEPTH = 64  # levels of directories
OBJECT_BYTES = 256  # Python's overhead for a short line besides its characters: two strings, a tuple, their references


@dataclass
class Meter:
    """Counts bytes against a limit; the error names the file, the limit and its variable.

    Args: variable: the variable that sets the limit.  limit: maximum number of bytes.  manner: how the bytes are held,
        for the message.
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

        Raises: InputError: if all counted bytes together exceed the limit.
        """
        self.taken += count
        if self.taken > self.limit:
            raise InputError(
                f"{name}: the input has more than {self.limit} bytes {self.manner}; set {self.variable} to a larger "
                "number if you expect so much"
            )

    def give_back(self, count: int) -> None:
        """Subtract bytes that are no longer held."""
        self.taken -= count


def disk_meter(limit: int) -> Meter:
    """Return the meter of DATA_MAX_BYTES."""
    return Meter("DATA_MAX_BYTES", limit, "when it is unpacked")


def memory_meter(limit: int) -> Meter:
    """Return the meter of DATA_MAX_MEMORY."""
    return Meter("DATA_MAX_MEMORY", limit, "that must be held in memory")
