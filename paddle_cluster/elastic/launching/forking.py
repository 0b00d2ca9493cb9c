"""Forks workers, which have the function of run() in memory, even if no module exports the function.

- The process that calls run() has the function in its memory.
- This process forks the fork server before the driver has threads. The fork server has one thread.
- The fork server forks a guard for each worker. The guard runs `guard.run_with_pipe`, as the guard of a command does.
- The guard forks the worker, which has the same function in its memory.

Each request of the driver contains the descriptors of these files and connections:

- the files for the output of the worker
- the pipe by which the guard detects the end of the driver
- a file with the variables of the worker
- a connection, by which the driver sends signals for the worker and the fork server returns the exit code

No object is pickled. The fork server ends when the driver closes its connection or ends.

A worker starts like a new program. The worker shares no streams, variables, signal handlers, exit handlers, numpy seed
or membership of a job with the process that called run().
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np

from paddle_base.runtime.errors import LostPeerError
from paddle_cluster.elastic.launching import guard
from paddle_cluster.elastic.launching.processes import ProcessFiles, WorkerProcess

END_S = 5.0  # maximum seconds that `close` waits for the end of the fork server
KILLED = "the process that forks the workers was killed"
NOT_FORKED = b"?"  # first byte of the answer of a fork server that could not fork
_OPEN: set[socket.socket] = set()  # connections to fork servers and workers; a new fork server closes its copies


class ForkServer:
    """Forks workers from the present state of this process.

    Args: work: function that a worker runs; the function returns the exit code of the worker.

    Thread safety: `start` may be called from any thread.
    Raises: OSError: no process can be forked.
    """

    def __init__(self, work: Callable[[], int]) -> None:
        self._connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
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
                _end_with(lambda: _begin_server(self._connection, other, work))
        _OPEN.add(self._connection)

    def start(self, environ: Mapping[str, str], files: ProcessFiles) -> WorkerProcess:
        """Start a worker with these variables.

        Raises: LostPeerError: the fork server is gone.  OSError: too many descriptors are open.
        """
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _OPEN.add(own)
        with other, os.fdopen(os.memfd_create("environ"), "w+b") as variables:
            variables.write(json.dumps(dict(environ)).encode())
            variables.seek(0)
            try:
                socket.send_fds(self._connection, [b"!"], [*files, variables.fileno(), other.fileno()])
            except ConnectionError as exc:
                _close(own)
                raise LostPeerError(KILLED) from exc
            except OSError:
                _close(own)
                raise
        return ForkedProcess(own)

    def close(self) -> None:
        """End the fork server."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # effective even if another process has a copy of the socket
        _close(self._connection)
        with contextlib.suppress(OSError):  # the user's program may have reaped this child already
            ended = os.pidfd_open(self._pid)
            poll = select.poll()
            poll.register(ended, select.POLLIN)
            if not poll.poll(END_S * 1000):
                os.kill(self._pid, signal.SIGKILL)
            os.close(ended)
            os.waitpid(self._pid, 0)


class ForkedProcess:
    """A worker that a fork server has forked; each worker has its own connection to the fork server."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the worker ends."""
        return self._connection.fileno()

    def signal(self, number: int) -> None:
        """Ask the fork server to send a signal to the process group of the worker."""
        with contextlib.suppress(OSError):  # the fork server is gone; the guard ends the worker
            self._connection.send(b"%d" % number)

    def wait(self) -> int:
        """Wait for the end of the worker; return its exit code, or -n after signal n.

        Raises: LostPeerError: the fork server is gone.  OSError: the worker could not be forked.
        """
        try:
            found = self._connection.recv(1024)
        except OSError:
            found = b""
        if found.startswith(NOT_FORKED):
            raise OSError(found[1:].decode())
        if not found:
            raise LostPeerError(KILLED)
        return int(found)

    def close(self) -> None:
        """Close the connection."""
        _close(self._connection)


def _fork() -> int:
    """Fork; return the pid of the child, or 0 in the child.

    The child has only the calling thread. A lock that another thread held would never be released in the child, so
    this function takes numpy's lock before the fork.
    """
    numbers = np.random.get_bit_generator()  # type: ignore[attr-defined]  # its stub is wrong
    with warnings.catch_warnings(), numbers.lock:  # `glog` handles its own lock
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns if there are other threads
        return os.fork()


def _close(connection: socket.socket) -> None:
    _OPEN.discard(connection)
    connection.close()


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


# ----- The fork server


