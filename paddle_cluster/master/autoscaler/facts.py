"""Pure functions that extract the facts that the autoscaler needs from the API's Node, Pod and Job objects. No I/O."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from paddle_cluster.master.autoscaler.amounts import Requests, read_amounts, sum_requests

LEAST, MOST = "paddle/trainers-min", "paddle/trainers-max"  # annotations that make a Job elastic
QUEUE = "kueue.x-k8s.io/queue-name"  # label of a Job that is managed by Kueue
MOST_TERMS = 200  # maximum number of tolerations, and of labels of the node selector, of a pod
Selector = tuple[tuple[str, str], ...]


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str


class Toleration(NamedTuple):
    """A toleration of a pod. A toleration with key "", effect "" and operator Exists covers every taint."""

    key: str
    value: str
    effect: str
    operator: str

    def covers(self, taint: Taint) -> bool:
        """Return whether a pod with this toleration can run on a node with this taint."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or self.value == taint.value


class Placement(NamedTuple):
    """The node selector and the tolerations of a pod, which decide which nodes it may use. Affinity is ignored."""

    selector: Selector = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True)
class NodeFacts:
    """A node."""

    name: str
    allocatable: Mapping[str, int]
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    is_ready: bool
    is_open: bool  # not cordoned

    def takes(self, placement: Placement) -> bool:
        """Return whether pods with this placement may run on the node."""
        if any(self.labels.get(name) != value for name, value in placement.selector):
            return False
        blocking = (one for one in self.taints if one.effect in ("NoSchedule", "NoExecute"))
        return all(any(each.covers(taint) for each in placement.tolerations) for taint in blocking)


@dataclass(frozen=True)
class PodFacts:
    """A pod that has not ended."""

    job: str  # UID of the Job that controls the pod; "": no Job controls the pod
    node: str  # name of the pod's node; "" while the pod has no node
    requests: Requests
    placement: Placement
    priority: int
    created: float  # seconds since the epoch, by the API server's clock; see `ClusterMirror.pods`
    is_terminating: bool
    is_gated: bool


@dataclass(frozen=True)
class JobFacts:
    """A Job with at least one of the annotations LEAST and MOST."""

    key: str
    uid: str
    created: float
    least: str | None  # text of the annotation LEAST; None: the Job does not have this annotation
    most: str | None
    parallelism: int
    has_completions: bool
    is_over: bool  # the Job has finished, is suspended, is being deleted, or has a pod that has succeeded
    queue: str  # name of the Job's queue or manager in Kueue; "": Kueue does not manage the Job
    requests: Requests
    placement: Placement

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """The name of the Job in its namespace."""
        return self.key.partition("/")[2]


def read_node(item: Mapping[str, Any]) -> NodeFacts:
    """Return the facts of a Node. Raises: ValueError, TypeError, AttributeError, KeyError: `item` is malformed."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    taints = [
        Taint(str(one["key"]), str(one.get("value") or ""), str(one["effect"])) for one in spec.get("taints") or []
    ]
    ready = [one.get("status") for one in status.get("conditions") or [] if one.get("type") == "Ready"]
    return NodeFacts(
        name=str(item["metadata"]["name"]),
        allocatable=read_amounts(status.get("allocatable")),
        labels={str(name): str(value) for name, value in (item["metadata"].get("labels") or {}).items()},
        taints=tuple(taints),
        is_ready=ready == ["True"],
        is_open=not spec.get("unschedulable"),
    )


def read_pod(item: Mapping[str, Any]) -> PodFacts | None:
    """Return the facts of a Pod, or None if the pod has ended. Raises: see `read_node`."""
    metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return None
    owners = [one for one in metadata.get("ownerReferences") or [] if one.get("controller")]
    job = str(owners[0].get("uid") or "") if owners and owners[0].get("kind") == "Job" else ""
    node = str(spec.get("nodeName") or "")
    return PodFacts(
        job=job,
        node=node,
        requests=sum_requests(spec),
        placement=Placement() if node else read_placement(spec),  # a pod that has a node stays there
        priority=int(spec.get("priority") or 0),
        created=parse_moment(metadata.get("creationTimestamp")),
        is_terminating=bool(metadata.get("deletionTimestamp")),
        is_gated=bool(spec.get("schedulingGates")),
    )


def read_job(item: Mapping[str, Any]) -> JobFacts | None:
    """Return the facts of a Job, or None for a Job without the annotations LEAST and MOST. Raises: see `read_node`."""
    metadata, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    notes = metadata.get("annotations") or {}
    if LEAST not in notes and MOST not in notes:
        return None
    ends = [
        one for one in status.get("conditions") or [] if one.get("type") in ("Complete", "Failed", "SuccessCriteriaMet")
    ]
    # a Job without completions starts no pod any more when one has succeeded
    is_over = any(one.get("status") == "True" for one in ends) or bool(status.get("succeeded"))
    template = spec["template"]["spec"]
    queue = (metadata.get("labels") or {}).get(QUEUE) or ""
    manager = str(spec.get("managedBy") or "")
    return JobFacts(
        key=f"{metadata['namespace']}/{metadata['name']}",
        uid=str(metadata["uid"]),
        created=parse_moment(metadata.get("creationTimestamp")),
        least=None if notes.get(LEAST) is None else str(notes[LEAST]),
        most=None if notes.get(MOST) is None else str(notes[MOST]),
        parallelism=1 if spec.get("parallelism") is None else int(spec["parallelism"]),
        has_completions=spec.get("completions") is not None,
        is_over=is_over or bool(spec.get("suspend")) or bool(metadata.get("deletionTimestamp")),
        queue=str(queue or (manager if manager.startswith("kueue") else "")),
        requests=sum_requests(template),
        placement=read_placement(template),
    )


def read_placement(spec: Mapping[str, Any]) -> Placement:
    """Return the placement of a pod with this spec. Raises: ValueError: it has more than MOST_TERMS terms."""
    if max(len(spec.get(name) or ()) for name in ("nodeSelector", "tolerations")) > MOST_TERMS:
        raise ValueError(f"a pod has more than {MOST_TERMS} tolerations, or labels of a node selector")
    selector = tuple(sorted((str(name), str(value)) for name, value in (spec.get("nodeSelector") or {}).items()))
    tolerations = [
        Toleration(*(str(one.get(name) or "") for name in ("key", "value", "effect", "operator")))
        for one in spec.get("tolerations") or []
    ]
    return Placement(selector, tuple(tolerations))


def parse_moment(text: object) -> float:
    """Parse a time of the API; return the time in seconds since the epoch. Raises: ValueError: `text` is malformed."""
    return datetime.datetime.fromisoformat(str(text)).timestamp()
