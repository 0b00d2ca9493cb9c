"""RecordIO files for providers and other scripts.

    from paddle.trainer.recordio import index, name_chunks, reader, writer

`reader(name)` iterates over the records, bytes each, of a file or of a range of records that a task names; its `read()`
returns one record, and None after the last. `writer(path)` is a context with `write(record)`. `index(path)` has the
chunks of a file, and its `range(first, count)` names some of its records; `name_chunks(names)` names the chunks of all
files of a list. The first two have the names and methods of
the original's Python module `recordio`.
"""

from recordio.index import FileIndex, RecordRange, name_chunks
from recordio.index import read_index as index
from recordio.layout import Compression
from recordio.reading import RecordIOReader as reader
from recordio.writing import RecordIOWriter as writer

__all__ = ["Compression", "FileIndex", "RecordRange", "index", "name_chunks", "reader", "writer"]
