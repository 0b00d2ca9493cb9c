"""What an environment variable is: name, default, meaning, and a parser that rejects wrong values. No I/O."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

MOST_TRAINERS = 100_000  # maximum trainers of a job, equal to the maximum pods of an Indexed Job (Kubernetes, Job API)


@dataclasses.dataclass(frozen=True)
class EnvironmentVariable:
    """An environment variable.

    If `default` is None, the variable is required. `parse` returns the value in its type, or raises a ValueError that
    describes the expected value. With `find`, `default` only describes the default; `find` computes it from the
    environment, and returns None if there is none.
    """

    name: str
    default: str | None
    meaning: str
    parse: Callable[[str], Any] = str
    find: Callable[[Mapping[str, str]], str | None] | None = None

    def read(self, environ: Mapping[str, str]) -> Any:
        """Return the value of the variable, or of its default. Raises: ValueError: see `check`."""
        default = self.find if self.find else lambda _: self.default
        return self.check(environ.get(self.name) or default(environ))

    def check(self, text: str | None) -> Any:
        """Return the value, or raise ValueError with the variable, its value and the expected form."""
        if text is None:
            raise ValueError(f"{self.name} is not set: {self.meaning}")
        try:
            if text == "None":
                raise ValueError("a value; 'None' usually comes from str() of an unset variable")
            return self.parse(text)
        except ValueError as expected:
            raise ValueError(f"{self.name} is {text!r}, expected {expected}: {self.meaning}") from None


def variable(
    name: str,
    default: str | None,
    meaning: str,
    parse: Callable[[str], Any] = str,
    find: Callable[[Mapping[str, str]], str | None] | None = None,
    **options: Any,
) -> Any:
    """Return a field of a dataclass whose value is that of a variable. Args: options: those of dataclasses.field."""
    return dataclasses.field(metadata={"variable": EnvironmentVariable(name, default, meaning, parse, find)}, **options)


def variables_of(settings: type[Any]) -> dict[str, EnvironmentVariable]:
    """Return {name of a field: its variable} of a dataclass, in the order of the fields."""
    return {field.name: field.metadata["variable"] for field in dataclasses.fields(settings)}


def integer(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers in [low, high]."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


def matching(pattern: str, expected: str) -> Callable[[str], str]:
    """Return a parser of texts that match the pattern as a whole."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(expected)
        return text

    return parse


def switch(text: str) -> bool:
    """Parse 0 or 1."""
    return bool(integer(0, 1)(text))


def seconds(text: str) -> float:
    """Parse a positive number of seconds."""
    value = float(text) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else 0.0
    if not 0 < value <= 1e6:
        raise ValueError("a number of seconds above 0, at most 1000000")
    return value


DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
