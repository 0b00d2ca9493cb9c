"""The process side of the parameter servers: binds, reads, sends; every decision is the service's.

All ports of a process are served by one thread with one poller. Arithmetic on a shard is bound by memory, not by
instructions, and a shard's step follows its last push at once, so more threads would mostly wait for each other and
for the interpreter's lock; the system moves the bytes meanwhile. (A step alone may have more: --pserver_num_threads.)
And one thread needs no locks: the process ends as one, when a service fails or when all are done.
"""

from __future__ import annotations

import importlib
import select
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pserver import glog
from pserver.errors import BugError, LostPeerError, PaddleError, StoppedError
from pserver.lag import LagLimits
from pserver.membership import Identity
from pserver.port import Port
from pserver.pulse import PULSE
from pserver.service import Service

POLL_INTERVAL = 0.25  # seconds between two looks at the clock
BUSY_LOOKS = 20  # with something left to read, after which silence is judged all the same
LINGER = 1.0  # seconds for the last messages to be read


@dataclass(frozen=True)
class Options:
    """What all services of a process share; times in seconds, buffers in bytes (0: the system's choice)."""

    num_trainers: int = 1
    job: str = ""
    attempt: str = ""
    secret: str = ""
    peer_timeout: float = 10.0
    join_timeout: float = 600.0
    log_period: int = 500
    lag_limits: LagLimits = field(default_factory=LagLimits)
    threads: int = 1  # that take a step together
    send_buffer: int = 0
    receive_buffer: int = 0
    backlog: int = 1024


class Server:
    """One parameter server per endpoint, until the job is over.

        server = Server([("127.0.0.1", 7164)], Options(num_trainers=3))
        server.bind()
        server.run()

    Thread safety: one thread runs it; only `stop` may be called from another one.
    """

    def __init__(self, endpoints: Sequence[tuple[str, int]], options: Options) -> None:
        self.endpoints = list(endpoints)
        self.options = options
        self.services = [
            Service(
                Identity(f"{host}:{port}", options.num_trainers, options.job, options.attempt, options.secret),
                options.peer_timeout,
                options.join_timeout,
                options.log_period,
                options.lag_limits,
                options.threads,
            )
            for host, port in self.endpoints
        ]
        self._poller = select.epoll()
        self.ports: list[Port] = []
        self.busy_seconds = 0.0  # that the loop has had something to do
        self._stop_reason = ""

    def bind(self) -> None:
        """Listen on every endpoint.

        Raises: PortInUseError: naming the address and port.  ConfigError: if the address is none of this machine's.
        """
        try:
            for number, (host, port) in enumerate(self.endpoints):
                glog.info(f"Starting parameterServer[{number}]", at="ParameterServerController.cpp:87")
                self.ports.append(
                    Port(
                        host,
                        port,
                        self.services[number],
                        self._poller,
                        backlog=self.options.backlog,
                        send_buffer=self.options.send_buffer,
                        receive_buffer=self.options.receive_buffer,
                    )
                )
                glog.info("tcp server start ", at="LightNetwork.cpp:269")
        except PaddleError:
            self.close()
            raise
        glog.info("Waiting parameterServer[0]", at="ParameterServerController.cpp:96")

    def run(self) -> None:
        """Serve until all trainers have said goodbye on every port that any trainer joined.

        Raises: LostPeerError, PeerUnreachableError, ConfigError: why the job cannot go on; every trainer was told.
            StoppedError: after `stop`.
        """
        # the first arithmetic should not wait for numpy, nor the first hello
        warm = threading.Thread(target=importlib.import_module, args=("pserver.arithmetic",), daemon=True)
        warm.start()
        try:
            self._serve()
        except PaddleError:
            raise
        except Exception as exc:
            self._fail(BugError(f"{self._name()} failed: {type(exc).__name__}: {exc}"))
            raise
        finally:
            warm.join()
            self.close()

    def stop(self, reason: str) -> None:
        """Make `run` end with StoppedError between two messages; for other threads and for signal handlers.

        An exception out of a handler could come in the middle of a request, and be taken for its failure.
        """
        self._stop_reason = reason

    def close(self) -> None:
        """Let the last messages be read, then close every connection; may be called again."""
        ports, self.ports = self.ports, []
        deadline = time.monotonic() + LINGER
        for port in ports:
            port.close(max(0.0, deadline - time.monotonic()))

    def _serve(self) -> None:
        checked, busy = time.monotonic(), 0
        try:
            while not self._is_done():
                ready = self._poller.poll(POLL_INTERVAL)
                if self._stop_reason:
                    raise StoppedError(self._stop_reason)
                PULSE.turned = now = time.monotonic()
                for file, events in ready:
                    for port in self.ports:
                        if port.owns(file):
                            port.handle(file, events, now)
                self.busy_seconds += time.monotonic() - now
                self._raise_failure()
                if now - checked < POLL_INTERVAL:
                    continue
                checked = now
                for port in self.ports:
                    port.tidy(now)
                # judge silence when nothing is left to read; or when every connection has been read again and again
                # meanwhile, because who floods this server must not hide that another one is gone
                busy += 1
                if busy > BUSY_LOOKS or not self._poller.poll(0):
                    busy = 0
                    for port in self.ports:
                        port.send(port.service.check(now))
                    self._raise_failure()  # the last one that is lost is no longer there, and has not said goodbye
        except StoppedError as exc:
            self._fail(LostPeerError(f"{self._name()} is leaving: {exc}"))
            raise

    # ----- The end -----

    def _is_done(self) -> bool:
        used = [service for service in self.services if service.is_used]
        return bool(used) and all(service.is_done for service in used)

    def _raise_failure(self) -> None:
        failure = next((service.failure for service in self.services if service.failure), None)
        if failure:
            self._fail(failure)
            raise failure

    def _fail(self, error: PaddleError) -> None:
        for port in self.ports:
            port.send(port.service.fail(error))

    def _name(self) -> str:
        return "pserver " + ", ".join(service.identity.name for service in self.services)
