"""A child process with a descriptor that signals its end, and the signals that the launcher itself receives."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from paddle_base.runtime.errors import ConfigError, InterruptError, LostPeerError, StoppedError
from paddle_base.runtime.forking.client import ForkedProgram
from paddle_cluster.launcher.attempts import AttemptResult
from paddle_cluster.launcher.programs.fork_client import PodForkServer
from paddle_cluster.launcher.programs.memory import MemoryAccount, explain_kill
from paddle_cluster.launcher.text import say

LAST_LINES = 5  # number of lines of a program's log in the message about the program's end
TAIL_BYTES = 4000  # bytes at the end of a log that are searched for the last lines
FATAL = re.compile(r"\.*F[0-9]{4} |[\w.]*(Error|Exception): ")  # of glog, possibly after dots, or of a traceback
TAIL_S = 5.0  # seconds for the volume to return the end of a log


class Program:
    """A child process with the path of its log; a selector can wait for the end of the process.

    Attributes: answers: whether a program with a metrics port always answers there.
    """

    answers = True
    group: int | None = None  # for subprocess.Popen: 0: the process leads a group of its own

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        environ: Mapping[str, str],
        log: Path,
        *,
        copied: bool,
        metrics_port: int = 0,
        forks: PodForkServer | None = None,
    ) -> None:
        """Args: copied: whether the launcher copies `process.stdout` to the log; if not, the program writes the log.

        metrics_port: port of the program's /healthz, or 0. forks: what starts a command of `paddle` faster.
        """
        self.name, self.log, self.metrics_port = name, log, metrics_port
        self.memory = MemoryAccount.read()
        self.file = log.open("wb", buffering=0)
        self.log_problem = ""
        self.end = b"" if copied else None  # the last part of the copied output, for describe_end
        try:
            output = subprocess.PIPE if copied else self.file.fileno()
            forked = forks.start(argv, environ, output) if forks else None
            self.process: subprocess.Popen[bytes] | ForkedProgram = forked or subprocess.Popen(
                argv,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                stdout=output,
                process_group=self.group,
            )
        except (FileNotFoundError, PermissionError) as problem:
            missing = f"there is no program {argv[0]!r} on PATH that this user may run: install the package"
            raise ConfigError(missing) from problem
        self.pidfd = os.pidfd_open(self.process.pid)
        self.output = self.process.stdout.fileno() if self.process.stdout else -1
        # reads must not block, because a child of the program may keep the pipe open after the program's end
        if copied:
            os.set_blocking(self.output, False)

    @property
    def status(self) -> int:
        """The status of the ended program: its exit status, or the negative number of the signal that killed it."""
        return int(self.process.returncode or 0)

    def terminate(self) -> None:
        """Send SIGTERM to the program."""
        self.process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to the program."""
        self.process.kill()

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM to the program, and SIGKILL after `grace_s` seconds; if `grace_s` is 0, send SIGKILL at once."""
        if self.process.poll() is None:
            if grace_s:
                self.terminate()
            try:
                self.process.wait(grace_s)
            except subprocess.TimeoutExpired:
                say(f"{self.name} did not end in time after SIGTERM, and gets SIGKILL")
                self.kill()
                self.process.wait()

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self.pidfd)
        with contextlib.suppress(OSError):  # a network file system may report a failed write only at close
            self.file.close()
        if self.process.stdout:
            self.process.stdout.close()

    def add_to_log(self, chunk: bytes) -> None:
        """Write to the log. A write error does not end the training; the next save of a pass reports the error."""
        self.end = ((self.end or b"") + chunk)[-TAIL_BYTES:]
        try:
            while chunk:
                chunk = chunk[self.file.write(chunk) :]
        except OSError as problem:
            if str(problem) != self.log_problem:
                say(f"cannot write {self.log}: {problem}; the pod's own log contains the missing lines")
            self.log_problem = str(problem)

    def finish(self) -> None:
        """Take note that the program has ended, and that its output is copied."""

    def describe_end(self) -> str:
        """Describe how the program ended, with the last lines of its log.

        If the launcher copied the output, the lines come from the launcher's copy. The log file is not read then,
        because a network file system that has refused a write to a file may block a reader of the file for minutes.
        """
        lines = pick_last_lines(self.read_end())
        ended = describe_status(self.status)
        if self.status == -signal.SIGKILL:
            ended += explain_kill(self.memory, MemoryAccount.read())
        return f"{self.name} {ended}; the end of {self.log}:\n" + "\n".join(f"    {line}" for line in lines)

    def read_end(self) -> str:
        """Return the last TAIL_BYTES of the program's output."""
        return read_tail(self.log) if self.end is None else self.end.decode("utf-8", "replace")

    def find_result(self) -> AttemptResult:
        """Return the result of the attempt that the end of this program causes."""
        killer = signal.Signals(-self.status).name if self.status < 0 else ""
        return AttemptResult(exit_code_of(self.status), self.name, self.describe_end(), killer)


