"""RecordIO files for providers and other scripts.

    from paddle.trainer.recordio import index, name_chunks, reader, writer

`reader(name)` iterates over records (bytes). The name is the name of a file, or of a range of records inside a file;
the tasks of a master contain such ranges. A reader's method `read()` returns the next record, or None after the last
record. `writer(path)` is a context manager with the method `write(record)`. `index(path)` lists the chunks of a file;
its method `range(first, count)` returns the name of a range of records. `name_chunks(names)` returns the names of all
chunks of the given files. `reader` and `writer` have the API of the original Python module `recordio`.
"""

from paddle_base.recordio.index import FileIndex, RecordRange, name_chunks
from paddle_base.recordio.index import read_index as index
from paddle_base.recordio.layout import Compression
from paddle_base.recordio.reading import RecordIOReader as reader
from paddle_base.recordio.writing import RecordIOWriter as writer

__all__ = ["Compression", "FileIndex", "RecordRange", "index", "name_chunks", "reader", "writer"]
