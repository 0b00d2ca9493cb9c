"""Handle text and JSON from outside the launcher: remove secrets, parse with limits, and log."""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import math
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

from paddle_base.runtime.bounded_json import check_structure
from paddle_base.runtime.errors import BugError, InterruptError, PaddleError
from paddle_base.runtime.kubernetes.text import one_line, printable, shorten
from paddle_base.runtime.network.redaction import Secrets

LOGGER = logging.getLogger("launcher")
JsonObject = dict[str, Any]

Part = TypeVar("Part")
# maximum number of values in a JSON text; a Pod has about 250 values, and a value takes up to 100 bytes of memory
VALUES_LIMIT = 4_000_000
DEPTH_LIMIT = 32  # maximum nesting depth of a JSON file on the volume; the launcher's own files have four levels
TABLE_ROWS = 20  # maximum rows of a table of pods, and maximum number of pods in one log line
ROW_LIMIT = 9000  # maximum characters of a line of `paddle status`; an error's message has at most 8,000 characters
CELL_LIMIT = 253  # maximum characters of a cell of a table; a node's name in Kubernetes has at most 253 characters
END_OF_TIME = 1e11  # seconds since the epoch, in the year 5138; a larger number cannot be a time


class LauncherLog(logging.Handler):
    """Write the launcher's own messages to stdout, where `kubectl logs` shows them.

    Only the first line of a message starts in column 1. Text from outside therefore cannot imitate a message.
    """

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self.secrets = secrets

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message; on a full disk or a closed pipe only that message is lost."""
        stamp = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        with contextlib.suppress(OSError):
            print(f"{stamp} start_paddle: {_indent(self.secrets.redact(record.getMessage()))}", flush=True)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Inside this block, send the messages of `say` only to this handler."""
        before = LOGGER.level, LOGGER.propagate
        LOGGER.addHandler(self)
        LOGGER.setLevel(logging.INFO)
        LOGGER.propagate = False
        try:
            yield
        finally:
            LOGGER.removeHandler(self)
            LOGGER.level, LOGGER.propagate = before


def end_in_one_line(work: Callable[[], int], secrets: Secrets) -> int:
    """Run `work` and return its exit status. Log an expected error as one line, and a bug with its traceback."""
    try:
        return work()
    except KeyboardInterrupt:
        return InterruptError.exit_code
    except PaddleError as error:
        say(f"error: {error}")
        return error.exit_code
    except Exception:  # a bug of this program
        with contextlib.suppress(OSError):
            print(_indent(secrets.redact(traceback.format_exc())), end="", file=sys.stderr)
        return BugError.exit_code


def _indent(text: str) -> str:
    """Return a printable text of which only the first line starts in column 1."""
    first, *others = printable(text).split("\n")
    return "\n".join([first, *(line if line[:1] in ("", " ") else f"  {line}" for line in others)])


def say(message: str) -> None:
    """Log one message of the launcher through the LauncherLog that the main program has installed."""
    LOGGER.info("%s", message)


def as_row(text: str) -> str:
    """Return a text as one printable line of at most ROW_LIMIT characters; a space replaces each line break and tab."""
    shown = text if len(text) <= ROW_LIMIT else f"{text[:ROW_LIMIT]}..."
    return printable(re.sub(r"[\n\t]", " ", shown))


def part(owner: JsonObject, name: str, kind: type[Part]) -> Part:
    """Return a field of an API object, or an empty value if the field is absent or null.

    Spaces replace the line breaks of a text.
    Raises: ValueError: the field has another type.
    """
    found = owner.get(name)
    if found is None:
        return kind()
    if not isinstance(found, kind):
        expected = {str: "a text", int: "a whole number", dict: "an object", list: "a list"}[kind]
        raise ValueError(f"{name} is {shorten(found)}, expected {expected}")
    return one_line(found) if isinstance(found, str) else found  # type: ignore[return-value]


def objects(owner: JsonObject, name: str) -> list[JsonObject]:
    """Return a list of objects from an API object. Raises: ValueError: the field is not a list of objects."""
    found = part(owner, name, list)
    for number, one in enumerate(found):
        if not isinstance(one, dict):
            raise ValueError(f"{name}[{number}] is {shorten(one)}, expected an object")
    return found


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN, Infinity and -Infinity, which Python's parser accepts although they are not JSON."""
    raise ValueError(f"{name} is no value of JSON")


def parse_json(content: bytes, constant: Callable[[str], object] = refuse_constant) -> Any:
    """Return the value of a JSON text from outside. Args: constant: maps NaN, Infinity and -Infinity to values.

    Raises: ValueError: the text is not JSON, is nested too deep, or has more than VALUES_LIMIT values.
    """
    values = sum(content.count(mark) for mark in (b",", b"[", b"{"))
    if values > VALUES_LIMIT:
        raise ValueError(f"the JSON text has about {values} values, at most {VALUES_LIMIT} are allowed")
    try:
        return json.loads(content, parse_constant=constant)
    except RecursionError:
        raise ValueError("the JSON text is nested too deep") from None


def parse_file(content: bytes, constant: Callable[[str], object] = refuse_constant) -> Any:
    """Return the value of a JSON file of the volume, which is nested at most DEPTH_LIMIT deep. See `parse_json`."""
    check_structure(content, depth=DEPTH_LIMIT, values=VALUES_LIMIT)
    return parse_json(content, constant)


def list_some(texts: Sequence[str], separator: str) -> str:
    """Join up to TABLE_ROWS texts, and add the number of texts that are left out."""
    more = [f"and {len(texts) - TABLE_ROWS} more"] if len(texts) > TABLE_ROWS else []
    return separator.join([*texts[:TABLE_ROWS], *more])


def number_of(value: object) -> float | None:
    """Return the value as a float, or None if the value is not a finite number."""
    try:
        found = float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def in_one_line(text: str) -> str:
    """Return the first and the last line of a text, which are the most useful lines of a program's last output."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
