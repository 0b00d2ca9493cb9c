"""Workers that outlive their driver: the next driver finds the workers by their directories and takes them over.

- `<store>/driver.lock`: the running driver holds the lock of this file.
- `<store>/<incarnation>/pid`: the pid of the worker's guard. An incarnation is one run of a worker.
- `<store>/<incarnation>/exit`: the exit code of the worker, or -n after signal n.
- `<store>/<incarnation>/stdout`, `stderr`: the output of the worker.
- `<store>/<incarnation>/shown.stdout`: the number of bytes of stdout that a driver has shown.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from io import FileIO
from pathlib import Path

from paddle_base.runtime.errors import DirectoryInUseError, LostPeerError, VolumeError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.health.steady_time import steady_time
from paddle_cluster.elastic.launching import guard
from paddle_cluster.elastic.launching.output import KINDS, OutputWriter
from paddle_cluster.elastic.launching.processes import LOOK_S, signal_group, wait_or_end
from paddle_cluster.elastic.membership.results import WorkerExit

BEGIN_S = 10.0  # maximum seconds until a guard has written its pid
LOST = LostPeerError.exit_code  # exit code for a worker whose guard was killed


class DriverLock:
    """The lock that a driver holds while it runs; the guards of the workers (`guard.py`) test the lock.

    Raises: DirectoryInUseError: another driver holds the lock.  VolumeError: the lock file cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = (directory / guard.LOCK).open("ab", buffering=0)
            until = time.monotonic() + 10 * guard.LOOK_S
            while True:  # a guard holds the lock for a moment when it tests the lock
                try:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(guard.LOOK_S / 50)
        except BlockingIOError as exc:
            self._file.close()
            raise DirectoryInUseError(f"another driver uses {directory}; give this job another --store-dir") from exc
        except OSError as exc:
            raise VolumeError(f"--store-dir: {directory} cannot be written: {exc.strerror}") from exc

    def close(self) -> None:
        """Release the lock."""
        self._file.close()


def run_durable(
    command: Sequence[str],
    environ: Mapping[str, str],
    place: Path,
    rank: int,
    writer: OutputWriter,
    ends: Sequence[threading.Event],
    grace_s: float,
) -> WorkerExit:
    """Find the worker of a directory, or start it, and wait for its end; end the worker when an event is set.

    Raises: VolumeError: a file cannot be written.  OSError: the worker cannot be started.
    """
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (place / guard.PID).exists():
        start_guard(command, environ, place, grace_s)
    files = writer.open(rank)
    is_over = threading.Event()
    readers = [
        ServiceThread(partial(follow, place, writer, rank, kind, files[kind], is_over), f"output of rank {rank}")
        for kind in KINDS
    ]
    for reader in readers:
        reader.start()
    was_stopped = wait_for_end(place, ends)
    is_over.set()
    for reader in readers:
        reader.join()
    return WorkerExit(read_exit(place), steady_time(), was_stopped)


def start_guard(command: Sequence[str], environ: Mapping[str, str], place: Path, grace_s: float) -> None:
    """Start a worker and its guard, and wait until the guard has written its pid."""
    argv = [sys.executable, "-I", "-S", str(Path(guard.__file__)), "directory", str(place), f"{grace_s:g}", *command]
    with (place / "stdout").open("ab") as stdout, (place / "stderr").open("ab") as stderr:
        process = subprocess.Popen(
            argv,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    threading.Thread(target=process.wait, name="reaper", daemon=True).start()
    until = time.monotonic() + BEGIN_S
    while read_guard(place) is None and process.poll() is None:
        if time.monotonic() > until:
            process.kill()
            raise VolumeError(f"the guard of a worker has not written {place / guard.PID} within {BEGIN_S:g} s")
        time.sleep(0.005)


def read_guard(place: Path) -> tuple[int, str] | None:
    """Return the pid and the start time of a worker's guard, or None if the guard has not written both yet."""
    try:
        pid, _, start = (place / guard.PID).read_text(encoding="ascii").strip().partition(" ")
    except (OSError, ValueError):
        return None
    return (int(pid), start) if pid.isdigit() and start.isdigit() and len(pid) < 12 else None


def wait_for_end(place: Path, ends: Sequence[threading.Event]) -> bool:
    """Wait for the end of a worker; return whether an event has ended the worker."""
    found = read_guard(place)
    if found is None:
        return False
    descriptor, was_stopped = open_process(*found), False
    if descriptor >= 0:
        try:
            was_stopped = wait_or_end(descriptor, partial(signal_group, found[0]), ends)
        finally:
            os.close(descriptor)
    if not was_stopped:
        kill_left(place, *found)
    return was_stopped


def kill_left(place: Path, pid: int, start: str) -> None:
    """Kill the worker if its guard was killed; both are in the process group whose number is the guard's pid."""
    if (place / guard.EXIT).exists():
        return
    with contextlib.suppress(OSError, IndexError):  # no process has the pid
        if guard.read_start(pid) != start:
            return  # another process has the pid, so the group has ended
    signal_group(pid, signal.SIGKILL)


def open_process(pid: int, start: str) -> int:
    """Return a descriptor of a process, or -1 if the process has ended or another process has its pid now."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return -1
    try:
        if guard.read_start(pid) == start:
            return descriptor
    except (OSError, IndexError):
        pass
    os.close(descriptor)
    return -1


def read_exit(place: Path) -> int:
    """Return the exit code of a worker that has ended, or -n after signal n."""
    with contextlib.suppress(OSError, ValueError):
        return int((place / guard.EXIT).read_text(encoding="ascii"))
    return LOST


def follow(
    place: Path, writer: OutputWriter, rank: int, kind: str, file: FileIO | None, is_over: threading.Event
) -> None:
    """Show the output file of a worker up to its end, from the position where an earlier driver stopped."""
    mark = place / f"shown.{kind}"
    with (place / kind).open("rb", buffering=0) as source, contextlib.ExitStack() as stack:
        if file is not None:
            stack.callback(file.close)
        with contextlib.suppress(OSError, ValueError):
            source.seek(int(mark.read_text(encoding="ascii")))
        shown = source.tell()
        while True:
            # asked before the read, so that the last read certainly has all that the worker wrote
            was_over = is_over.is_set()
            chunk = source.read(1 << 16)
            # whole lines, because the lines of all ranks go to one output; a line beyond the buffer is shown in parts
            whole = chunk if was_over else chunk[: chunk.rfind(b"\n") + 1] or (chunk if len(chunk) == 1 << 16 else b"")
            if whole:
                writer.show(rank, kind, whole, file)
                shown += len(whole)
                # without the mark, the next driver shows lines twice, which harms less than an end
                with contextlib.suppress(OSError):
                    mark.write_text(str(shown), encoding="ascii")
            if len(whole) < len(chunk):
                source.seek(shown)
            if not whole:
                if was_over:
                    return
                is_over.wait(LOOK_S)
