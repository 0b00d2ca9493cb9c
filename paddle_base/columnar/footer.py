"""The metadata at the end of a Parquet file: where the parts of its columns lie. No I/O.

pyarrow reads the same metadata, but some damaged metadata end its process when they are asked for.
Source: apache/parquet-format, parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from paddle_base.columnar.thrift import ThriftError, ThriftReader

MOST_ELEMENTS, SCHEMA_DEPTH = 1 << 17, 64  # maximum number of elements of a schema, and of groups in one another
REPEATED = 2  # of a schema's element: it has any number of values in each row
BYTES_OF = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # physical type -> bytes of a decoded value
FIXED = 7  # the physical type of values whose number of bytes the schema says


class DamagedFooterError(Exception):
    """The headers in a Parquet file are damaged; the error's text says how."""


class Chunk(NamedTuple):
    """The part of a column in a row group: its bytes in the file, its values, and the bytes of a decoded value.

    A text has any number of bytes, which `value_bytes` 0 stands for.
    """

    start: int
    length: int
    values: int
    value_bytes: int


class RowGroup(NamedTuple):
    """A row group: its number of rows, and a chunk for each column of Parquet."""

    rows: int
    chunks: list[Chunk]


class Leaf(NamedTuple):
    """A column of Parquet: whether a row may have several values of it, and the bytes of a value of fixed length."""

    is_repeated: bool
    fixed_bytes: int


@dataclass
class Footer:
    """The metadata of a file.

    Attributes: leaves: the columns of Parquet.
    """

    leaves: list[Leaf]
    groups: list[RowGroup]


def read_footer(data: bytes) -> Footer:
    """Return the metadata.

    Raises: DamagedFooterError: the bytes are damaged, or the schema is too deep or too long.
    """
    try:
        fields = ThriftReader(data).fields()
    except ThriftError as error:
        raise DamagedFooterError(f"its metadata are damaged ({error})") from error
    schema, groups = fields.get(2), fields.get(4)
    if not isinstance(schema, list) or not isinstance(groups, list):
        raise DamagedFooterError("its metadata have no schema, or no list of row groups")
    leaves = _find_leaves(schema)
    return Footer(leaves, [_read_group(group, leaves) for group in groups])


def _find_leaves(elements: list[Any]) -> list[Leaf]:
    if not 0 < len(elements) <= MOST_ELEMENTS:
        raise DamagedFooterError(f"its schema has {len(elements)} elements; at most {MOST_ELEMENTS} are read")
    leaves: list[Leaf] = []
    # for each group around the next element: the number of its children that follow, and whether it is repeated
    around: list[list[int]] = []
    for element in elements:
        children, is_repeated = _number(element, 5, 0), _number(element, 3, 0) == REPEATED
        while around and around[-1][0] == 0:
            around.pop()
        if around:
            around[-1][0] -= 1
            is_repeated = is_repeated or bool(around[-1][1])
        if children > 0:
            around.append([children, is_repeated])
        else:
            leaves.append(Leaf(is_repeated, max(1, _number(element, 2, 0))))
        if len(around) > SCHEMA_DEPTH:
            raise DamagedFooterError(f"groups of its schema are more than {SCHEMA_DEPTH} deep")
    return leaves


def _read_group(group: Any, leaves: Sequence[Leaf]) -> RowGroup:
    chunks = group.get(1) if isinstance(group, dict) else None
    if not isinstance(chunks, list) or len(chunks) != len(leaves):
        raise DamagedFooterError("a row group has not all columns")
    return RowGroup(_number(group, 3), [_read_chunk(*one) for one in zip(chunks, leaves, strict=True)])


def _read_chunk(chunk: Any, leaf: Leaf) -> Chunk:
    about = chunk.get(3) if isinstance(chunk, dict) else None
    start, dictionary = _number(about, 9), _number(about, 11, 0)
    if 0 < dictionary < start:
        start = dictionary
    kind = _number(about, 1)
    value_bytes = leaf.fixed_bytes if kind == FIXED else BYTES_OF.get(kind, 0)
    found = Chunk(start, _number(about, 7), _number(about, 5), value_bytes)
    if min(found) < 0:
        raise DamagedFooterError("a column has a negative number")
    return found


def _number(fields: Any, place: int, absent: int | None = None) -> int:
    found = fields.get(place, absent) if isinstance(fields, dict) else None
    if not isinstance(found, int):
        raise DamagedFooterError("its metadata lack a number")
    return found
