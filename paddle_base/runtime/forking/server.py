"""The loop of a fork server, and the beginning and the end of a program that it has forked.

A forked program is a child of the client, and the fork server ends with its client. A fork copies no other threads, but
the locks that they hold; so a fork server starts no thread.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import os
import random
import resource
import select
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TextIO, cast

from paddle_base.runtime.forking.requests import PID, ForkRequest, receive_request


def serve_forks(
    connection: socket.socket,
    prepare: Callable[[ForkRequest], None] = lambda _: None,
    be_idle: Callable[[], bool] = lambda: False,
) -> tuple[ForkRequest, list[int]]:
    """Fork programs until the client ends; then end this process. Return only in a forked program.

    Args: prepare: called before each fork. be_idle: does a part of the work that may precede requests; returns False
        if nothing is left of it.
    Returns: the request, and its descriptors without the first: stdin, stdout, stderr and more.
    """
    while True:
        if not select.select([connection], [], [], 0)[0] and be_idle():
            continue
        received = receive_request(connection)
        if received is None:
            os._exit(0)
        request, descriptors = received
        prepare(request)
        pid = fork_child_of_parent(is_leader=request.is_leader)
        if pid == 0:
            connection.close()
            started, *others = descriptors
            if not os.read(started, 1):
                os._exit(1)  # the client has ended or given the request up
            os.close(started)
            return request, others
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(ConnectionError):  # the next look at the connection finds the client's end
            connection.sendall(PID.pack(pid))


def fork_child_of_parent(*, is_leader: bool = False) -> int:
    """Fork a process whose parent is that of this process.

    The parent must be a child subreaper or the first process of its pid namespace.
    Args: is_leader: whether the new process leads a session of its own.
    Returns: its pid, or an error number below 0; in the new process 0.
    """
    readable, writable = os.pipe()
    try:
        between = os.fork()
    except OSError as problem:
        os.close(readable)
        os.close(writable)
        return -(problem.errno or errno.EAGAIN)
    if between:
        os.close(writable)
        os.waitpid(between, 0)
        answer = os.read(readable, PID.size)
        os.close(readable)
        return int(PID.unpack(answer)[0]) if len(answer) == PID.size else -errno.ECHILD
    try:
        child = os.fork()
    except OSError as problem:
        os.write(writable, PID.pack(-(problem.errno or errno.EAGAIN)))
        os._exit(1)
    if child:
        os._exit(0)  # the kernel gives the child to the client
    if is_leader:
        os.setsid()
    os.write(writable, PID.pack(os.getpid()))
    os.close(readable)
    os.close(writable)
    return 0


def begin_program(request: ForkRequest, streams: Sequence[int]) -> None:
    """Give this forked process the environment, limits, streams and seeds of a new program."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    for descriptor in streams:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request.environ)
    soft, hard = request.files
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    open_streams()
    random.seed()
    if numbers := sys.modules.get("numpy.random"):
        numbers.seed()


def end_program(status: int) -> NoReturn:
    """End a forked program.

    The interpreter's own end takes all modules apart, which takes 30 ms, and copies the memory that the program shares
    with the fork server.
    """
    _end_threads()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status & 0xFF)


def _end_threads() -> None:
    """End thread pools, and wait for all threads except daemon threads, as Python does when it exits."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    except RuntimeError:  # a thread of a pool has forked this process, and cannot join itself
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()


def open_streams() -> None:
    """Make the streams of Python anew, because those of the fork server know what its own descriptors can do.

    The interpreter's own streams are the pattern, because a notebook or a test may have put others in their place. A
    process that began without streams has no pattern; the new streams then have Python's defaults.
    """
    stdin = open(0, **_name_codec(sys.__stdin__), closefd=False)  # noqa: SIM115
    for name, stream in (
        ("stdin", stdin),
        ("stdout", _open_stream(1, sys.__stdout__)),
        ("stderr", _open_stream(2, sys.__stderr__)),
    ):
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _name_codec(before: Any) -> dict[str, Any]:
    return {"encoding": before.encoding, "errors": before.errors} if before else {}


def _open_stream(number: int, before: Any) -> TextIO:
    """Return a new stream on a descriptor, with the encoding and the buffers that the environment asks for."""
    is_unbuffered = before is not None and isinstance(before.buffer, io.FileIO)  # PYTHONUNBUFFERED
    binary = open(number, "wb", 0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115
    stream: Any = io.TextIOWrapper(
        binary,
        **_name_codec(before),
        line_buffering=number == 2 or binary.isatty(),
        write_through=before is not None and before.write_through,
    )
    stream.mode = "w"
    return cast("TextIO", stream)
