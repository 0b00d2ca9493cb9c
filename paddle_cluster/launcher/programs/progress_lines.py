"""Find the lines with which a program of ENTRY tells its progress, and hand them to `paddle follow`.

The text is that of a user's program. A line of any length takes at most LONGEST bytes here, and a line that `paddle
follow` does not take at once is lost: each line says the whole progress.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence

from paddle_cluster.launcher.text import say

BEGIN = b"Pass="
LONGEST = 1000  # maximum bytes of a line; a longer one is ignored
END_S = 10.0  # seconds for the last files; a volume that does not answer must not delay the next attempt longer


class ProgressLines:
    """The lines of progress in the output of a program. `paddle follow` starts with the first one.

    Args: command: the command line of `paddle follow`. environ: that of the program.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._command, self._environ = command, environ
        self._rest = b""  # of the last line, which is not complete
        self._follower: subprocess.Popen[bytes] | None = None
        self._has_failed = False

    def feed(self, chunk: bytes) -> None:
        """Take a piece of the output."""
        lines = (self._rest + chunk).split(b"\n")
        # a line that is too long stays too long, whatever follows
        self._rest = lines.pop()[: LONGEST + 1]
        for line in lines:
            if line.startswith(BEGIN) and len(line) <= LONGEST:
                self._send(line + b"\n")

    def end(self, status: int) -> None:
        """Tell the status with which the program has ended, and wait for the last files. See `Program.status`."""
        if self._follower is None:
            return
        self._send(b"Exit=%d\n" % (status if status >= 0 else 128 - status))
        self._close_pipe()
        try:
            self._follower.wait(END_S)
        except subprocess.TimeoutExpired:
            say(f"paddle follow did not write the last progress within {END_S:g} s")
        self.close()

    def close(self) -> None:
        """End `paddle follow`, if it still runs."""
        if self._follower is not None:
            self._close_pipe()
            self._follower.kill()
            self._follower.wait()
            self._follower, self._has_failed = None, True  # it is not started again

    def _close_pipe(self) -> None:
        if self._follower is not None and self._follower.stdin is not None:
            self._follower.stdin.close()

    def _send(self, line: bytes) -> None:
        if self._follower is None and not self._has_failed:
            self._start()
        if self._follower is None or self._follower.stdin is None:
            return
        with contextlib.suppress(OSError):  # the pipe is full, or its reader has ended
            os.write(self._follower.stdin.fileno(), line)  # a line is shorter than PIPE_BUF: all of it, or nothing

    def _start(self) -> None:
        try:
            self._follower = subprocess.Popen(
                self._command,
                env=dict(self._environ),
                stdin=subprocess.PIPE,
                bufsize=0,
                process_group=0,  # Ctrl-C ends the program first
            )
        except OSError as problem:
            self._has_failed = True
            say(f"the progress of the program is not reported: {problem}")
            return
        if self._follower.stdin is not None:
            os.set_blocking(self._follower.stdin.fileno(), False)
