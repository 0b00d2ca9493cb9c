"""The thread that runs the discovery of hosts; a slow discovery does not delay the decisions of the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from paddle_base.runtime import glog
from paddle_base.runtime.errors import PeerUnreachableError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.rate_limit import PROBLEM_LINE_S, RateLimit
from paddle_cluster.elastic.discovery import DiscoveredHosts, HostManager
from paddle_cluster.elastic.worker import HostUpdateResult

STOP_S = 5.0  # maximum seconds that `stop` waits for a discovery that cannot be ended


class TimeoutException(PeerUnreachableError):  # Horovod's name
    """There were too few slots within the timeout. Attributes: message: the text of the error."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class HostWatch:
    """Runs the discovery of hosts periodically until the watch is stopped.

    Args: on_change: called by the watch's thread with the flags of a change.  read_period: returns the seconds between
        two runs of the discovery.  on_look: called by the watch's thread after each run that has not failed.

    Attributes: is_stopped: set at the end of the job.

    Thread safety: every method may be called from any thread.
    """

    def __init__(
        self,
        manager: HostManager,
        on_change: Callable[[int], None],
        read_period: Callable[[], float],
        on_look: Callable[[], None] = lambda: None,
    ) -> None:
        self.is_stopped = threading.Event()
        self.problem = ""
        self._manager, self._on_change, self._read_period = manager, on_change, read_period
        self._on_look = on_look
        self._looked = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self, target: Callable[[], None] | None = None) -> None:
        """Start the thread. Args: target: function that the thread runs, and that calls `run`; the default is `run`."""
        self._thread = ServiceThread(target or self.run, "discovery")
        self._thread.start()

    def stop(self) -> None:
        """End the thread; further calls, and a call by the thread itself, are allowed."""
        self.is_stopped.set()
        self.wake()
        self._manager.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_S)

    def wake(self) -> None:
        """Wake the waiting threads, which then check the hosts again."""
        with self._looked:
            self._looked.notify_all()

    def wait(self, slots: int, hosts: int, timeout: float) -> DiscoveredHosts:
        """Wait for enough slots and hosts, and return the hosts.

        Raises: TimeoutException: there are too few slots or hosts within `timeout` seconds.  RuntimeError: the job has
            been stopped.
        """
        until = time.monotonic() + timeout
        with self._looked:
            while True:
                found = self._manager.current_hosts
                if self.is_stopped.is_set():
                    raise RuntimeError(self.problem or "the job has been stopped")
                if found.count_available_slots() >= slots and len(found.available_hosts) >= hosts:
                    return found
                left = until - time.monotonic()
                if left <= 0:
                    wanted = f"{_count(slots, 'slot')} on at least {_count(hosts, 'host')}"
                    there = f"{_count(found.count_available_slots(), 'slot')} on "
                    there += _count(len(found.available_hosts), "host")
                    raise TimeoutException(
                        f"waited {timeout:g} s for {wanted}, and found {there}; look at the discovery of hosts, or "
                        "raise --elastic-timeout"
                    )
                self._looked.wait(left)

    def run(self) -> None:
        """Run the discovery until the watch is stopped."""
        is_first, lines = True, RateLimit(PROBLEM_LINE_S)
        while not self.is_stopped.is_set():
            try:
                result = self._manager.update_available_hosts()
                if result != HostUpdateResult.no_update:
                    self._on_change(result)
                self._on_look()
            except Exception as exc:  # a user's discovery may raise anything
                if self.is_stopped.is_set():
                    return
                text = f"the discovery of hosts has failed: {type(exc).__name__}: {exc}"
                if is_first:  # if the first run fails, the discovery is wrong and not only unavailable
                    self.problem = text
                    self.is_stopped.set()
                elif lines.is_due(time.monotonic(), text):
                    glog.warning(f"{text}; the driver tries again")
            is_first = False
            self.wake()
            self.is_stopped.wait(self._read_period())


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
