"""Records by the recipe of the golden files, and where these are."""

from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden" / "recordio"
FILES = {  # name -> records, most bytes of each, most bytes of a chunk; the README beside the files
    "plain": (100, 40, 500),
    "snappy": (100, 40, 500),
    "gzip": (100, 40, 500),
    "one": (1, 10, 32 << 20),
    "empty": (0, 0, 32 << 20),
    "empty_records": (7, 0, 32 << 20),
    "chunk_per_record": (12, 30, 1),
}


def golden(name: str) -> Path:
    """The path of a golden file; the test is skipped where there is none."""
    path = GOLDEN / f"{name}.recordio"
    if not path.exists():
        pytest.skip(f"there are no files of the original's library: {path.parent} is absent")
    return path


def make_record(i: int, most: int) -> bytes:
    """Record i of a golden file whose records have up to `most` bytes."""
    state = (i * 2654435761 + 12345) % 2**32

    def draw() -> int:
        nonlocal state
        state = (state * 1664525 + 1013904223) % 2**32
        return state >> 16

    size = draw() % (most + 1)
    return bytes(ord("a") + i % 26 if i % 3 == 0 else draw() & 255 for _ in range(size))


def make_records(count: int, most: int) -> list[bytes]:
    return [make_record(i, most) for i in range(count)]
