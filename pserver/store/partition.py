"""The partition of the parameters: which service stores which elements, as in the legacy program.

The elements of all non-static parameters, in order, form one flat vector. Each parameter is cut into blocks of equal
size. Block b of a parameter is stored on service |(b + hash(name)) rem S|. Here S is the number of services, and `rem`
is the remainder with the sign of the dividend. Ranges are half-open. Every client must compute the same partition, so a
hello contains a digest of the names and sizes of the parameters. No I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from paddle_base.runtime.errors import BugError

Range = tuple[int, int, int]  # index of the parameter, first element, element after the last

_MASK = (1 << 64) - 1
_MULTIPLIER = 0xC6A4A7935BD1E995
_SEED = 0xC70F6907


class Sized(Protocol):
    """The properties of a ParameterSpec that determine the layout."""

    @property
    def name(self) -> str:
        """The name, whose hash determines which service stores the first block."""

    @property
    def size(self) -> int:
        """The number of elements."""

    @property
    def is_static(self) -> bool:
        """Whether the parameter is never updated, so that it belongs to no service."""


@dataclass(frozen=True)
class StridedRun:
    """A strided copy between the flat vector and a service's part of the vector.

    The copy consists of `count` pieces of `length` elements. Piece i begins at element flat + i*stride of the flat
    vector and at element local + i*length of the service's part.
    """

    flat: int
    local: int
    length: int
    stride: int
    count: int


def hash_name(name: str) -> int:
    """Return libstdc++'s 64-bit std::hash of the name, unsigned.

    Source: murmur hash 64A with seed 0xc70f6907 (libstdc++ hash_bytes.cc).
    """
    data = name.encode()
    x = _SEED ^ (len(data) * _MULTIPLIER & _MASK)
    whole = len(data) - len(data) % 8
    for at in range(0, whole, 8):
        word = int.from_bytes(data[at : at + 8], "little")
        x = (x ^ _shift(word * _MULTIPLIER & _MASK) * _MULTIPLIER & _MASK) * _MULTIPLIER & _MASK
    if whole < len(data):
        x = (x ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    return _shift(_shift(x) * _MULTIPLIER & _MASK)


def _shift(value: int) -> int:
    return value ^ (value >> 47)


def block_size(total: int, services: int) -> int:
    """Return the number of elements of one block if `total` elements are divided among `services` services."""
    return 1 << max((total // services).bit_length() - 7, 10)


def place_block(block: int, name_hash: int, services: int) -> int:
    """Return the service of a block: the absolute value of the remainder that has the sign of the dividend."""
    place = (block + name_hash) & _MASK
    return (place if place < 1 << 63 else (1 << 64) - place) % services


def layout(parameters: Sequence[Sized], services: int) -> list[list[Range]]:
    """Return each service's ranges, sorted by parameter and start; adjacent ranges of a parameter are joined.

    Static parameters belong to no service.

    Raises: BugError: the number of services is 0.
    """
    if services < 1:
        raise BugError(f"a layout needs at least one service, not {services}")
    block = block_size(count_elements(parameters), services)
    ranges: list[list[Range]] = [[] for _ in range(services)]
    for index, parameter in enumerate(parameters):
        if parameter.is_static:
            continue
        name_hash = hash_name(parameter.name)
        for number, start in enumerate(range(0, parameter.size, block)):
            owned = ranges[place_block(number, name_hash, services)]
            stop = min(start + block, parameter.size)
            if owned and owned[-1][0] == index and owned[-1][2] == start:
                owned[-1] = (index, owned[-1][1], stop)
            else:
                owned.append((index, start, stop))
    return ranges


def whole(parameters: Sequence[Sized]) -> list[Range]:
    """Return the ranges of a single service that stores all elements (a local run)."""
    return layout(parameters, 1)[0]


def count_elements(parameters: Sequence[Sized]) -> int:
    """Return the length of the flat vector."""
    return sum(parameter.size for parameter in parameters if not parameter.is_static)


def count_slots(ranges: Sequence[Range], block: int) -> int:
    """Return the length of v0.10's vector of the ranges, in which a short block takes as much space as a full block."""
    return sum(-(-(stop - start) // block) * block for _, start, stop in ranges)


def find_runs(parameters: Sequence[Sized], ranges: Sequence[Range]) -> list[StridedRun]:
    """Return the strided copies between the flat vector and a service's vector that transfer the service's ranges.

    Adjacent ranges become one copy. Ranges of equal length at equal distances also become one copy.
    """
    starts, at = [], 0
    for parameter in parameters:
        starts.append(at)
        at += 0 if parameter.is_static else parameter.size
    runs: list[StridedRun] = []
    local = 0
    for index, start, stop in ranges:
        _append(runs, starts[index] + start, local, stop - start)
        local += stop - start
    return runs


def cut_runs(runs: Sequence[StridedRun], start: int, stop: int) -> list[StridedRun]:
    """Return the part of the runs inside [start, stop) of the service's vector; `local` then counts from `start`."""
    found: list[StridedRun] = []
    for run in runs:
        first, last = max(start, run.local) - run.local, min(stop, run.local + run.length * run.count) - run.local
        while first < last:
            row, column = divmod(first, run.length)
            whole = (last - first) // run.length if column == 0 else 0
            length = run.length if whole else min(run.length - column, last - first)
            count = max(whole, 1)
            flat = run.flat + row * run.stride + column
            found.append(StridedRun(flat, run.local + first - start, length, run.stride, count))
            first += length * count
    return found


def _append(runs: list[StridedRun], flat: int, local: int, length: int) -> None:
    last = runs[-1] if runs else None
    if last and last.count == 1 and last.flat + last.length == flat:
        runs[-1] = StridedRun(last.flat, last.local, last.length + length, 0, 1)
    elif last and last.length == length and (last.count == 1 or last.flat + last.count * last.stride == flat):
        stride = flat - last.flat if last.count == 1 else last.stride
        runs[-1] = StridedRun(last.flat, last.local, length, stride, last.count + 1)
    else:
        runs.append(StridedRun(flat, local, length, 0, 1))


def digest(parameters: Sequence[Sized]) -> str:
    """Return a short text that differs between two different partitions."""
    lines = "".join(f"{parameter.size} {parameter.name}\n" for parameter in parameters if not parameter.is_static)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]
