"""RecordIO files for providers and other scripts.

    from paddle.trainer.recordio import index, name_chunks, reader, writer

`reader(name)` iterates over the records (bytes) of a file, or of a range of records as a task names it. Its `read()`
returns one record, and None after the last. `writer(path)` is a context manager with `write(record)`. `index(path)` has
the chunks of a file, and its `range(first, count)` returns the name of a range of records. `name_chunks(names)` returns
the names of the chunks of all files in a list. `reader` and `writer` have the API of the original Python module
`recordio`.
"""

from recordio.index import FileIndex, RecordRange, name_chunks
from recordio.index import read_index as index
from recordio.layout import Compression
from recordio.reading import RecordIOReader as reader
from recordio.writing import RecordIOWriter as writer

__all__ = ["Compression", "FileIndex", "RecordRange", "index", "name_chunks", "reader", "writer"]
