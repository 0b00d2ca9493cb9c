"""The thread that asks the discovery for hosts; a slow discovery delays nobody who decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from elastic.discovery import DiscoveredHosts, HostManager
from elastic.worker import HostUpdateResult
from runtime import glog
from runtime.errors import PeerUnreachableError

NOTE_S = 30.0  # between two warnings that say the same


class TimeoutException(PeerUnreachableError):  # Horovod's name
    """There were not enough slots in time."""


class HostWatch:
    """Looks for hosts again and again, until it is stopped.

    Args: on_change: called in the thread, with the flags of a change.  read_period: returns the seconds between two
        looks.

    Attributes: is_stopped: set at the end of the job.

    Thread safety: every method may be called from any thread.
    """

    def __init__(
        self, manager: HostManager, on_change: Callable[[int], None], read_period: Callable[[], float]
    ) -> None:
        self.is_stopped = threading.Event()
        self.problem = ""
        self._manager, self._on_change, self._read_period = manager, on_change, read_period
        self._looked = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="discovery", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; may be called again, and by the thread itself."""
        self.is_stopped.set()
        self.wake()
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join()

    def wake(self) -> None:
        """Let those that wait look again."""
        with self._looked:
            self._looked.notify_all()

    def wait(self, slots: int, hosts: int, timeout: float) -> DiscoveredHosts:
        """Return the hosts as soon as there are enough of them.

        Raises: TimeoutException: there are not within `timeout` seconds.  RuntimeError: the job has been stopped.
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
                    raise TimeoutException(
                        f"waited {timeout:g} s for {slots} slots on at least {hosts} hosts, and found "
                        f"{found.count_available_slots()} on {len(found.available_hosts)}; look at the discovery of "
                        "hosts, or raise --elastic-timeout"
                    )
                self._looked.wait(left)

    def _run(self) -> None:
        is_first, noted, noted_at = True, "", 0.0
        while not self.is_stopped.is_set():
            try:
                result = self._manager.update_available_hosts()
                if result != HostUpdateResult.no_update:
                    self._on_change(result)
            except Exception as exc:  # whatever a user's discovery raises
                text = f"the discovery of hosts has failed: {type(exc).__name__}: {exc}"
                if is_first:  # it is wrong, rather than away
                    self.problem = text
                    self.is_stopped.set()
                    glog.error(text)
                elif text != noted or time.monotonic() - noted_at > NOTE_S:
                    noted, noted_at = text, time.monotonic()
                    glog.warning(f"{text}; the driver tries again")
            is_first = False
            self.wake()
            self.is_stopped.wait(self._read_period())
