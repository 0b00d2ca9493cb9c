"""`paddle.reader`: readers, and functions that make readers of readers.

A reader is a function without arguments that returns an iterable of samples. A creator (`paddle.reader.creator`)
returns a reader. A decorator takes readers and returns a reader; `paddle.batch` groups samples.
"""

from paddle.v2.reader import creator
from paddle.v2.reader.decorator import (
    ComposeNotAligned,
    buffered,
    chain,
    compose,
    firstn,
    map_readers,
    pipe_reader,
    shuffle,
    xmap_readers,
)

__all__ = [
    "ComposeNotAligned",
    "buffered",
    "chain",
    "compose",
    "creator",
    "firstn",
    "map_readers",
    "pipe_reader",
    "shuffle",
    "xmap_readers",
]
