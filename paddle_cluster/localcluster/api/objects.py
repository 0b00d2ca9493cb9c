"""Pure functions that turn the state of a pod, or an error, into the JSON objects of the Kubernetes API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

INDEX_KEY = "batch.kubernetes.io/job-completion-index"


def timestamp(seconds: float) -> str:
    """Return a time (seconds since the epoch) in the format of the API."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class PodState:
    """The properties of a pod that the API shows; `evolve` returns the next state. Times are seconds since the epoch.

    phase: Pending, Running, Succeeded or Failed. waiting: the reason why a Pending container waits, and a message.
    conditions: type -> (status, reason, message) of the conditions that do not follow from the phase. init: the name of
    the init container that runs or has failed.
    """

    name: str
    job: str
    uid: str
    controller_uid: str
    namespace: str = "default"
    index: int | None = None
    ip: str = ""
    phase: str = "Pending"
    created: float = 0.0
    started: float | None = None
    finished: float | None = None
    exit_code: int | None = None
    deleted: float | None = None
    grace_seconds: float = 30.0
    waiting: tuple[str, str] = ("ContainerCreating", "")
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    container: str = "trainer"
    init: str = ""
    image: str = ""
    node: str = "localhost"
    service_account: str = "default"

    def evolve(self, **changes: Any) -> PodState:
        """Return a copy of this state with some fields changed."""
        return replace(self, **changes)

    @property
    def is_finished(self) -> bool:
        """Whether the pod has ended."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def all_labels(self) -> dict[str, str]:
        """The labels of the Job's pod template, and the labels that the Job controller adds."""
        labels = {
            **self.labels,
            "batch.kubernetes.io/controller-uid": self.controller_uid,
            "batch.kubernetes.io/job-name": self.job,
            "controller-uid": self.controller_uid,
            "job-name": self.job,
        }
        return labels if self.index is None else {**labels, INDEX_KEY: str(self.index)}

    @property
    def all_annotations(self) -> dict[str, str]:
        """The template's annotations and the completion index."""
        return dict(self.annotations) if self.index is None else {**self.annotations, INDEX_KEY: str(self.index)}


def pod_object(state: PodState) -> dict[str, Any]:
    """Return the v1 Pod object of a state, without resourceVersion, which the store sets."""
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": state.job,
        "uid": state.controller_uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata: dict[str, Any] = {
        "name": state.name,
        "generateName": f"{state.name.rsplit('-', 1)[0]}-",
        "namespace": state.namespace,
        "uid": state.uid,
        "creationTimestamp": timestamp(state.created),
        "labels": state.all_labels,
        "annotations": state.all_annotations,
        "ownerReferences": [owner],
        "finalizers": ["batch.kubernetes.io/job-tracking"],
    }
    if state.deleted is not None:
        # as in Kubernetes: the end of the grace period, and not the moment of the request
        metadata["deletionTimestamp"] = timestamp(state.deleted + state.grace_seconds)
        metadata["deletionGracePeriodSeconds"] = int(state.grace_seconds)
    spec = {
        "containers": [{"name": state.container, "image": state.image}],
        "nodeName": state.node,
        "restartPolicy": "Never",
        "serviceAccountName": state.service_account,
        "terminationGracePeriodSeconds": int(state.grace_seconds),
    }
    if state.waiting[0] == "Unschedulable" and state.phase == "Pending":
        del spec["nodeName"]  # the scheduler sets it
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": _status(state)}


def _status(state: PodState) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": state.phase, "conditions": _conditions(state), "qosClass": "BestEffort"}
    if state.phase == "Pending" and state.waiting[0] == "Unschedulable":
        return status
    status["hostIP"] = "127.0.0.1"
    status["startTime"] = timestamp(state.created)
    if state.ip:
        status["podIP"] = state.ip
        status["podIPs"] = [{"ip": state.ip}]
    if state.init:
        of_init = state.evolve(phase="Running") if state.phase == "Pending" else state
        status["initContainerStatuses"] = [_container_status(state.init, of_init)]
        state = state.evolve(phase="Pending", waiting=("PodInitializing", ""))
    status["containerStatuses"] = [_container_status(state.container, state)]
    return status


def _container_status(name: str, state: PodState) -> dict[str, Any]:
    running = state.phase == "Running"
    return {
        "name": name,
        "image": state.image,
        "imageID": "",
        "ready": running,
        "started": running,
        "restartCount": 0,
        "lastState": {},
        "state": _container_state(state),
    }


def _container_state(state: PodState) -> dict[str, Any]:
    if state.phase == "Pending":
        reason, message = state.waiting
        return {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    started = timestamp(state.started if state.started is not None else state.created)
    if state.phase == "Running":
        return {"running": {"startedAt": started}}
    reason = {0: "Completed", 128: "StartError"}.get(state.exit_code or 0, "Error")
    finished = timestamp(state.finished if state.finished is not None else state.created)
    times = {"startedAt": started, "finishedAt": finished}
    return {"terminated": {"exitCode": state.exit_code or 0, "reason": reason, **times}}


def _conditions(state: PodState) -> list[dict[str, Any]]:
    unschedulable = state.phase == "Pending" and state.waiting[0] == "Unschedulable"
    running = state.phase == "Running"
    ended = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(state.phase, "ContainersNotReady")
    scheduled = ("False", *state.waiting) if unschedulable else ("True", "", "")
    conditions = {"PodScheduled": scheduled}
    if not unschedulable:
        ready = ("True", "", "") if running else ("False", ended, "")
        conditions |= {"Initialized": ("True", "", ""), "Ready": ready, "ContainersReady": ready}
    since = timestamp(state.finished or state.started or state.created)
    return [
        {
            "type": kind,
            "status": status,
            "lastProbeTime": None,
            "lastTransitionTime": since,
            **({"reason": reason} if reason else {}),
            **({"message": message} if message else {}),
        }
        for kind, (status, reason, message) in {**conditions, **state.conditions}.items()
    ]


def status_object(code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the v1 Status object with which the API answers a failed request."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
    }
    if details:
        status["details"] = dict(details)
    return {**status, "code": code}
