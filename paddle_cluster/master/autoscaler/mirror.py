"""Mirrors are copies of the cluster's nodes, pods and Jobs, which threads keep current by list and watch requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from paddle_base.runtime import glog
from paddle_base.runtime.backoff import exponential_backoff
from paddle_base.runtime.kubernetes.client import OPENED, ApiClient, ApiProblem
from paddle_cluster.master.autoscaler.api import advise
from paddle_cluster.master.autoscaler.facts import JobFacts, NodeFacts, PodFacts, read_job, read_node, read_pod

WELL_S = 15.0  # seconds without a failure after which the delay before a retry is short again
STALE_S = 60.0  # seconds without an answer of the API server after which a mirror is too old for decisions
EVERYWHERE = ""  # stands for all namespaces
Fact = TypeVar("Fact")
_MALFORMED = (ValueError, TypeError, AttributeError, KeyError, ArithmeticError)


class Mirror(threading.Thread, Generic[Fact]):
    """The facts about the objects in one list of the Kubernetes API, by UID, and the thread that keeps them current.

    Args: read: function that returns the needed facts about an object, or None to ignore the object.  changed: event
        that is set after every change.  resync: seconds after which the list is read again, independent of the watches.
    """

    def __init__(
        self,
        client: ApiClient,
        path: str,
        read: Callable[[Mapping[str, Any]], Fact | None],
        changed: threading.Event,
        resync: float,
    ) -> None:
        super().__init__(name=path.rpartition("/")[2], daemon=True)
        self._client, self._path, self._read, self._changed, self._resync = client, path, read, changed, resync
        self._facts: dict[str, Fact] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.heard = float("-inf")  # time.monotonic of the last answer of the API server
        self.problem: ApiProblem | None = None  # why the last request failed
        self._refused: tuple[float, ApiProblem] | None = None  # time.monotonic of the first refusal for missing rights
        self._malformed = 0

    @property
    def is_current(self) -> bool:
        """Whether the list was read and the API server has answered recently."""
        return time.monotonic() - self.heard < STALE_S

    @property
    def was_read(self) -> bool:
        """Whether the API server has answered once."""
        return self.heard > float("-inf")

    def refused_for(self, seconds: float) -> ApiProblem | None:
        """Return the first refusal if the API server has refused the list or the watch for `seconds`, else None."""
        refused = self._refused
        return refused[1] if refused and time.monotonic() - refused[0] >= seconds else None

    def copy(self) -> dict[str, Fact]:
        """Return the current facts, by UID."""
        with self._lock:
            return dict(self._facts)

    def change(self, uid: str, change: Callable[[Fact], Fact]) -> None:
        """Change the facts of an object at once, before the API server reports the same change."""
        with self._lock:
            if uid in self._facts:
                self._facts[uid] = change(self._facts[uid])

    def stop(self) -> None:
        """Let the thread end after its current request."""
        self._stopping.set()

    def run(self) -> None:
        """Keep the mirror current until stopped."""
        delays, failed = exponential_backoff(0.5, 15.0), float("-inf")
        while not self._stopping.is_set():
            try:
                self._follow(self._load())
            except ApiProblem as problem:
                if self.heard - failed > WELL_S:
                    delays = exponential_backoff(0.5, 15.0)
                failed = time.monotonic()
                self.problem = problem
                if problem.is_refusal:
                    self._refused = self._refused or (failed, problem)
                self._changed.set()
                if problem.status != 410:  # 410: the version is too old for a watch; read the list again
                    glog.warning(f"{problem}; the autoscaler tries again")
                self._stopping.wait(max(next(delays), problem.retry_after))

    def _load(self) -> str:
        facts: dict[str, Fact] = {}
        version = self._client.list_all(self._path, lambda item: self._keep(item, facts))
        with self._lock:
            self._facts = facts
        self._hear()
        return version

    def _follow(self, version: str) -> None:
        until = time.monotonic() + self._resync
        while not self._stopping.is_set() and time.monotonic() < until:
            for kind, item in self._client.watch(self._path, version):
                if kind == OPENED:
                    self._refused = None
                    continue
                if kind == "ERROR":
                    status = item.get("code")
                    code = status if isinstance(status, int) else 500
                    raise ApiProblem(f"the watch of {self._path} ended: {glog.clean(item.get('message'), 200)}", code)
                version = str((item.get("metadata") or {}).get("resourceVersion") or version)
                if kind != "BOOKMARK":
                    with self._lock:
                        self._keep(item, self._facts, is_gone=kind == "DELETED")
                self._hear()
                if self._stopping.is_set():
                    return
            self._hear(is_change=False)

    def _keep(self, item: Mapping[str, Any], facts: dict[str, Fact], *, is_gone: bool = False) -> None:
        try:
            uid = str(item["metadata"]["uid"])
            fact = None if is_gone else self._read(item)
        except _MALFORMED as problem:
            self._malformed += 1
            if self._malformed == 1:
                glog.warning(f"{self._path}: an object cannot be read and is ignored ({glog.clean(problem, 200)})")
            return
        if fact is None:
            facts.pop(uid, None)
        else:
            facts[uid] = fact

    def _hear(self, *, is_change: bool = True) -> None:
        self.heard, self.problem = time.monotonic(), None
        if is_change:
            self._changed.set()


class NamespaceMirror:
    """The mirrors of the pods and Jobs of one namespace, or of all namespaces if the name is EVERYWHERE."""

    def __init__(self, name: str, connect: Callable[[], ApiClient], changed: threading.Event, resync: float) -> None:
        scope = "" if name == EVERYWHERE else f"/namespaces/{name}"
        self.name = name
        self.pods: Mirror[PodFacts] = Mirror(connect(), f"/api/v1{scope}/pods", read_pod, changed, resync)
        self.jobs: Mirror[JobFacts] = Mirror(connect(), f"/apis/batch/v1{scope}/jobs", read_job, changed, resync)
        self.is_left_out = False  # whether rights are missing, so that the autoscaler leaves this namespace alone

    @property
    def is_current(self) -> bool:
        """Whether both lists were read and the API server has answered recently."""
        return self.pods.is_current and self.jobs.is_current

    def refused_for(self, seconds: float) -> ApiProblem | None:
        """Return the refusal if the API server has refused a list or a watch for `seconds`, else None."""
        return self.pods.refused_for(seconds) or self.jobs.refused_for(seconds)

    @property
    def refused_and_old(self) -> ApiProblem | None:
        """The refusal if the API server refuses a list or watch that was read, and is too old now, else None."""
        return next(
            (one.refused_for(0.0) for one in (self.pods, self.jobs) if one.was_read and not one.is_current), None
        )


class ClusterMirror:
    """The mirrors of all that the autoscaler reads: the nodes, and the pods and Jobs of its namespaces.

    Args: connect: function that returns a new client.  namespaces: (EVERYWHERE,) mirrors all namespaces.
    """

    def __init__(
        self, connect: Callable[[], ApiClient], namespaces: Sequence[str], changed: threading.Event, resync: float
    ) -> None:
        self._nodes: Mirror[NodeFacts] = Mirror(connect(), "/api/v1/nodes", read_node, changed, resync)
        self._parts = [NamespaceMirror(name, connect, changed, resync) for name in namespaces]
        self._waiting: dict[str, float] = {}  # {UID of a pod without a node: time at which it was first seen}

    def start(self) -> None:
        """Start the threads."""
        for mirror in self._mirrors:
            mirror.start()

    def stop(self) -> None:
        """Let the threads end."""
        for mirror in self._mirrors:
            mirror.stop()

    @property
    def is_current(self) -> bool:
        """Whether the nodes and all namespaces that are not left out were read, and the API server answers."""
        return self._nodes.is_current and bool(self._used) and all(part.is_current for part in self._used)

    @property
    def problem(self) -> ApiProblem | None:
        """Why a last request failed, or None."""
        return next((mirror.problem for mirror in self._mirrors if mirror.problem), None)

    def nodes(self) -> dict[str, NodeFacts]:
        """Return the nodes, by UID."""
        return self._nodes.copy()

    def pods(self, now: float) -> dict[str, PodFacts]:
        """Return the pods of all namespaces that are not left out, by UID.

        A pod without a node waits since the first call that has returned it, and not since its creation, whose time
        comes from the clock of the API server. Args: now: the time of this call.
        """
        found = {uid: pod for part in self._used for uid, pod in part.pods.copy().items()}
        self._waiting = {uid: self._waiting.get(uid, now) for uid, pod in found.items() if not pod.node}
        return {**found, **{uid: replace(found[uid], created=since) for uid, since in self._waiting.items()}}

    def jobs(self) -> dict[str, JobFacts]:
        """Return the Jobs of all namespaces that are not left out, by UID."""
        return {uid: job for part in self._used for uid, job in part.jobs.copy().items()}

    def set_parallelism(self, uid: str, number: int) -> None:
        """Change the parallelism of a Job at once, before the API server reports the same change."""
        for part in self._parts:
            part.jobs.change(uid, lambda job: replace(job, parallelism=number))

    def check(self, seconds: float) -> ApiProblem | None:
        """Leave out the namespaces that the API server refuses, and log each once.

        A namespace is left out when it has been refused for `seconds`, or when its mirrors become too old: otherwise
        the others would wait for it.

        Returns: the refusal, if the autoscaler has lacked the right to read the nodes, or any right in all namespaces,
            for `seconds`.
        """
        refusal = self._nodes.refused_for(seconds)
        refused = [part.refused_for(seconds) for part in self._parts]
        if refusal or all(refused):
            return refusal or refused[0]
        refused = [part.refused_for(min(seconds, STALE_S)) or part.refused_and_old for part in self._parts]
        if all(refused):
            return None  # the rights may still come
        for part, problem in zip(self._parts, refused, strict=True):
            if problem and not part.is_left_out:
                part.is_left_out = True
                glog.warning(f"the Jobs of namespace {part.name} are left alone: {problem}. {advise(part.name)}")
            elif part.is_left_out and part.is_current and not part.refused_for(0.0):
                part.is_left_out = False
                glog.info(f"the autoscaler may read namespace {part.name} now, and manages its Jobs")
        return None

    @property
    def _mirrors(self) -> list[Mirror[Any]]:
        return [self._nodes, *(mirror for part in self._parts for mirror in (part.pods, part.jobs))]

    @property
    def _used(self) -> list[NamespaceMirror]:
        return [part for part in self._parts if not part.is_left_out]
