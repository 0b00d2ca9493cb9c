"""The event loop of a server process binds ports, and reads and sends messages. A `Service` makes every decision.

One thread with one poller serves all ports of a process, and needs no locks. More threads would hardly be faster:
memory bandwidth limits the arithmetic on a shard, the kernel transfers the bytes, and the threads would wait for the
interpreter's lock. The arithmetic of one step may use more threads (--pserver_num_threads). The process ends when a
service fails or when all services are done.
"""

from __future__ import annotations

import importlib
import select
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, LeaseLostError, LostPeerError, PaddleError, StoppedError
from paddle_base.runtime.health.liveness import LIVENESS
from pserver.server.admission import Identity
from pserver.server.listener import Listener, bind_port
from pserver.server.service import Service
from pserver.server.service_state import ServiceOptions

POLL_INTERVAL = 0.25  # seconds between two checks for work that is due without a message
BUSY_LOOKS = 20  # after this number of successive polls with messages to read, silent trainers are checked anyway
SUSPENDED_S = 0.05  # seconds between two checks whether a server may answer again
LINGER = 1.0  # maximum seconds until the last messages are sent


@dataclass(frozen=True)
class Options:
    """The settings that all services of a process share. Sizes of buffers are in bytes; 0 is the system's choice."""

    num_trainers: int = 1
    job: str = ""
    attempt: str = ""
    secret: str = ""
    service: ServiceOptions = field(default_factory=ServiceOptions)
    send_buffer: int = 0
    receive_buffer: int = 0
    backlog: int = 1024


class ServerLife(Protocol):
    """Decides when a server of a task job may answer and when it ends. Only the loop's thread calls the methods."""

    def begin_turn(self) -> bool:
        """Return whether messages may be read and answered in this turn.

        Raises: LeaseLostError: this server must not send any further message. PaddleError: the reason why the server
            ends.
        """

    def end_turn(self) -> bool:
        """Perform the due work between two messages; return whether all services must now be checked for due work."""

    @property
    def is_over(self) -> bool:
        """Whether the job is over."""


