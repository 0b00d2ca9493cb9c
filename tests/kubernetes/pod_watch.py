"""Records all pods of a Job, or of another selection, and their output, also of pods and nodes that are gone."""

import contextlib
import json
import threading
from pathlib import Path
from typing import IO, Any, NamedTuple

import requests
from kubernetes_cluster import Cluster, Namespace

RETRY_S = 0.5  # seconds after an error of the API server or the end of a watch


class Line(NamedTuple):
    """A line of a pod's log. time: when the container runtime received it, as RFC 3339 in UTC."""

    time: str
    text: str


class PodWatch:
    """Follows the pods of a Job by a watch, and keeps their log files open.

    `kubectl logs` prints nothing for a pod that was deleted or whose node does not answer. An open log file keeps its
    content.
    """

    def __init__(self, space: Namespace, job: str = "", *, selector: str = ""):
        self.space, self.selector = space, selector or f"job-name={job}"
        self.logs_root = Path(space.cluster.env["KUBECONFIG"]).parent
        self._pods: dict[str, dict[str, Any]] = {}
        self._gone: set[str] = set()
        self._files: dict[str, IO[bytes]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "PodWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for file in self._files.values():
            file.close()

    def pods(self, *, gone: bool = False) -> list[dict[str, Any]]:
        """The last known pod objects, in order of creation. gone: whether to include pods that are no longer listed."""
        with self._lock:
            found = [pod for uid, pod in self._pods.items() if gone or uid not in self._gone]
        return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def lines(self, pod: dict[str, Any]) -> list[Line]:
        """The output of a pod so far."""
        with self._lock:
            self._open_log(pod)
            file = self._files.get(pod["metadata"]["uid"])
            if file is None:
                return []
            file.seek(0)
            content = file.read().decode("utf-8", "replace")
        # the format of the container runtime interface: time stream F|P text
        fields = (line.split(" ", 3) for line in content.splitlines())
        return [Line(words[0], words[3]) for words in fields if len(words) == 4]

    def log(self, pod: dict[str, Any]) -> str:
        return "\n".join(line.text for line in self.lines(pod))

    # ----- the thread -----

    def _follow(self) -> None:
        cluster, path = Cluster(), f"/api/v1/namespaces/{self.space.name}/pods"  # the thread needs its own session
        selector = self.selector
        while not self._ended.is_set():
            try:
                listed = cluster.get(path, labelSelector=selector).json()
                self._replace(listed["items"])
                version = listed["metadata"]["resourceVersion"]
                self._read_events(cluster, path, labelSelector=selector, watch="1", resourceVersion=version)
            except (requests.RequestException, ValueError, KeyError):
                self._ended.wait(RETRY_S)

    def _read_events(self, cluster: Cluster, path: str, **query: str) -> None:
        # the server ends an idle watch after a second, so that the thread notices when it must end
        with cluster.get(path, stream=True, timeoutSeconds="1", **query) as answer:
            for line in answer.iter_lines(chunk_size=None):
                event = json.loads(line)
                if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                    self._take(event["object"], gone=event["type"] == "DELETED")

    def _replace(self, pods: list[dict[str, Any]]) -> None:
        with self._lock:
            listed = {pod["metadata"]["uid"] for pod in pods}
            self._gone |= self._pods.keys() - listed
        for pod in pods:
            self._take(pod)

    def _take(self, pod: dict[str, Any], *, gone: bool = False) -> None:
        with self._lock:
            uid = pod["metadata"]["uid"]
            self._pods[uid] = pod
            if gone:
                self._gone.add(uid)
            self._open_log(pod)

    def _open_log(self, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        if metadata["uid"] in self._files:
            return
        name = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        for path in self.logs_root.glob(f"node-*/pods/{name}/*/0.log"):
            if path.parent.name == "directories":  # the init container, which says nothing
                continue
            with contextlib.suppress(FileNotFoundError):
                self._files[metadata["uid"]] = path.open("rb")
