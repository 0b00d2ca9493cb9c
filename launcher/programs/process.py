"""A program: a child process whose end can be waited for, and the signals of the launcher itself."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from launcher.attempts import AttemptResult
from launcher.programs.memory import MemoryAccount, explain_kill
from launcher.text import say
from runtime.errors import ConfigError, InterruptError, LostPeerError, StoppedError

LAST_LINES = 5  # lines of a program's log in a message about its end
TAIL_BYTES = 4000  # bytes at the end of a log in which those lines are looked for
TAIL_S = 5.0  # seconds for the volume to give them


class Program:
    """A child process whose end can be waited for in a selector, with the path of its log."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        environ: Mapping[str, str],
        log: Path,
        *,
        copied: bool,
        metrics_port: int = 0,
    ) -> None:
        """Args: copied: its output comes to `process.stdout`, for the launcher to copy; else it goes to the log.

        metrics_port: where it answers /healthz, 0 for nowhere.
        """
        self.name, self.log, self.metrics_port = name, log, metrics_port
        self.memory = MemoryAccount.read()
        self.file = log.open("wb", buffering=0)
        self.log_problem = ""
        self.end = b"" if copied else None  # the last of what was copied, for describe_end
        try:
            self.process = subprocess.Popen(
                argv,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                stdout=subprocess.PIPE if copied else self.file,
            )
        except (FileNotFoundError, PermissionError) as problem:
            missing = f"there is no program {argv[0]!r} on PATH that this user may run: install the package"
            raise ConfigError(missing) from problem
        self.pidfd = os.pidfd_open(self.process.pid)
        self.output = self.process.stdout.fileno() if self.process.stdout else -1
        if copied:  # a grandchild that keeps the pipe open must not hold up the end
            os.set_blocking(self.output, False)

    def stop(self, grace_s: float) -> None:
        """Ends the program by SIGTERM, and by SIGKILL after `grace_s` seconds; with 0 by SIGKILL at once."""
        if self.process.poll() is None:
            if grace_s:
                self.process.terminate()
            try:
                self.process.wait(grace_s)
            except subprocess.TimeoutExpired:
                say(f"{self.name} did not end in time after SIGTERM: killed")
                self.process.kill()
                self.process.wait()

    def close(self) -> None:
        """Closes the descriptors."""
        os.close(self.pidfd)
        with contextlib.suppress(OSError):  # a network file system may tell only now what it could not write
            self.file.close()
        if self.process.stdout:
            self.process.stdout.close()

    def add_to_log(self, chunk: bytes) -> None:
        """Writes to the log. A volume that takes no more does not end the training here; saving a pass reports it."""
        self.end = ((self.end or b"") + chunk)[-TAIL_BYTES:]
        try:
            while chunk:
                chunk = chunk[self.file.write(chunk) :]
        except OSError as problem:
            if str(problem) != self.log_problem:
                say(f"cannot write {self.log}: {problem}; what it misses is in the pod's own log")
            self.log_problem = str(problem)

    def describe_end(self) -> str:
        """Says how it ended, with the last lines of its log.

        The launcher remembers the end of what it has copied, because a network file system that has refused a write may
        block a reader of that file for minutes.
        """
        end = read_tail(self.log) if self.end is None else self.end.decode("utf-8", "replace")
        lines = (end or "(it wrote nothing)").splitlines()[-LAST_LINES:]
        ended = describe_status(self.process.returncode)
        if self.process.returncode == -signal.SIGKILL:
            ended += explain_kill(self.memory, MemoryAccount.read())
        return f"{self.name} {ended}; the end of {self.log}:\n" + "\n".join(f"    {line}" for line in lines)


def read_tail(path: Path, size: int = TAIL_BYTES) -> str:
    """Returns the last bytes of a log as text; says so where the volume does not give them within TAIL_S."""
    found: list[str] = []

    def read() -> None:
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - size))
                found.append(file.read(size).decode("utf-8", "replace"))
        except OSError:
            found.append("")

    reader = threading.Thread(target=read, name="tail", daemon=True)
    reader.start()
    reader.join(TAIL_S)
    return found[0] if found else f"(the volume did not give it within {TAIL_S:g} s)"


def describe_status(status: int) -> str:
    """Says how a process ended in words."""
    if status >= 0:
        return f"ended with status {status}"
    return f"was killed by {signal.Signals(-status).name}"


def exit_code_of(status: int) -> int:
    """Returns the exit status of the pod for one of a program: the same, and 75 if a signal killed the program."""
    return status if status >= 0 else LostPeerError.exit_code


class Stop:
    """SIGTERM and SIGINT: before the training they end the launcher at once, later they wake the supervisor."""

    def __init__(self) -> None:
        self.requested = ""  # the first signal's name
        self.supervising = False
        self.wakeup, self._write = os.pipe()
        os.set_blocking(self._write, False)

    @classmethod
    def of_process(cls) -> Stop:
        """Returns one that the signals of this process come to from now on.

        The interpreter writes to `wakeup` itself: a handler in Python runs only after a wait that has begun meanwhile.
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
        """Raises StoppedError if a signal has come."""
        if self.requested:
            raise StoppedError(f"stopped by {self.requested} before the training began")

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """In this block of a supervisor's work, a long one without a selector, signals raise StoppedError again."""
        self.supervising = False
        try:
            self.check()
            yield
        finally:
            self.supervising = True

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """In this block signals wake the supervisor, and raise nothing."""
        self.supervising = True
        try:
            yield
        finally:
            self.supervising = False


def pidfds(program: Program | None) -> list[int]:
    """Returns a list with the descriptor that becomes readable at a program's end; it is empty without a program."""
    return [program.pidfd] if program else []


def wait_for_any(timeout_s: float, *sources: int) -> None:
    """Waits until one of the descriptors can be read, at most `timeout_s` seconds."""
    with selectors.DefaultSelector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ)
        selector.select(timeout_s)


def end_process(status: int) -> NoReturn:
    """Ends this process with a status, whatever stdout is; after a Ctrl-C by SIGINT, so that its parent sees that."""
    try:
        sys.stdout.flush()
    except OSError:  # the interpreter would try again, and end with 120
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if status == InterruptError.exit_code:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    sys.exit(status)


def failure_of(program: Program) -> AttemptResult:
    """Returns the outcome that a program's end makes."""
    status = program.process.returncode
    killer = signal.Signals(-status).name if status < 0 else ""
    return AttemptResult(exit_code_of(status), program.name, program.describe_end(), killer)


def copy_output(program: Program) -> bool:
    """Copies what a program has written to its log and to our stdout. Returns False at the end of its output."""
    try:
        chunk = os.read(program.output, 1 << 16)
    except BlockingIOError:
        return False
    with contextlib.suppress(OSError):  # the pod's own log first: it does not wait for the volume
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
    program.add_to_log(chunk)
    return bool(chunk)


def run_bounded(command: Sequence[str], limit_s: float, limit: int) -> tuple[int, bytes, bytes]:
    """Runs a program to its end, and returns its exit status with what it wrote to stdout and stderr.

    Raises: OSError: it cannot be run. subprocess.TimeoutExpired. ValueError: it wrote more than `limit` bytes.
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
                        raise ValueError(f"it wrote more than {limit >> 20} MiB")
            status = process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            process.kill()
    stdout, stderr = map(bytes, written.values())
    return status, stdout, stderr
