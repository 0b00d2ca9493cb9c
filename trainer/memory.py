"""How this process asks the system for memory.

A batch makes large temporary arrays, as many as the batch before. By default the C library gives such arrays back to
the system at once and asks for them again, and every page of them is then cleared again.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # parameters of mallopt, from glibc's malloc.h
_NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """Keep what is freed for the next array instead of giving it back; with glibc only."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    set_option(_MMAP_MAX, 0)
    set_option(_TRIM_THRESHOLD, _NEVER)
    set_option(_ARENA_MAX, 1)  # or every thread would keep memory of its own
