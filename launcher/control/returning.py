"""How trainer 0's launcher notices, while an attempt goes on without some pods, that they are back."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence

from launcher.attempts import JobRecord
from launcher.cluster.kubernetes import PodApi
from launcher.cluster.pods import PodStatus, own_pods, parse_pods
from launcher.control.channel import LauncherControl
from launcher.errors import ApiError
from launcher.settings import LauncherConfig
from runtime.errors import PaddleError

LOOK_S = 10.0  # seconds between two lists of the pods
CONNECT_S = 2.0  # seconds for a launcher to take a connection


def find_returned(pods: Sequence[PodStatus], record: JobRecord, is_heard: Callable[[PodStatus], bool]) -> list[str]:
    """Returns the pods that an attempt does without and that can take part in the next one.

    Args: pods: of this Job. is_heard: tells whether the launcher of a pod is there.
    """
    absent = {one["index"] for one in record.absent}
    back = [pod for pod in pods if pod.is_live and pod.index in absent and pod.uid not in record.pod_uids]
    return [f"pod {pod.index} ({pod.place})" for pod in back if is_heard(pod)]


def is_open(ip: str, port: int) -> bool:
    """Tells whether a program listens on a port."""
    try:
        with socket.create_connection((ip, port), CONNECT_S):
            return True
    except OSError:
        return False


class ReturnWatch:
    """Lists the pods of an attempt that does without some, in a thread, until it is closed.

    A launcher that is back joins this one; one of a lower index serves by itself, and its port is open. Where there is
    no secret, only the addresses of pods may join: they are told as soon as the pods are listed.

    Thread safety: `names` is read by the main thread and replaced as a whole by the other one.
    """

    def __init__(self, config: LauncherConfig, record: JobRecord, control: LauncherControl, api: PodApi) -> None:
        """Args: api: of the main thread; its tokens are kept out of logs here, too."""
        self.names: list[str] = []  # of the pods that are back
        self._heard: set[str] = set()  # UIDs of pods whose launcher has been there
        self._config, self._record, self._control = config, record, control
        self._api = PodApi(config, askers=1, secrets=api.secrets)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="returning pods", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def close(self) -> None:
        """Lets the thread end; a request that is under way is not waited for."""
        self._closed.set()

    def look(self) -> None:
        """Lists the pods once. Raises: ApiError."""
        pods = parse_pods(own_pods(self._config, self._api.list_pods()))
        if not self._closed.is_set():
            self._control.admit(pod.ip for pod in pods if pod.ip)
            self.names = find_returned(pods, self._record, self._is_heard)

    def _is_heard(self, pod: PodStatus) -> bool:
        """Tells whether the launcher of a pod has been there: it may be out of reach between two sets of pods."""
        own = self._record.indexes[0]
        serves = pod.index is not None and pod.index < own
        is_joined = not self._control.find_silent({pod.ip: pod.uid})
        if is_joined or (serves and is_open(pod.ip, self._config.control_port)):
            self._heard.add(pod.uid)
        return pod.uid in self._heard

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            with contextlib.suppress(ApiError, PaddleError):  # it is asked again
                self.look()
