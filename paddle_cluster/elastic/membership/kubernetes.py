"""The host discovery of `--discovery=kubernetes`, which asks the Kubernetes API for the pods of a label selector."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from paddle_base.runtime import glog
from paddle_base.runtime.backoff import exponential_backoff
from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.kubernetes.client import ApiClient, ApiProblem, find_place
from paddle_cluster.elastic.constants import POD_SELECTOR
from paddle_cluster.elastic.discovery import FoundHosts, HostDiscovery

SLOTS = "paddle/slots"  # annotation of a pod: number of workers in the pod
MOST_SLOTS = 1024
MOST_PODS = 10_000


def read_pods(pods: Iterable[Mapping[str, Any]], default_slots: int) -> tuple[FoundHosts, list[str]]:
    """Return the hosts in the order of the ranks, the oldest first, and the problems of unusable pods.

    A pod is a host if the pod runs, is Ready, has an address and is not being deleted. Pods that were created in the
    same second are sorted by name.

    Args: default_slots: number of slots of a pod without the annotation `paddle/slots`.
    """
    found: list[tuple[str, str, int, str, str]] = []
    problems: list[str] = []
    for pod in pods:
        try:
            host = _read_pod(pod, default_slots)
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            problems.append(glog.clean(f"a pod cannot be used: {exc}", 200))
            continue
        if host is not None and len(found) < MOST_PODS:
            found.append(host)
    hosts = sorted(found)
    return (
        FoundHosts(
            {name: slots for _, name, slots, _, _ in hosts},
            {name: uid for _, name, _, uid, _ in hosts},
            {name: address for _, name, _, _, address in hosts},
        ),
        problems,
    )


def _read_pod(pod: Mapping[str, Any], default_slots: int) -> tuple[str, str, int, str, str] | None:
    """Return time of creation, name, slots, unique id and address of a pod; None: the pod is no host."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    if metadata.get("deletionTimestamp") or status.get("phase") != "Running" or not status.get("podIP"):
        return None
    ready = [one.get("status") for one in status.get("conditions") or [] if one.get("type") == "Ready"]
    if ready != ["True"]:
        return None
    name, address, uid = str(metadata["name"]), str(status["podIP"]), str(metadata["uid"])
    text = (metadata.get("annotations") or {}).get(SLOTS)
    slots = default_slots if text is None else _read_slots(name, text)
    return (str(metadata.get("creationTimestamp") or ""), name, slots, uid, address) if slots else None


def _read_slots(name: str, text: Any) -> int:
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()) or int(text[:9]) > MOST_SLOTS:
        raise ValueError(f"{name} has the annotation {SLOTS}={text!r}; it has to be a number up to {MOST_SLOTS}")
    return int(text[:9])


REFUSED_S = 10.0  # seconds after the start in which a refusal is no error, because the rights may be given later
LONGEST_S = 30.0  # maximum seconds between two requests to an API server that does not answer
ADVICE = "The driver's service account needs the verb `list` on pods, which k8s/allreduce/access.yaml gives"


class PodDiscovery(HostDiscovery):
    """Finds pods that can run workers. While the API server does not answer, the hosts are the pods of its last answer.

    Args: default_slots: number of slots of a pod without the annotation `paddle/slots`.  make_client: returns the
        client of the API server.
    Raises: ConfigError: this process does not run in a pod of a cluster.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        namespace: str = "",
        selector: str = POD_SELECTOR,
        default_slots: int = 1,
        make_client: Callable[[Any], ApiClient] = ApiClient,
    ) -> None:
        place = find_place(environ)
        self._client = make_client(place)
        namespace = namespace or environ.get("JOB_NAMESPACE", "") or place.namespace
        if not namespace:
            raise ConfigError(
                "--namespace is not given, and the service account of this pod has no namespace: give a namespace"
            )
        self._path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
        self._selector, self._default_slots = selector, default_slots
        self._found: FoundHosts | None = None
        self._problem = ""
        self._noted: set[str] = set()  # problems of pods that have been logged
        self._began = time.monotonic()
        self._next = 0.0  # time of the next request, in seconds of `time.monotonic`
        self._delays = exponential_backoff(1.0, LONGEST_S)

    def find_available_hosts_and_slots(self) -> FoundHosts:
        """Ask the API server for the pods; send no request during the delay after a failed request.

        Raises: RuntimeError: the API server has refused every request since the start.
        """
        now = time.monotonic()
        if now >= self._next:
            try:
                self._found = self._list()
            except ApiProblem as problem:
                self._take_problem(problem, now)
            else:
                if self._problem:
                    glog.info("the API server lists the pods again")
                self._problem, self._delays = "", exponential_backoff(1.0, LONGEST_S)
        return FoundHosts({}) if self._found is None else self._found

    def _list(self) -> FoundHosts:
        pods: list[dict[str, Any]] = []
        self._client.list_all(self._path, pods.append, {"labelSelector": self._selector})
        hosts, problems = read_pods(pods, self._default_slots)
        for problem in set(problems) - self._noted:
            glog.warning(problem)
        self._noted = set(problems)
        return hosts

    def _take_problem(self, problem: ApiProblem, now: float) -> None:
        if problem.is_refusal and self._found is None and now - self._began > REFUSED_S:
            raise RuntimeError(str(problem.to_error(ADVICE)))
        self._next = now + max(next(self._delays), problem.retry_after)
        text = f"{problem}. {ADVICE}" if problem.is_refusal else str(problem)
        if text != self._problem:
            known = "no hosts are known yet"
            if self._found is not None:
                count = len(self._found)
                known = "the last host is used" if count == 1 else f"the last {count} hosts are used"
            glog.warning(f"the pods cannot be listed, and {known}: {text}; the driver tries again")
        self._problem = text
