"""The order in which a dict of Python 2.7 (64 bits, without randomised hashes) gives its keys.

paddle.v2 of v0.10 kept the arguments of a layer in such a dict, and made them in its order. The order of layers decides
the initial values of the parameters. No I/O.

Source: CPython 2.7, Objects/stringobject.c (string_hash) and Objects/dictobject.c (lookdict, insertdict).
"""

from __future__ import annotations

from collections.abc import Iterable

_WORD = (1 << 64) - 1
_LEAST_SLOTS = 8


def iteration_order(names: Iterable[str]) -> list[str]:
    """Return names in the order of a dict into which they were put in the given order."""
    slots: list[str | None] = [None] * _LEAST_SLOTS
    for used, name in enumerate(dict.fromkeys(names), 1):
        _insert(slots, name)
        if used * 3 >= len(slots) * 2:
            size = _LEAST_SLOTS
            while size <= used * 4:
                size *= 2
            before, slots = slots, [None] * size
            for one in before:
                if one is not None:
                    _insert(slots, one)
    return [name for name in slots if name is not None]


def _insert(slots: list[str | None], name: str) -> None:
    place = perturbation = _hash(name)
    while slots[place % len(slots)] is not None:
        place = 5 * place + perturbation + 1
        perturbation >>= 5
    slots[place % len(slots)] = name


def _hash(name: str) -> int:
    data = name.encode()
    result = data[0] << 7 if data else 0
    for byte in data:
        result = (1000003 * result ^ byte) & _WORD
    return result ^ len(data)
