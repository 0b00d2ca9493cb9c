"""Write RecordIO files; a file gets its name when it is complete."""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import Self

from paddle_base.recordio.compression import compress
from paddle_base.recordio.errors import OversizedRecordError
from paddle_base.recordio.layout import HEADER, LENGTH, MAGIC, MOST_CHUNK_BYTES, Compression
from paddle_base.runtime.durable_files import find_output, remove_if_possible, staging_of, sync_directory
from paddle_base.runtime.errors import PaddleError, VolumeError

CHUNK_BYTES = 32 << 20  # default maximum bytes of a chunk's records; source: go/recordio writer.go


class RecordIOWriter:
    """A context manager that writes a file of records.

    The file is written under a temporary name, and renamed by `close` or at the end of the context. After an error in
    the context the new file is removed, and an existing file of that name remains.
    """

    def __init__(
        self, path: str | Path, compression: Compression = Compression.SNAPPY, max_chunk_bytes: int = CHUNK_BYTES
    ):
        """Open the file.

        A record begins a new chunk if the current chunk would otherwise exceed `max_chunk_bytes`. This limit does not
        count the stored lengths of the records, as in the Go library's writer. A single larger record is a chunk by
        itself.
        Raises: VolumeError: the file cannot be written.  ConfigError: Snappy is not installed.
        """
        compress(b"", compression)
        self._path = Path(path)
        self._compression, self._most = compression, max_chunk_bytes
        self._raw = bytearray()  # the current chunk: the length of each record, and then the record
        self._records = 0  # number of records in the current chunk
        try:
            self._place = find_output(self._path)
            self._staging = staging_of(self._place)
            self._file = self._staging.open("wb")
        except OSError as error:
            raise self._failure(error) from error

    def write(self, record: bytes) -> None:
        """Add a record.

        Raises: OversizedRecordError.  VolumeError: the file cannot be written.
        """
        size = len(record)
        if size + LENGTH.size > MOST_CHUNK_BYTES:
            raise OversizedRecordError(
                f"a record of {size} bytes for {self._path}: a chunk has at most {MOST_CHUNK_BYTES} bytes; "
                "split the record"
            )
        raw = len(self._raw) + size
        if raw - LENGTH.size * self._records > self._most or raw + LENGTH.size > MOST_CHUNK_BYTES:
            self.flush()
        # one operation stores length and record; if the record is not bytes, an error is raised and no length is stored
        self._raw += LENGTH.pack(size) + record
        self._records += 1

    def flush(self) -> None:
        """Write the buffered records as a chunk; do nothing if there are none.

        Raises: VolumeError: the file cannot be written.
        """
        if not self._records:
            return
        payload = compress(self._raw, self._compression)
        header = HEADER.pack(MAGIC, zlib.crc32(payload), self._compression, len(payload), self._records)
        self._raw, self._records = bytearray(), 0
        try:
            self._file.write(header)
            self._file.write(payload)
        except OSError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Write the last chunk, and rename the file; do nothing on a second call.

        Raises: VolumeError: the file cannot be written; the new file is then removed.
        """
        if self._file.closed:
            return
        try:
            self.flush()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._staging.replace(self._place)
            sync_directory(self._place.parent)
        except OSError as error:
            self.discard()
            raise self._failure(error) from error
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove the temporary file, unless `close` has renamed it already."""
        with contextlib.suppress(OSError):  # closing writes the rest of the buffer, which fails on a full volume
            self._file.close()
        remove_if_possible(self._staging)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def _failure(self, error: OSError) -> PaddleError:
        return VolumeError(f"cannot write {self._path}: {error.strerror}; make room there, or give another path")