class Server:
    """Run one parameter server for each endpoint, until the job is over.

        server = Server([("127.0.0.1", 7164)], Options(num_trainers=3))
        server.bind()
        server.run()

    Args: endpoints: the address and port of each service; for port 0, the system chooses a free port. life: in an
        task job, the object that reports the end of the job; otherwise None. kind: class of the services; an
        task job, which has no `num_trainers`, uses `TaskService`.

    Thread safety: one thread runs the server; other threads may call only `stop`.
    """

    def __init__(
        self,
        endpoints: Sequence[tuple[str, int]],
        options: Options,
        life: ServerLife | None = None,
        kind: type[Service] = Service,
    ) -> None:
        self.options = options
        # a service is named by its port, so free ports are chosen before the services exist
        self._bound = [bind_port(*one, options.send_buffer, options.receive_buffer) for one in endpoints if not one[1]]
        free = iter(self._bound)
        self.endpoints = [(host, port or next(free).getsockname()[1]) for host, port in endpoints]
        trainers, job = 0 if kind.is_task_job else options.num_trainers, options.job
        self.services = [
            kind(
                Identity(f"{host}:{port}", trainers, job, options.attempt, options.secret, kind.is_task_job),
                options.service,
            )
            for host, port in self.endpoints
        ]
        self._poller = select.epoll()
        self.listeners: list[Listener] = []
        self.busy_seconds = 0.0  # seconds that the loop has spent on work
        self._stopped: StoppedError | None = None
        self._life, self._kind = life, kind

    def bind(self) -> None:
        """Listen on every endpoint.

        Raises: PortInUseError: a port is in use; the message contains its address and number.  ConfigError: an address
            does not belong to this machine.
        """
        try:
            for number, (host, port) in enumerate(self.endpoints):
                glog.info(f"Starting parameterServer[{number}]", at="ParameterServerController.cpp:87")
                bound = self._find_bound(host, port)
                self.listeners.append(
                    Listener(bound, self.services[number], self._poller, backlog=self.options.backlog)
                )
                glog.info("tcp server start ", at="LightNetwork.cpp:269")
        except PaddleError:
            self.close()
            raise
        glog.info("Waiting parameterServer[0]", at="ParameterServerController.cpp:96")

    def _find_bound(self, host: str, port: int) -> socket.socket:
        for one in self._bound:
            if one.getsockname()[:2] == (host, port):
                self._bound.remove(one)
                return one
        return bind_port(host, port, self.options.send_buffer, self.options.receive_buffer)

    def run(self) -> None:
        """Serve until all trainers have left every port, or in a task job, until the job is over.

        Ports that no trainer has joined do not count.

        Raises: LostPeerError, PeerUnreachableError, ConfigError: the reason why the job cannot continue; every trainer
            was informed. StoppedError: `stop` was called.
        """
        # numpy is imported in a thread, so that neither the first hello nor the first arithmetic waits for the import
        warm = threading.Thread(target=importlib.import_module, args=("pserver.server.arithmetic",), daemon=True)
        warm.start()
        try:
            self._serve()
        except LeaseLostError:
            self.close(0.0)  # unsent messages must not be sent any more
            raise
        except PaddleError:
            raise
        except Exception as exc:
            self._fail(BugError(f"{self._name()} failed: {type(exc).__name__}: {exc}"))
            raise
        finally:
            warm.join()
            self.close()

    def stop(self, error: StoppedError) -> None:
        """Make `run` raise this error between two messages. Other threads and signal handlers may call this method.

        If a signal handler raised the error itself, the error could occur inside a request and be mistaken for a
        failure of the request.
        """
        self._stopped = error

    def close(self, seconds: float = LINGER) -> None:
        """Send the last messages, then close every connection; repeated calls are allowed."""
        while self._bound:
            self._bound.pop().close()
        listeners, self.listeners = self.listeners, []
        deadline = time.monotonic() + seconds
        for listener in listeners:
            listener.close(max(0.0, deadline - time.monotonic()))

    def _serve(self) -> None:
        checked, busy, is_due = time.monotonic(), 0, False
        try:
            while not self._is_done():
                ready = self._poller.poll(POLL_INTERVAL)
                if self._stopped is not None:
                    raise self._stopped
                LIVENESS.turned = now = time.monotonic()
                if self._life is not None and not self._life.begin_turn():
                    time.sleep(SUSPENDED_S)  # unread messages make `poll` return at once
                    continue
                self._handle(ready, now)
                is_due |= self._life is not None and self._life.end_turn()
                if now - checked < POLL_INTERVAL and not is_due:
                    continue
                checked = now
                for listener in self.listeners:
                    listener.tidy(now)
                # Silent trainers are checked when no message is left to read. Silent trainers are also checked after
                # BUSY_LOOKS iterations with messages, because a peer that floods this server must not hide that another
                # peer is lost.
                busy += 1
                if busy > BUSY_LOOKS or not self._poller.poll(0):
                    busy, is_due = 0, False
                    for listener in self.listeners:
                        listener.send(listener.service.check(now))
                    self._raise_failure()  # if the last trainer is lost, no further message would raise the failure
        except StoppedError as exc:
            if self._kind.is_task_job:  # the trainers wait for the next server with this server's index
                raise
            self._fail(LostPeerError(f"{self._name()} is leaving: {exc}"))
            raise

    def _handle(self, ready: Sequence[tuple[int, int]], now: float) -> None:
        """Read and send on the ready descriptors."""
        for listener in self.listeners:
            if not ready:
                break
            ready = listener.handle_ready(ready, now)
        self.busy_seconds += time.monotonic() - now
        self._raise_failure()

    # ----- Ending -----

    def _is_done(self) -> bool:
        if self._life is not None:
            return self._life.is_over
        is_used = False
        for service in self.services:
            if service.sessions.is_used:
                if not service.sessions.is_done:
                    return False
                is_used = True
        return is_used

    def _raise_failure(self) -> None:
        for service in self.services:
            if failure := service.failure:
                self._fail(failure)
                raise failure

    def _fail(self, error: PaddleError) -> None:
        for listener in self.listeners:
            listener.send(listener.service.sessions.fail(error))

    def _name(self) -> str:
        return "pserver " + ", ".join(service.identity.name for service in self.services)
