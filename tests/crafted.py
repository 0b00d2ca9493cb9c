"""Files that no program of this project writes; each reader of a volume must reject them without a traceback."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# contents of a JSON file that are not the expected object
TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "a list": b"[]",
    "null": b"null",
    "a number": b"7",
    "a text": b'"pass-00000"',
    "an empty object": b"{}",
    "lists in lists": b"[" * 100_000,
    "objects in objects": b'{"a":' * 100_000,
    "closed lists in lists": b"[" * 900 + b"]" * 900,
    "a huge number": b'{"version": ' + b"9" * 5000 + b"}",
    "not a number": b'{"version": NaN, "time": Infinity}',
    "half": b'{"version": 1, "par',
    "not UTF-8": b'{"version": "\xff\xfe"}',
    "zeros": b"\0" * 5000,
}
# values that replace a value of an object
VALUES: dict[str, Any] = {
    "null": None,
    "a number": -7,
    "a huge number": 10**400,
    "a text": "\x1b[31m\n\ud800",
    "a list": [[[]]],
    "an object": {"a": {"b": []}},
    "true": True,
}


def make_fifo(path: Path) -> None:
    """Make a named pipe; a program that opens it for reading waits without end."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def make_directory(path: Path) -> None:
    """Make a directory with the name of the file."""
    path.unlink(missing_ok=True)
    path.mkdir()


def make_dangling_link(path: Path) -> None:
    """Make a link to a file that does not exist."""
    path.unlink(missing_ok=True)
    path.symlink_to("nowhere")


def make_loop(path: Path) -> None:
    """Make a link that leads to itself."""
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def make_endless(path: Path) -> None:
    """Make a link to a device that can be read without end."""
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def make_sparse(path: Path) -> None:
    """Make a sparse file of a gigabyte."""
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(1 << 30)


REPLACEMENTS: dict[str, Callable[[Path], None]] = {
    "a pipe": make_fifo,
    "a directory": make_directory,
    "a link to nowhere": make_dangling_link,
    "a link to itself": make_loop,
    "a link to /dev/zero": make_endless,
    "a sparse gigabyte": make_sparse,
    "nothing": lambda path: path.unlink(),
    "no byte": lambda path: path.write_bytes(b""),
}


def reseal(checkpoint: Path, text: bytes) -> None:
    """Write a checkpoint's job.json, and the file `done` with its digest."""
    (checkpoint / "job.json").write_bytes(text)
    (checkpoint / "done").write_text(hashlib.sha256(text).hexdigest())


def replace_values(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (description, changed value) for each way to replace or remove one part of a value."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield f"without {name}", {key: kept for key, kept in value.items() if key != name}
            for what, changed in _change(one):
                yield f"{name}: {what}", {**value, name: changed}
    elif isinstance(value, list):
        for number, one in enumerate(value[:3]):
            for what, changed in _change(one):
                yield f"{number}: {what}", [*value[:number], changed, *value[number + 1 :]]


def _change(value: Any) -> Iterator[tuple[str, Any]]:
    yield from VALUES.items()
    yield from replace_values(value)


def spell(value: Any) -> bytes:
    """Return the JSON text of a value, whose strings may have surrogates, which are not valid in UTF-8."""
    return json.dumps(value).encode("utf-8", "surrogatepass")
