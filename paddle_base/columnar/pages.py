"""The headers of the pages of a Parquet file, which tell how large the pages become when they are decoded.

The metadata at the end of a file name the size of each column, but a decoder believes the headers of the pages. A page
of a few bytes may declare two gigabytes, or a thousand million values.
Source: apache/parquet-format, parquet.thrift and Encodings.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any

from paddle_base.columnar.footer import Chunk, DamagedFooterError
from paddle_base.columnar.thrift import ThriftEnd, ThriftError, ThriftReader

DATA, INDEX, DICTIONARY, DATA_2 = range(4)  # types of pages
HEADER_FIELDS = {DATA: 5, DICTIONARY: 7, DATA_2: 8}  # the field of a page header that has the header of its type
DELTA_BYTE_ARRAY = 7  # the encoding in which each text repeats the beginning of the text before
FIRST_READ, MOST_HEADER = 1 << 10, 1 << 20  # bytes of a page header, which may have the smallest and largest value
MOST_PAGES = 1 << 20  # maximum number of pages of a column in a row group


@dataclass
class ChunkSize:
    """How large the part of a column in a row group becomes when it is decoded.

    Attributes: largest: bytes of its largest page.  dictionary: bytes of its dictionary.  mean: the most bytes for each
    value of a page, as a mean over the page.  values: number of all values, nulls and empty lists among them.  total:
    bytes of all pages.  repeats: whether texts repeat the beginning of the text before, also of that in the page
    before, so that each may be as long as all pages.
    """

    largest: int = 0
    dictionary: int = 0
    mean: float = 0.0
    values: int = 0
    total: int = 0
    repeats: bool = False


def measure_chunk(file: IO[bytes], chunk: Chunk) -> ChunkSize:
    """Read the headers of all pages of a column in a row group.

    Raises: DamagedFooterError: a header is damaged, or the pages have more bytes or values than the metadata say.
    """
    size, pages = ChunkSize(), 0
    at, end = chunk.start, chunk.start + chunk.length
    while at < end and size.values < chunk.values:
        header, taken = _read_header(file, at, min(MOST_HEADER, end - at))
        kind, plain, packed = (header.get(field) for field in (1, 2, 3))
        if (
            not isinstance(kind, int)
            or not isinstance(plain, int)
            or not isinstance(packed, int)
            or plain < 0
            or packed < 0
        ):
            raise DamagedFooterError("a page has no size, or a negative one")
        about = header.get(HEADER_FIELDS.get(kind, 0))
        at, pages = at + taken + packed, pages + 1
        if at > end or pages > MOST_PAGES:
            raise DamagedFooterError("its pages do not end where the metadata say")
        if kind == DICTIONARY:
            size.dictionary = max(size.dictionary, plain)
        elif isinstance(about, dict):
            count = about.get(1)
            if not isinstance(count, int) or count < 0:
                raise DamagedFooterError("a page has no number of values, or a negative one")
            size.values += count
            if size.values > chunk.values:
                raise DamagedFooterError(f"its pages have more than the {chunk.values} values that the metadata say")
            size.repeats = size.repeats or about.get(2 if kind == DATA else 4) == DELTA_BYTE_ARRAY
            size.mean = max(size.mean, plain / max(1, count))
            size.largest = max(size.largest, plain)
            size.total += plain
    return size


def _read_header(file: IO[bytes], at: int, most: int) -> tuple[dict[int, Any], int]:
    """Return the header of the page at a position, and the number of its bytes."""
    count = min(FIRST_READ, most)
    while True:
        file.seek(at)
        reader = ThriftReader(file.read(count))
        try:
            return reader.fields(), reader.at
        except ThriftEnd as error:
            if count >= most:
                raise DamagedFooterError(f"a page has no header ({error})") from error
            count = min(count * 16, most)
        except ThriftError as error:
            raise DamagedFooterError(f"a page has no header ({error})") from error
