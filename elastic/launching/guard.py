"""Stands between the driver and a worker: it ends the worker when the driver is gone, however that came.

    python -I -S guard.py pipe FD COMMAND...              FD is a pipe whose other end the driver holds
    python -I -S guard.py directory DIR GRACE COMMAND...  another driver may go on with the worker

In a directory of the worker the guard writes `pid` (its own and the time of its start), and at the end `exit`. A driver
holds the lock of `DIR/../driver.lock` as long as it lives; without one for GRACE seconds the worker is ended.

The guard leads a process group, so that a signal to the group reaches the worker and its children. It ends with the
worker's status, 128 + n after signal n. It imports nothing of ours, because every worker waits for it.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # every worker waits for the imports of its guard
    from collections.abc import Callable

GRACE_S = 5.0  # between SIGTERM and SIGKILL
LOOK_S = 0.5  # between two looks whether a driver lives
NO_PROGRAM = 127
BEGUN = 126  # another guard has this worker
PID, EXIT, LOCK = "pid", "exit", "driver.lock"
CAME: list[int] = []  # signals to the group; the worker has them, too, if it was there


def main(arguments: list[str]) -> int:
    """Run a command to its end, and return its status."""
    leave_signals()
    if arguments[0] == "pipe":
        return run_with_pipe(int(arguments[1]), lambda: start(arguments[2:]))
    return run_in_directory(arguments[1], float(arguments[2]), arguments[3:])


def leave_signals() -> None:
    """Do nothing about signals that are for the worker, but remember them until it is there."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: CAME.append(number))  # not inherited by programs, as SIG_IGN would be


def run_with_pipe(descriptor: int, begin: Callable[[], int]) -> int:
    """Run a process as long as somebody holds the other end of a pipe; `begin` starts it and returns it, or 0."""
    child = begin()
    if not child:
        return NO_PROGRAM
    pass_on(child)
    ended = os.pidfd_open(child)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    while not any(number == ended for number, _ in poll.poll()):
        end_group(ended)
    return finish(child)


def run_in_directory(directory: str, grace_s: float, command: list[str]) -> int:
    """Run a command as long as a driver lives, or one comes within `grace_s` seconds."""
    try:
        file = os.open(f"{directory}/{PID}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return BEGUN
    os.write(file, f"{os.getpid()} {read_start(os.getpid())}\n".encode())
    os.close(file)
    child = start(command)
    status = NO_PROGRAM
    if child:
        pass_on(child)
        ended = os.pidfd_open(child)
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        alone_since = time.monotonic()
        while not poll.poll(LOOK_S * 1000):
            if has_driver(directory):
                alone_since = time.monotonic()
            elif time.monotonic() - alone_since > grace_s:
                end_group(ended)
        status = finish(child)
    with open(f"{directory}/{EXIT}.new", "w", encoding="ascii") as text:  # noqa: PTH123  # pathlib takes 10 ms
        text.write(f"{status}\n")
    os.replace(f"{directory}/{EXIT}.new", f"{directory}/{EXIT}")  # noqa: PTH105
    return status


def start(command: list[str]) -> int:
    """Start a command, and return its process; 0 if it cannot be run."""
    try:
        return os.posix_spawnp(command[0], command, os.environ)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be run: {error.strerror}\n")
        return 0


def pass_on(child: int) -> None:
    """Give a new worker the signal that came to its group before it was there."""
    for number in CAME[:1]:
        os.kill(child, number)


def finish(child: int) -> int:
    """Return the status of a worker that has ended, and end what it has left behind."""
    _, status = os.waitpid(child, 0)
    os.killpg(0, signal.SIGTERM)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def end_group(ended: int) -> None:
    """End the worker: the driver is gone."""
    os.killpg(0, signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    while (left := until - time.monotonic()) > 0:
        if poll.poll(left * 1000):
            return
    os.killpg(0, signal.SIGKILL)  # this process is in the group, too


def kill_left(pid: int) -> None:
    """Kill the worker of a guard that has ended, is not waited for yet, and was killed itself."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if ended is not None and ended.si_code != os.CLD_EXITED:
        os.killpg(pid, signal.SIGKILL)


def has_driver(directory: str) -> bool:
    """Return whether a driver holds its lock."""
    file = os.open(f"{directory}/../{LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def read_start(pid: int) -> str:
    """Return when a process began, in ticks of the clock; no other process of this number has the same."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read().rpartition(")")[2].split()[19]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
