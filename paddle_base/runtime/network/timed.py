"""Reads HTTP answers with one deadline for each whole answer."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any

NO_TIMEOUT_S = 10.0  # seconds for an answer on a connection that has no timeout
LINE_LIMIT = 1 << 16  # maximum bytes of a line, such as the size of a chunk, which urllib3 reads without a limit


class TimedReader(io.RawIOBase):
    """Reads a socket with one deadline for all reads. The socket's timeout alone would restart at each read."""

    def __init__(self, raw: io.RawIOBase, connection: socket.socket) -> None:
        """Args: raw: reader of the connection; the connection's timeout is the time limit of the answer."""
        self._raw, self._connection = raw, connection
        self._deadline = time.monotonic() + (connection.gettimeout() or NO_TIMEOUT_S)

    def readable(self) -> bool:
        """Return True, which io.BufferedReader requires."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read the available bytes. Raises: TimeoutError: the deadline is over."""
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the answer was not complete in time")
        self._connection.settimeout(remaining)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Close the reader of the connection."""
        self._raw.close()
        super().close()


class BoundedLines(io.BufferedReader):
    """A reader whose lines have at most LINE_LIMIT bytes unless the caller asks for more."""

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line, or its first LINE_LIMIT bytes."""
        return super().readline(LINE_LIMIT if size is None or size < 0 else size)


class TimedResponse(http.client.HTTPResponse):
    """An answer with one timeout from the status line to the end of the body."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp: Any = BoundedLines(TimedReader(self.fp.detach(), sock))


class TimedConnection(http.client.HTTPConnection):
    """A connection whose timeout is the time limit of each whole answer."""

    response_class = TimedResponse
