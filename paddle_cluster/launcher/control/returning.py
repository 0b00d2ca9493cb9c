"""Detect the return of absent pods while an attempt runs without these pods."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence

from paddle_base.runtime.errors import PaddleError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_cluster.launcher.attempts import JobRecord
from paddle_cluster.launcher.cluster.kubernetes import PodApi
from paddle_cluster.launcher.cluster.pods import PodStatus, own_pods, parse_pods
from paddle_cluster.launcher.control.launcher import Launcher
from paddle_cluster.launcher.errors import ApiError

LOOK_S = 10.0  # seconds between two lists of the pods
CONNECT_S = 2.0  # seconds for a launcher to accept a connection


def find_returned(pods: Sequence[PodStatus], record: JobRecord, is_heard: Callable[[PodStatus], bool]) -> list[str]:
    """Return the pods that are absent from an attempt and can take part in the next attempt.

    Args: pods: the pods of this Job. is_heard: returns whether the launcher of a pod is running.
    """
    absent = {one["index"] for one in record.absent}
    back = [pod for pod in pods if pod.is_live and pod.index in absent and pod.uid not in record.pod_uids]
    return [f"pod {pod.index} ({pod.place})" for pod in back if is_heard(pod)]


def is_open(ip: str, port: int) -> bool:
    """Return whether a program listens on a port."""
    try:
        with socket.create_connection((ip, port), CONNECT_S):
            return True
    except OSError:
        return False


class ReturnWatch:
    """A thread that repeatedly lists the pods of the Job while an attempt runs without some pods; `close` ends it.

    Of two launchers, the launcher whose pod has the lower index is the server. If a returned pod has a higher index,
    its launcher connects to this launcher. If a returned pod has a lower index, the thread tests whether the port of
    that pod's launcher is open. In a job without a secret, only launchers of listed pods may connect, and the thread
    updates the list of their addresses.

    Thread safety: the thread replaces the whole list `names`, which the main thread reads.
    """

    def __init__(self, launcher: Launcher, record: JobRecord) -> None:
        self.names: list[str] = []  # names of the returned pods
        self._heard: set[str] = set()  # UIDs of pods whose launcher was seen running
        self._config, self._record, self._control = launcher.config, record, launcher.control
        # a client of its own, because only one thread may use a client; the tokens are also removed from its log lines
        self._api = PodApi(launcher.config, askers=1, secrets=launcher.api.secrets)
        self._closed = threading.Event()
        self._thread = ServiceThread(self._run, "returning pods")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Request the end of the thread, without waiting for a request in progress."""
        self._closed.set()

    def look(self) -> None:
        """List the pods once, and find the returned pods. Raises: ApiError."""
        pods = parse_pods(own_pods(self._config, self._api.list_pods()))
        if not self._closed.is_set():
            self._control.admit(pod.ip for pod in pods if pod.ip)
            self.names = find_returned(pods, self._record, self._is_heard)

    def _is_heard(self, pod: PodStatus) -> bool:
        """Return whether a pod's launcher has ever been reachable; it may be unreachable now because it reconnects."""
        own = self._record.indexes[0]
        serves = pod.index is not None and pod.index < own
        is_joined = not self._control.side.find_silent({pod.ip: pod.uid})
        if is_joined or (serves and is_open(pod.ip, self._config.control_port)):
            self._heard.add(pod.uid)
        return pod.uid in self._heard

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            with contextlib.suppress(ApiError, PaddleError):  # the next iteration repeats the request
                self.look()
