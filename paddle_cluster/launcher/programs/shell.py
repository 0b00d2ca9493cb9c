"""A command of a shell as a program of the launcher: the signals that reach it, and what its end means."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

from paddle_base.runtime.errors import ConfigError, DataError, LostPeerError, MissingInputError, find_exit_code
from paddle_cluster.launcher.attempts import AttemptResult
from paddle_cluster.launcher.programs.process import FATAL, Program
from paddle_cluster.launcher.programs.progress_lines import ProgressLines

SHELLS = ("sh", "dash", "bash", "ash", "busybox", "ksh", "zsh")
DEEPEST = 8  # maximum depth of shells that start shells
PYTHON_2 = 'if the program has the syntax of Python 2, set ENTRY to "paddle run PROGRAM.py" (docs/v2.md)'
_NOT_PYTHON_3 = re.compile(r"(SyntaxError|TabError): ")
_NO_FILE = re.compile(r"\S*python\S*: can't open file |ModuleNotFoundError: ")
# what gloo, NCCL, torch's store, gRPC and sockets say when another process has ended
_LOST = re.compile(
    r"Connection (closed|reset|refused|aborted)|Broken pipe|Socket closed|[Rr]emote (peer|process|host)|"
    r"Failed to recv, got 0 bytes|ncclRemoteError|DistStoreError|ConnectionError|UNAVAILABLE: "
)


class ShellProgram(Program):
    """The program that a command of a shell starts.

    The shell leads a process group, and all that is left of the group is killed at the end.
    """

    answers = False  # the program may know nothing of our metrics
    group = 0
    progress: ProgressLines | None = None  # the lines of progress in the copied output

    @property
    def status(self) -> int:
        """The status of the command; the shell adds 128 to the number of the signal that has killed the program."""
        status = int(self.process.returncode or 0)
        return 128 - status if status - 128 in signal.valid_signals() else status

    def terminate(self) -> None:
        """Send SIGTERM to the shell and to the programs that it waits for, but not to what these have started."""
        signal_command(self.process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the shell and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def add_to_log(self, chunk: bytes) -> None:
        """See `Program`."""
        super().add_to_log(chunk)
        if self.progress is not None:
            self.progress.feed(chunk)

    def finish(self) -> None:
        """See `Program`."""
        if self.progress is not None:
            self.progress.end(self.status)

    def close(self) -> None:
        """Kill what the command has left running, and close the descriptors."""
        self.kill()
        if self.progress is not None:
            self.progress.close()
        super().close()

    def find_result(self) -> AttemptResult:
        """See `Program`. The message says what a user of ENTRY may have to change."""
        result = super().find_result()
        status, advice = judge_end(result.status, self.read_end()) if self.status > 0 else (result.status, "")
        message = f"{result.message}\n{advice}" if advice else result.message
        return AttemptResult(status, result.program, message, result.signal)


def judge_end(status: int, text: str) -> tuple[int, str]:
    """Return the exit status of the pod for a program that has ended with an error, and advice for its user, or "".

    A status of the project's table stays. Of the others, the last error of the program's output decides: an error that
    every attempt repeats is final, and one about a lost process is never the first failure of an attempt.

    Args: status: above 0. text: the end of the program's output.
    """
    lines = text.splitlines()
    errors = [line for line in lines if FATAL.match(line) or _NO_FILE.match(line)] or [*filter(_LOST.search, lines)]
    last = errors[-1] if errors else ""
    if status in (126, 127):
        return ConfigError.exit_code, "the shell cannot run the command of ENTRY: correct its first word"
    if status not in (1, 2):
        return status, ""
    if code := find_exit_code(last):
        return code, ""
    if _NOT_PYTHON_3.match(last):
        return DataError.exit_code, PYTHON_2
    if _NO_FILE.match(last):
        return MissingInputError.exit_code, "correct the name in ENTRY, or put the file into the program's directory"
    return (LostPeerError.exit_code, "") if _LOST.search(last) else (status, "")


def signal_command(pid: int, number: signal.Signals) -> None:
    """Send a signal to the shell of a command and to the programs that it has started.

    A shell below it that does not catch the signal would end before its program, so its program gets the signal.
    """
    for process in [pid, *_find_receivers(pid, number)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def _find_receivers(pid: int, number: signal.Signals, depth: int = 0) -> Iterator[int]:
    if depth >= DEEPEST or not _is_shell(pid):
        return
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:  # it has ended
        return
    for child in map(int, children):
        if _is_shell(child) and not _catches(child, number):
            yield from _find_receivers(child, number, depth + 1)
        else:
            yield child


def _is_shell(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name in SHELLS
    except OSError:
        return False


def _catches(pid: int, number: signal.Signals) -> bool:
    try:
        caught = re.search(r"SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    except OSError:
        return False
    return bool(caught and int(caught[1], 16) >> (number - 1) & 1)
