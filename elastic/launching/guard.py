"""Stands between the driver and a worker: it ends the worker when the driver is gone, however that came.

    python -I -S guard.py FD COMMAND...

FD is the reading end of a pipe whose other end the driver holds. The guard leads a process group, so that a signal to
the group reaches the worker and its children; it ends with the worker's status, 128 + n after signal n. It imports
nothing of ours, because every worker waits for it.
"""

import os
import select
import signal
import sys
import time

GRACE_S = 5.0  # between SIGTERM and SIGKILL
NO_PROGRAM = 127


def main(descriptor: int, command: list[str]) -> int:
    """Run a command to its end, and return its status."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # for the worker; a handler is not inherited, as SIG_IGN would be
    try:
        child = os.posix_spawnp(command[0], command, os.environ)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be run: {error.strerror}\n")
        return NO_PROGRAM
    ended = os.pidfd_open(child)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    while not any(number == ended for number, _ in poll.poll()):
        _end_group(ended)
    _, status = os.waitpid(child, 0)
    _signal_group(signal.SIGTERM)  # what the worker has left behind
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _end_group(ended: int) -> None:
    """End the worker: the driver is gone."""
    _signal_group(signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    while (left := until - time.monotonic()) > 0:
        if poll.poll(left * 1000):
            return
    _signal_group(signal.SIGKILL)  # this process is in the group, too


def _signal_group(number: int) -> None:
    os.killpg(0, number)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
