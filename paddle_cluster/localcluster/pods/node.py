"""Run a pod as processes of this machine: start, output, signals and end. `pause.py` supervises the processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from paddle_cluster.localcluster.pods.pause import descendants
from paddle_cluster.localcluster.pods.plan import PodPlan

PAUSE = Path(__file__).with_name("pause.py")
OUTPUT_SECONDS = 5.0  # maximum wait for the end of a pod's output; a process that survived the kill can delay this end


class PodProcess:
    """One pod's running program.

    Args:
        plan: the program to run; its directories are created here.
        log: receives the whole output as it arrives.
        on_line: called with each complete line, after it was written, from the pod's own thread.
        on_end: called once with the exit status (128 + signal for a killed program) after all processes have ended.

    Raises: OSError: if the operating system cannot create a process or a file.
    """

    def __init__(self, plan: PodPlan, log: Path, on_line: Callable[[str], None], on_end: Callable[[int], None]):
        for directory in plan.directories:
            Path(directory).mkdir(parents=True, exist_ok=True)
        self._on_line = on_line
        self._on_end = on_end
        self._log_failed = False
        with log.open("ab", buffering=0) as output:
            self._log = os.dup(output.fileno())
        command = [sys.executable, "-I", "-S", str(PAUSE), *plan.argv]
        try:
            # because of the separate session, a Ctrl-C on the terminal reaches only localcluster, which ends its pods
            # in order
            self._process = subprocess.Popen(
                command,
                cwd=plan.working_directory,
                env=dict(plan.env),
                start_new_session=True,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError:
            os.close(self._log)
            raise
        self._reader = threading.Thread(target=self._read, name=f"output of {log.stem}", daemon=True)
        self._waiter = threading.Thread(target=self._wait, name=f"end of {log.stem}", daemon=True)
        self._reader.start()
        self._waiter.start()

    def processes(self) -> list[tuple[int, str]]:
        """Return (process id, command line) of all current processes of the pod; the pod's program is the first."""
        found = []
        for process in descendants(self._process.pid):
            try:
                words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # the process has just ended
            found.append((process, b" ".join(words).decode(errors="replace").strip()))
        return found

    def terminate(self) -> None:
        """Send SIGTERM to the pod's first program."""
        self._command(b"T")

    def kill(self) -> None:
        """Kill all processes of the pod immediately."""
        self._command(b"K")

    def join(self, timeout: float | None = None) -> bool:
        """Wait until on_end has been called. Return False if this has not happened within `timeout` seconds."""
        self._waiter.join(timeout)
        return not self._waiter.is_alive()

    def _command(self, command: bytes) -> None:
        if self._process.stdin is not None:
            try:
                self._process.stdin.write(command)
            except (BrokenPipeError, ValueError):
                return  # the pod has ended

    def _read(self) -> None:
        stream = self._process.stdout
        rest = b""
        while stream is not None and (chunk := stream.read(65536)):
            self._write(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._on_line(line.decode(errors="replace").rstrip("\r"))
        if rest:
            self._on_line(rest.decode(errors="replace"))

    def _write(self, chunk: bytes) -> None:
        """Write to the log; if the disk is full, drop the text, because the pod must not wait for space on the disk."""
        try:
            os.write(self._log, chunk)
        except OSError as error:
            if not self._log_failed:
                self._log_failed = True
                self._on_line(f"localcluster: cannot write this pod's log: {error.strerror}")

    def _wait(self) -> None:
        code = self._process.wait()
        self._reader.join(OUTPUT_SECONDS)
        if not self._reader.is_alive():
            os.close(self._log)
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
        self._on_end(code if code >= 0 else 128 + signal.Signals(-code).value)
