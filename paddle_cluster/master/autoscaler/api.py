"""`JobWriter` changes the parallelism of Jobs, and leaves alone where the API server refuses changes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from paddle_base.runtime.errors import PaddleError
from paddle_base.runtime.kubernetes.client import ApiClient, ApiPlace, ApiProblem

APPLY = "kubectl apply -k k8s/tasks/autoscaler"
NEEDED = f"{APPLY} gives the autoscaler's account its rights"
# what a ValidatingAdmissionPolicy and an admission webhook write into their refusals; RBAC writes nothing like this
_ADMISSION = ("ValidatingAdmissionPolicy", "admission webhook")
WRITERS = 4  # maximum number of Jobs that are changed in parallel; on a busy machine one change took 0.2 s


class ParallelismWish(NamedTuple):
    """A wish to change the parallelism of a Job from `before` to `after`."""

    namespace: str
    name: str
    uid: str
    before: int
    after: int


class JobWriter:
    """Changes the parallelism of Jobs; at most WRITERS requests run at the same time."""

    def __init__(self, place: ApiPlace) -> None:
        self._clients: queue.SimpleQueue[ApiClient] = queue.SimpleQueue()
        for _ in range(WRITERS):
            self._clients.put(ApiClient(place))
        self._pool = ThreadPoolExecutor(WRITERS, "writer")

    def set_all(
        self, wishes: Sequence[ParallelismWish], check: Callable[[], None]
    ) -> Iterator[tuple[ParallelismWish, ApiProblem | None]]:
        """Send the changes, and yield each sent change in order, with its problem or with None after a success.

        After a problem that concerns more than one Job, no further change is sent.

        Args: check: function that is called before each request.
        Raises: errors of `check`.
        """
        failed = threading.Event()

        def send(wish: ParallelismWish) -> tuple[bool, ApiProblem | None]:
            if failed.is_set():
                return False, None
            check()
            client = self._clients.get()
            try:
                set_parallelism(client, wish)
            except ApiProblem as problem:
                if not is_about_job(problem):
                    failed.set()
                return True, problem
            finally:
                self._clients.put(client)
            return True, None

        for wish, (is_sent, problem) in zip(wishes, self._pool.map(send, wishes), strict=True):
            if is_sent:
                yield wish, problem


def set_parallelism(client: ApiClient, wish: ParallelismWish) -> None:
    """Change the parallelism of a Job, if the Job still exists and its parallelism is still `wish.before`.

    Raises: ApiProblem: the API server does not answer, or refuses the change.
    """
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": wish.uid},
        {"op": "test", "path": "/spec/parallelism", "value": wish.before},
        {"op": "replace", "path": "/spec/parallelism", "value": wish.after},
    ]
    client.ask("PATCH", f"/apis/batch/v1/namespaces/{wish.namespace}/jobs/{wish.name}", patch, kind="json-patch+json")


def is_about_job(problem: ApiProblem) -> bool:
    """Return whether the problem concerns one Job: another program deleted or changed it, or a policy refuses."""
    return problem.status in (404, 409, 422) or is_policy(problem)


def is_policy(problem: ApiProblem) -> bool:
    """Return whether an admission policy or webhook refuses the change; the account does not lack rights then."""
    return problem.status in (400, 403, 422) and any(word in str(problem) for word in _ADMISSION)


class ChangeRefusals:
    """The Jobs and namespaces in which the API server refuses changes; each is left alone for a while.

    Args: first, longest: the seconds after the first refusal, and their maximum; each further refusal doubles them.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self._ends: dict[str, tuple[float, float]] = {}  # UID or namespace -> (end of the wait, its seconds)

    def add(self, key: str, now: float) -> float:
        """Record a refusal, and return the seconds of the wait."""
        before = self._ends.get(key)
        seconds = min(2 * before[1], self._longest) if before else self._first
        self._ends[key] = (now + seconds, seconds)
        return seconds

    def end(self, *keys: str) -> float:
        """Return the time until which the given keys are left alone, or 0."""
        return max((self._ends[key][0] for key in keys if key in self._ends), default=0.0)

    def forget(self, *keys: str) -> None:
        """Forget the refusals of the given keys, after a change was accepted."""
        for key in keys:
            self._ends.pop(key, None)

    def keep(self, keys: Collection[str]) -> None:
        """Forget the refusals of all other keys."""
        self._ends = {key: end for key, end in self._ends.items() if key in keys}


def advise(namespace: str) -> str:
    """Return what to do if the autoscaler's account lacks rights in one namespace."""
    return (
        f"Give the autoscaler's account its rights in {namespace}: list the namespace in NAMESPACES and `resources` of "
        f"k8s/tasks/autoscaler/kustomization.yaml, then run {APPLY}"
    )


def explain(problem: ApiProblem) -> PaddleError:
    """Return the error with which the autoscaler ends if a problem persists."""
    return problem.to_error(f"The autoscaler's account lacks rights: {NEEDED}")
