"""The guard of a worker: a process that ends the worker when the driver is gone for any reason.

- `python -I -S guard.py pipe FD COMMAND...` runs COMMAND while the driver holds the other end of the connection FD.
- `python -I -S guard.py directory DIR GRACE COMMAND...` runs COMMAND as a worker that the next driver may take over.

If the guard has a directory, it writes two files into DIR. `pid` contains the guard's pid and start time, and `exit`
contains the exit code of the worker, or -n if signal n has ended the worker. Otherwise the guard sends this number over
the connection FD. A running driver holds the lock of `DIR/../driver.lock`.
The guard ends the worker after GRACE seconds without a driver.

The guard leads a process group, so that a signal to the group reaches the worker and its children. The guard exits with
the exit code of the worker, or with 128 + n if signal n has ended the worker; a worker may have such an exit code, too.
The guard imports no module of the
project, because every worker waits for the start of its guard.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # false at run time, because every worker waits for the imports of its guard
    from collections.abc import Callable

GRACE_S = 5.0  # seconds between SIGTERM and SIGKILL
LOOK_S = 0.5  # seconds between two checks for a running driver
NO_PROGRAM = 127
BEGUN = 126  # exit code of a guard whose worker has another guard already
PID, EXIT, LOCK = "pid", "exit", "driver.lock"
CAME: list[int] = []  # signals that the process group has received; a running worker receives them, too


def main(arguments: list[str]) -> int:
    """Run a command to its end, and return its exit code."""
    leave_signals()
    if arguments[0] == "pipe":
        return run_with_pipe(int(arguments[1]), lambda: start(arguments[2:]))
    return run_in_directory(arguments[1], float(arguments[2]), arguments[3:])


def leave_signals() -> None:
    """Record signals in CAME instead of ending; the worker of the process group receives the same signals."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: CAME.append(number))  # a worker would inherit SIG_IGN


def run_with_pipe(descriptor: int, begin: Callable[[], int]) -> int:
    """Run a process while the other end of a connection is open, and send the end of the process over it.

    Args: begin: starts the process; returns its pid, or 0 on failure.
    """
    os.set_inheritable(descriptor, False)  # only the guard may tell the driver how the worker has ended
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
    code = finish(child)
    try:  # noqa: SIM105  # the import of contextlib takes time
        os.write(descriptor, b"%d" % code)
    except OSError:
        pass  # the driver is gone
    return to_status(code)


def run_in_directory(directory: str, grace_s: float, command: list[str]) -> int:
    """Run a command while a driver runs; end the command after `grace_s` seconds without a driver."""
    try:
        # exclusive: a driver that takes over may start a second guard for this worker, and the worker must run once
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
    # renamed when it is complete: a driver finds the whole status, or none
    with open(f"{directory}/{EXIT}.new", "w", encoding="ascii") as text:  # noqa: PTH123  # pathlib takes 10 ms
        text.write(f"{status}\n")
    os.replace(f"{directory}/{EXIT}.new", f"{directory}/{EXIT}")  # noqa: PTH105
    return to_status(status)


def start(command: list[str]) -> int:
    """Start a command, and return its pid, or 0 if the command cannot be run."""
    try:
        return os.posix_spawnp(command[0], command, os.environ)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be run: {error.strerror}\n")
        return 0


def pass_on(child: int) -> None:
    """Send a new worker the first signal that its group received before the worker started."""
    for number in CAME[:1]:
        os.kill(child, number)


def finish(child: int) -> int:
    """Return the exit code of a worker that has ended, or -n after signal n; end its remaining children."""
    _, status = os.waitpid(child, 0)
    os.killpg(0, signal.SIGTERM)
    return os.waitstatus_to_exitcode(status)


def to_status(code: int) -> int:
    """Return the status with which a guard exits."""
    return code if code >= 0 else 128 - code


def end_group(ended: int) -> None:
    """End the worker, because the driver is gone."""
    os.killpg(0, signal.SIGTERM)
    os.killpg(0, signal.SIGCONT)  # a stopped process takes SIGTERM only when it continues
    until = time.monotonic() + GRACE_S
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    while (left := until - time.monotonic()) > 0:
        if poll.poll(left * 1000):
            return
    os.killpg(0, signal.SIGKILL)  # this process is in the group, too


def kill_left(pid: int) -> None:
    """Wait until a guard has ended, without reaping it; if the guard was killed, kill its worker, too."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if ended is not None and ended.si_code != os.CLD_EXITED:
        os.killpg(pid, signal.SIGKILL)


def has_driver(directory: str) -> bool:
    """Return whether a driver holds the lock."""
    file = os.open(f"{directory}/../{LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def read_start(pid: int) -> str:
    """Return the start time of a process in clock ticks; pid and start time together identify a process."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read().rpartition(")")[2].split()[19]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
