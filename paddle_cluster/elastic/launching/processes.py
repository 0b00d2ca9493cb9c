"""Starts a worker as a process on this machine."""

from __future__ import annotations

import contextlib
import fnmatch
import ipaddress
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.forking.client import ForkedProgram
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.health.steady_time import steady_time
from paddle_base.runtime.network.interfaces import list_nics
from paddle_cluster.elastic import constants as names
from paddle_cluster.elastic.hosts import SlotInfo, list_slot_variables
from paddle_cluster.elastic.launching import guard
from paddle_cluster.elastic.launching.output import KINDS, OutputSink, WorkerPipe
from paddle_cluster.elastic.membership.results import WorkerExit


class WorkerProgram(NamedTuple):
    """A command, or a function.

    Attributes:
    - command: command of a worker on another machine, or of a worker that outlives its driver.
    - environ: variables of a worker on this machine, without the variables of its slot.
    - start: starts a worker on this machine.
    - offer: returns further variables of a worker on another machine, which reaches this machine at the given address.
      Raises UsageError if the program cannot run on another machine.
    - secret: secret of the job if the user has set none; "": the driver makes a secret.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    start: StartProcess
    offer: Callable[[str], dict[str, str]] = lambda _: {}
    secret: str = ""


LOOK_S = 0.1  # seconds between two checks of the events that end the worker
DRAIN_S = 5.0  # maximum seconds of reading the output that is left at the end of a worker
NOT_EXPORTED = ("BASH_FUNC_*", "OLDPWD", "*CUDA_VISIBLE_DEVICES", "HOROVOD_SECRET_KEY", "_HOROVOD_SECRET_KEY")


def make_environment(
    base: Mapping[str, str], slot: SlotInfo, incarnation: str, generation: int, more: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of a worker.

    Args: base: variables of the driver; `keep_exported` selects some of them.  more: variables that all workers get.
    """
    return {
        **keep_exported(base),
        "PYTHONUNBUFFERED": "1",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        **list_slot_variables(slot),
        names.PADDLE_ELASTIC_INCARNATION: incarnation,
        names.PADDLE_ELASTIC_GENERATION: str(generation),
        **more,
    }


def keep_exported(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a worker inherits from the program that starts the worker."""
    return {
        name: value
        for name, value in environ.items()
        if not any(fnmatch.fnmatch(name, pattern) for pattern in NOT_EXPORTED)
    }


def check_local(host: str) -> None:
    """Check that a host is this machine.

    Raises: ConfigError: the host is another machine, or unknown.
    """
    if host == socket.gethostname():
        return
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as exc:  # UnicodeError: a text that cannot be a host name, such as a..b
        raise ConfigError(
            f"the host {host} has no address: {exc}; correct the name. Names of this machine are localhost and "
            "127.0.0.1 to 127.0.0.9; for workers on other machines see paddle elastic agent"
        ) from exc
    own = set(list_nics().values())
    if not any(address in own or ipaddress.ip_address(address).is_loopback for address in found):
        raise ConfigError(
            f"the host {host} is another machine ({', '.join(sorted(found))}); to run workers there, start "
            "`paddle elastic agent` on it, and set PADDLE_SECRET to the same text on both machines"
        )


class ProcessFiles(NamedTuple):
    """The descriptors of a new worker.

    Attributes: watched: end of a connection whose other end stays open while the driver runs. The guard of the worker
        sends the worker's exit code over it, or -n after signal n.
    """

    stdout: int
    stderr: int
    watched: int


class GuardedProcess:
    """A worker under a guard, which is a child of this process; see `paddle_cluster.elastic.launching.guard`."""

    def __init__(self, its_guard: subprocess.Popen[bytes] | ForkedProgram) -> None:
        self._guard = its_guard
        self._ended = os.pidfd_open(its_guard.pid)

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the worker ends."""
        return self._ended

    def signal(self, number: int) -> None:
        """Send a signal to the process group; do nothing after the end of the worker."""
        signal_group(self._guard.pid, number)

    def wait(self) -> int:
        """Wait for the end of the worker; return its exit code, or -n after signal n."""
        with contextlib.suppress(OSError):
            guard.kill_left(self._guard.pid)
        return self._guard.wait()

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._ended)


StartProcess = Callable[[Mapping[str, str], ProcessFiles], GuardedProcess]


def start_command(command: Sequence[str]) -> StartProcess:
    """Return a function that starts a command as a worker."""

    def start(environ: Mapping[str, str], files: ProcessFiles) -> GuardedProcess:
        return GuardedProcess(
            subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(guard.__file__)), "pipe", str(files.watched), *command],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=files.stdout,
                stderr=files.stderr,
                pass_fds=[files.watched],
                start_new_session=True,
            )
        )

    return start


def run_process(
    start: StartProcess, environ: Mapping[str, str], rank: int, writer: OutputSink, ends: Sequence[threading.Event]
) -> WorkerExit:
    """Run a worker to its end, or end the worker when an event is set; copy its output.

    Raises: VolumeError: the output files cannot be written.  OSError: the worker cannot be started.
        LostPeerError: the worker is gone, and its exit code is unknown.
    """
    files = writer.open(rank)
    (stdout, its_stdout), (stderr, its_stderr), (watched, held) = os.pipe(), os.pipe(), socket.socketpair()
    given = ProcessFiles(its_stdout, its_stderr, watched.detach())
    try:
        process = start(environ, given)
    except BaseException:
        os.close(stdout)
        os.close(stderr)
        held.close()
        raise
    finally:
        # the worker has its copies; while these are open, its pipes have no end
        for descriptor in given:
            os.close(descriptor)
    sources = [WorkerPipe(descriptor) for descriptor in (stdout, stderr)]
    for kind, source in zip(KINDS, sources, strict=True):
        ServiceThread(partial(writer.copy, source, rank, kind, files[kind]), f"output of rank {rank}").start()
    try:
        was_stopped = wait_or_end(process.fileno(), process.signal, ends)
        code = _read_code(held, process.wait())
    finally:
        held.close()
        process.close()
    # before the wait for output, which children of the worker may hold open
    end = steady_time()
    for source in sources:
        source.wait_until_drained(DRAIN_S)
    return WorkerExit(code, end, was_stopped)


def _read_code(held: socket.socket, status: int) -> int:
    """Return what the guard has sent about the end of its worker, or the end of the guard, if the guard was killed.

    A worker may exit with 137 itself, so the status of the guard does not tell whether a signal has ended the worker.
    """
    with contextlib.suppress(OSError, ValueError):
        return int(held.recv(16, socket.MSG_DONTWAIT))
    return status


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group; do nothing if it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def wait_or_end(ended: int, send: Callable[[int], None], ends: Sequence[threading.Event]) -> bool:
    """Wait for the end of a worker; return whether an event has ended the worker.

    Args: ended: descriptor that becomes readable when the worker ends.  send: sends a signal to the worker's group.
    """
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    while not poll.poll(LOOK_S * 1000):
        if any(event.is_set() for event in ends):
            send(signal.SIGTERM)
            send(signal.SIGCONT)  # a stopped process takes SIGTERM only when it continues
            if not poll.poll(guard.GRACE_S * 1000):
                send(signal.SIGKILL)
                poll.poll(guard.GRACE_S * 1000)
            return True
    return False
