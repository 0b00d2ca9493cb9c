"""Forks workers, which have the function of run() in memory, even if no module exports the function.

- The process that calls run() has the function in its memory.
- This process forks the fork server before the driver has threads. The fork server has one thread.
- The fork server forks a guard for each worker; the guard is a child of the driver, as the guard of a command is. It
  runs `guard.run_with_pipe`, as that guard does.
- The guard forks the worker, which has the same function in its memory.

No object is pickled. The fork server ends when the driver closes its connection or ends; the workers go on without the
fork server, but no further worker can start.

A worker starts like a new program. The worker shares no streams, variables, signal handlers, exit handlers, numpy seed
or membership of a job with the process that called run().
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast

import numpy as np

from paddle_base.runtime.errors import LostPeerError
from paddle_base.runtime.forking.client import ForkClient, ForkedProgram
from paddle_base.runtime.forking.requests import ForkRequest
from paddle_base.runtime.forking.server import begin_program, end_program, serve_forks
from paddle_cluster.elastic.launching import guard
from paddle_cluster.elastic.launching.processes import GuardedProcess, ProcessFiles

END_S = 5.0  # maximum seconds that `close` waits for the end of the fork server
KILLED = "the process that forks the workers was killed"
_OPEN: set[socket.socket] = set()  # connections to fork servers; a new fork server closes its copies


class ForkServer:
    """Forks workers from the present state of this process.

    Args: work: function that a worker runs; the function returns the exit code of the worker.

    Thread safety: `start` may be called from any thread.
    Raises: OSError: no process can be forked.
    """

    def __init__(self, work: Callable[[], int]) -> None:
        self._connection, other = socket.socketpair()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()  # a worker must not write buffered output a second time
        with other:
            try:
                self._pid = _fork()
            except OSError:
                self._connection.close()
                raise
            if not self._pid:
                _end_with(lambda: _serve(self._connection, other, work))
        _OPEN.add(self._connection)
        self._client = ForkClient(self._connection)

    def start(self, environ: Mapping[str, str], files: ProcessFiles) -> GuardedProcess:
        """Start a worker with these variables.

        Raises: LostPeerError: the fork server is gone.  OSError: the worker cannot be forked.
        """
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            pid = self._client.fork([], environ, [nothing, *files], is_leader=True)
        except ConnectionError as exc:
            raise LostPeerError(KILLED) from exc
        finally:
            os.close(nothing)
        return GuardedProcess(ForkedProgram(pid))

    def close(self) -> None:
        """End the fork server."""
        _OPEN.discard(self._connection)
        self._client.close()
        with contextlib.suppress(OSError):  # the user's program may have reaped this child already
            ended = os.pidfd_open(self._pid)
            poll = select.poll()
            poll.register(ended, select.POLLIN)
            if not poll.poll(END_S * 1000):
                os.kill(self._pid, signal.SIGKILL)
            os.close(ended)
            os.waitpid(self._pid, 0)


def _fork() -> int:
    """Fork; return the pid of the child, or 0 in the child.

    The child has only the calling thread. A lock that another thread held would never be released in the child, so
    this function takes numpy's lock before the fork.
    """
    numbers = np.random.get_bit_generator()  # type: ignore[attr-defined]  # its stub is wrong
    with warnings.catch_warnings(), numbers.lock:  # `glog` handles its own lock
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns if there are other threads
        return os.fork()


def _end_with(do: Callable[[], int]) -> NoReturn:
    """Call a function, and end this forked process with the exit code that the function returns."""
    status = 1
    try:
        status = do()
    except BaseException:
        with contextlib.suppress(Exception):
            traceback.print_exc()
    finally:
        os._exit(status)


# ----- The fork server, and a guard that it has forked


def _serve(drivers: socket.socket, own: socket.socket, work: Callable[[], int]) -> int:
    """Serve the requests of the driver; in a forked guard, return the exit code of its worker."""
    for connection in (drivers, *_OPEN):
        connection.close()
    _OPEN.clear()
    os.setsid()  # Ctrl-C must reach only the driver
    _reset_signals()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _guard(work, *serve_forks(own))


def _guard(work: Callable[[], int], request: ForkRequest, descriptors: list[int]) -> int:
    """Act as the guard of a worker, and return the exit code of the worker."""
    *streams, watched = descriptors
    guard.leave_signals()
    begin_program(request, streams)

    def begin() -> int:
        pid = os.fork()
        if not pid:
            _end_with(lambda: _be_worker(work, watched))
        return pid

    return guard.run_with_pipe(watched, begin)


# ----- The worker


def _be_worker(work: Callable[[], int], watched: int) -> NoReturn:
    """Run the work like a new program, and end this process with its exit code."""
    os.close(watched)
    _reset_signals()
    for stream in (sys.stdout, sys.stderr):
        cast("Any", stream).reconfigure(errors="backslashreplace", line_buffering=True)
    sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
    atexit._clear()  # drop the exit handlers of the process that called run()
    end_program(_call(work))


def _call(work: Callable[[], int]) -> int:
    """Run the work, and return the exit code that a program with this work would have."""
    try:
        return work()
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return (exc.code or 0) & 0xFF
        sys.stderr.write(f"{exc.code}\n")
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        return 128 + signal.SIGINT
    except BaseException as exc:
        found = exc.__traceback__
        traceback.print_exception(type(exc), exc, found and found.tb_next)
        return 1


def _reset_signals() -> None:
    """Reset the signal handlers as in a new process; ignored signals stay ignored."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and signal.getsignal(number) not in (signal.SIG_IGN, signal.SIG_DFL):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
