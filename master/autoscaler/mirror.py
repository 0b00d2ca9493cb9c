"""A mirror is a copy of the cluster's nodes, pods or Jobs, which a thread keeps current by list and watch requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from master.autoscaler.api import OPENED, ApiClient, ApiProblem
from master.autoscaler.facts import JobFacts
from runtime import glog
from runtime.backoff import exponential_backoff

WELL_S = 15.0  # seconds without a failure after which the delay before a retry is short again
STALE_S = 60.0  # seconds without an answer of the API server after which a mirror is too old for decisions
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


def with_parallelism(number: int) -> Callable[[JobFacts], JobFacts]:
    """Return the function for `Mirror.change` that sets a Job's parallelism."""
    return lambda job: replace(job, parallelism=number)
