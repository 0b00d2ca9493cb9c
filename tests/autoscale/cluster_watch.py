"""The API server as the experiment uses it: requests of the admin's, and all pods as a watch says."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import requests
import yaml


class Api:
    """The API server, as the admin of the kubeconfig."""

    def __init__(self) -> None:
        content = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
        server = content["clusters"][0]["cluster"]
        self.url, self.authority = server["server"], server["certificate-authority"]
        self._token = content["users"][0]["user"]["token"]

    def session(self) -> requests.Session:
        made = requests.Session()
        made.trust_env, made.verify = False, self.authority
        made.headers["Authorization"] = f"Bearer {self._token}"
        return made

    def send(self, session: requests.Session, method: str, path: str, body: Any = None, kind: str = "json") -> Any:
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": f"application/{kind}"}
        answer = session.request(method, self.url + path, data=data, headers=headers, timeout=30)
        if answer.status_code == 404 and method == "DELETE":
            return None
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()


class Pod(NamedTuple):
    """A pod that has not ended. Times of this watch (time.monotonic), 0: not yet."""

    part: str
    job: str
    node: str
    phase: str
    is_leaving: bool
    seen: float
    bound: float = 0.0
    ready: float = 0.0


class PodWatch(threading.Thread):
    """All pods of the cluster."""

    def __init__(self, api: Api) -> None:
        super().__init__(daemon=True)
        self._api, self._lock = api, threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._waits: list[tuple[str, float, float]] = []  # part, seconds to its node, and from there to Running
        self._over = False

    def pods(self) -> list[Pod]:
        with self._lock:
            return list(self._pods.values())

    def take_waits(self) -> list[tuple[str, float, float]]:
        """Of the pods that have begun to run since the last call."""
        with self._lock:
            taken, self._waits = self._waits, []
        return taken

    def stop(self) -> None:
        self._over = True

    def run(self) -> None:
        while not self._over:
            try:
                self._follow()
            except (requests.RequestException, AssertionError, ValueError) as problem:
                print(f"the watch of pods begins anew: {problem}", flush=True)
                time.sleep(0.2)

    def _follow(self) -> None:
        session = self._api.session()
        found = self._api.send(session, "GET", "/api/v1/pods")
        with self._lock:
            before, self._pods = self._pods, {}
            for item in found["items"]:
                self._keep("ADDED", item, before)
        query = {"watch": "1", "resourceVersion": found["metadata"]["resourceVersion"], "timeoutSeconds": "1800"}
        answer = session.get(f"{self._api.url}/api/v1/pods", params=query, stream=True, timeout=1900)
        with contextlib.closing(answer):
            for line in answer.iter_lines(chunk_size=None):
                event = json.loads(line)
                if event["type"] == "ERROR" or self._over:
                    return
                with self._lock:
                    self._keep(event["type"], event["object"], self._pods)

    def _keep(self, kind: str, item: Any, before: dict[str, Pod]) -> None:
        metadata, labels = item["metadata"], item["metadata"].get("labels") or {}
        uid, phase, now = metadata["uid"], item["status"].get("phase", ""), time.monotonic()
        old = before.get(uid)
        if kind == "DELETED" or phase in ("Succeeded", "Failed"):
            self._pods.pop(uid, None)
            return
        node, is_leaving = item["spec"].get("nodeName", ""), "deletionTimestamp" in metadata
        seen = old.seen if old else now
        bound = (old.bound if old else 0.0) or (now if node else 0.0)
        ready = (old.ready if old else 0.0) or (now if phase == "Running" else 0.0)
        pod = Pod(labels.get("part", ""), labels.get("job", ""), node, phase, is_leaving, seen, bound, ready)
        if pod.ready and not (old and old.ready):
            self._waits.append((pod.part, pod.bound - pod.seen, pod.ready - pod.bound))
        self._pods[uid] = pod
