"""Files as nobody of ours writes them: what every reader of a volume must survive, without a traceback."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# what a JSON file may hold in place of its object
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
# what a value of an object may be in place of what it is
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
    """A pipe, whose reader waits for ever."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def make_directory(path: Path) -> None:
    """A directory of that name."""
    path.unlink(missing_ok=True)
    path.mkdir()


def make_dangling_link(path: Path) -> None:
    """A link that leads nowhere."""
    path.unlink(missing_ok=True)
    path.symlink_to("nowhere")


def make_loop(path: Path) -> None:
    """A link to itself."""
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def make_endless(path: Path) -> None:
    """A link to a device that never ends."""
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def make_sparse(path: Path) -> None:
    """A gigabyte that takes no room."""
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
    """Write a checkpoint's job.json so that its mark fits."""
    (checkpoint / "job.json").write_bytes(text)
    (checkpoint / "done").write_text(hashlib.sha256(text).hexdigest())


def replace_values(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value that has one part of another type, or one part less, and which part."""
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
    """JSON as a hostile writer would have it."""
    return json.dumps(value).encode("utf-8", "surrogatepass")