def _begin_server(drivers: socket.socket, own: socket.socket, work: Callable[[], int]) -> int:
    for connection in (drivers, *_OPEN):
        connection.close()
    _OPEN.clear()
    os.setsid()  # Ctrl-C must reach only the driver
    _reset_signals()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _Forker(own, work).serve()


class _Forker:
    """The fork server. A single thread forks the workers and waits for their ends."""

    def __init__(self, connection: socket.socket, work: Callable[[], int]) -> None:
        self._connection, self._work = connection, work
        self._guards: dict[int, tuple[int, socket.socket]] = {}  # by descriptor of a guard's process: pid, connection
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def serve(self) -> int:
        """Serve the requests of the driver until the driver is gone."""
        while True:
            number, _ = self._poll.poll()[0]  # one event at a time, because a handler may close other descriptors
            if number in self._guards:
                self._finish(number)
            elif number != self._connection.fileno():
                self._signal(number)
            elif not self._take():
                return 0

    def _take(self) -> bool:
        """Take a request and fork a worker; return False if the driver is no longer connected."""
        asked, descriptors, *_ = socket.recv_fds(self._connection, 1, 5)
        if not asked:
            return False
        *files, variables, number = descriptors
        other = socket.socket(fileno=number)
        try:
            pid = os.fork()
        except OSError as exc:
            with contextlib.suppress(OSError):
                other.send(NOT_FORKED + str(exc).encode())
            other.close()
        else:
            if not pid:
                _end_with(lambda: self._guard(other, variables, ProcessFiles(*files)))
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)  # parent and child both call this, so that the group exists before a signal comes
            ended = os.pidfd_open(pid)  # the pid is not used again before `waitpid`
            self._guards[ended] = pid, other
            self._poll.register(ended, select.POLLIN)
            self._poll.register(other, select.POLLIN)
        for descriptor in (variables, *files):
            os.close(descriptor)
        return True

    def _finish(self, ended: int) -> None:
        """Send the exit code of a worker to the driver."""
        pid, connection = self._guards.pop(ended)
        with contextlib.suppress(OSError):
            guard.kill_left(pid)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError):
            connection.send(b"%d" % os.waitstatus_to_exitcode(status))
        for one in (ended, connection.fileno()):
            with contextlib.suppress(KeyError):
                self._poll.unregister(one)
        os.close(ended)
        connection.close()

    def _signal(self, number: int) -> None:
        """Pass a signal from the driver to a worker."""
        found = [(pid, one) for pid, one in self._guards.values() if one.fileno() == number]
        for pid, connection in found:
            try:
                asked = connection.recv(16)
            except OSError:
                asked = b""
            if not asked:
                self._poll.unregister(connection)  # the driver does not wait any more; the guard ends the worker
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, int(asked))

    def _guard(self, connection: socket.socket, variables: int, files: ProcessFiles) -> int:
        """Act as the guard of a worker, and return the exit code of the worker."""
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        for one in (self._connection, connection, *(other for _, other in self._guards.values())):
            one.close()
        for descriptor in self._guards:
            os.close(descriptor)
        with os.fdopen(variables, "rb") as file:
            environ = json.load(file)
        os.dup2(files.stdout, 1)
        os.dup2(files.stderr, 2)
        os.close(files.stdout)
        os.close(files.stderr)
        guard.leave_signals()

        def begin() -> int:
            pid = os.fork()
            if not pid:
                _end_with(lambda: _be_worker(self._work, environ, files.watched))
            return pid

        return guard.run_with_pipe(files.watched, begin)


# ----- The worker


def _be_worker(work: Callable[[], int], environ: Mapping[str, str], watched: int) -> int:
    """Run the work like a new program, and return the exit code."""
    os.close(watched)
    os.environ.clear()
    os.environ.update(environ)
    _reset_signals()
    _open_streams()
    atexit._clear()  # drop the exit handlers of the process that called run()
    np.random.seed()
    status = _call(work)
    _end_threads()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return status


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


def _end_threads() -> None:
    """End thread pools, and wait for all threads except daemon threads, as Python does when it exits."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    except RuntimeError:  # run() was called by a thread of a pool, which cannot join itself
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()


def _reset_signals() -> None:
    """Reset the signal handlers as in a new process; ignored signals stay ignored."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and signal.getsignal(number) not in (signal.SIG_IGN, signal.SIG_DFL):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _open_streams() -> None:
    """Open new standard streams on the descriptors, because the old streams may belong to a notebook or a test."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(one, "w", 1, errors="backslashreplace", closefd=False) for one in (1, 2))
    sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