def pick_last_lines(text: str) -> list[str]:
    """Return the lines at the end of a log that say why a program ended: never blank lines, and always its last error.

    The error of a program may come before other lines, for example those of a child that ended later.
    """
    lines = [line for line in text.splitlines() if line.strip()] or ["(no output)"]
    shown = lines[-LAST_LINES:]
    errors = [line for line in lines if FATAL.match(line)]
    return shown if not errors or errors[-1] in shown else [errors[-1], *shown[1:]]


def read_tail(path: Path, size: int = TAIL_BYTES) -> str:
    """Return the last bytes of a log as text, or a note if the volume does not return them within TAIL_S."""
    found: list[str] = []

    def read() -> None:
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - size))
                found.append(file.read(size).decode("utf-8", "replace"))
        except OSError as problem:
            found.append(f"(the log cannot be read: {problem.strerror})")

    reader = threading.Thread(target=read, name="tail", daemon=True)
    reader.start()
    reader.join(TAIL_S)
    return found[0] if found else f"(the volume did not return the log within {TAIL_S:g} s)"


def describe_status(status: int) -> str:
    """Describe in words how a process ended."""
    if status >= 0:
        return f"ended with status {status}"
    return f"was killed by {signal.Signals(-status).name}"


def exit_code_of(status: int) -> int:
    """Return the pod's exit status: 75 if a signal killed the program, otherwise the program's exit status."""
    return status if status >= 0 else LostPeerError.exit_code


class Stop:
    """The handling of SIGTERM and SIGINT.

    While `supervising` is True, a signal wakes the supervisor. At other times, a signal ends the launcher.
    """

    def __init__(self) -> None:
        self.requested = ""  # name of the first signal, or "" before the first signal
        self.supervising = False
        self.wakeup, self._write = os.pipe()
        os.set_blocking(self._write, False)

    @classmethod
    def of_process(cls) -> Stop:
        """Return a new instance, and make it the receiver of the signals of this process.

        The interpreter itself writes to `wakeup`, because a Python signal handler runs only after a running wait
        returns.
        """
        stop = cls()
        signal.set_wakeup_fd(stop._write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop._handle)
        return stop

    def _handle(self, number: int, _frame: Any) -> None:
        is_first, self.requested = not self.requested, self.requested or signal.Signals(number).name
        if is_first and not self.supervising:
            self.check()
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"x")

    def check(self) -> None:
        """Raise StoppedError if a signal has arrived."""
        if self.requested:
            raise StoppedError(f"stopped by {self.requested} before the training began")

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Raise StoppedError on signals inside this block, which is a long step without a selector."""
        self.supervising = False
        try:
            self.check()
            yield
        finally:
            self.supervising = True

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Record signals inside this block and wake the supervisor, but raise no error."""
        self.supervising = True
        try:
            yield
        finally:
            self.supervising = False


def pidfds(program: Program | None) -> list[int]:
    """Return a list with the descriptor that becomes readable at the program's end, or [] if `program` is None."""
    return [program.pidfd] if program else []


def wait_for_any(timeout_s: float, *sources: int) -> set[int]:
    """Wait until one of the descriptors is readable, at most `timeout_s` seconds. Return those that are readable."""
    with selectors.DefaultSelector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ)
        return {key.fd for key, _ in selector.select(timeout_s)}


def end_process(status: int) -> NoReturn:
    """End this process with a status, even if stdout is broken. After Ctrl-C, end by SIGINT to inform the parent.

    The function ignores further signals, because the handler of `Stop` would raise an error during the interpreter's
    exit.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    try:
        sys.stdout.flush()
    except OSError:  # without this handler, the interpreter would fail to flush stdout, and end with status 120
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if status == InterruptError.exit_code:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    sys.exit(status)


def copy_output(program: Program) -> bool:
    """Copy a program's new output to its log and to stdout. Return False at the end of the output."""
    try:
        chunk = os.read(program.output, 1 << 16)
    except BlockingIOError:
        return False
    with contextlib.suppress(OSError):  # stdout (the pod's own log) gets the output first, because it needs no volume
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
    program.add_to_log(chunk)
    return bool(chunk)


def run_bounded(command: Sequence[str], limit_s: float, limit: int) -> tuple[int, bytes, bytes]:
    """Run a program to its end, and return its exit status and its output on stdout and stderr.

    Raises: OSError: the program cannot be run. subprocess.TimeoutExpired: the program runs longer than `limit_s`
        seconds. ValueError: the program wrote more than `limit` bytes.
    """
    deadline = time.monotonic() + limit_s
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process, selectors.DefaultSelector() as selector:
        written = {pipe.fileno(): bytearray() for pipe in (process.stdout, process.stderr) if pipe}
        try:
            for descriptor in written:
                selector.register(descriptor, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if time.monotonic() >= deadline:
                    raise subprocess.TimeoutExpired(command, limit_s)
                for key, _ in ready:
                    chunk = os.read(key.fd, 1 << 16)
                    written[key.fd] += chunk
                    if not chunk:
                        selector.unregister(key.fd)
                    if len(written[key.fd]) > limit:
                        raise ValueError(f"the program wrote more than {limit >> 20} MiB")
            status = process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            process.kill()
    stdout, stderr = map(bytes, written.values())
    return status, stdout, stderr
