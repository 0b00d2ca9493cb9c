"""Builders of objects for tests; a test states only the properties that matter to it."""

from __future__ import annotations

import copy
import json
from typing import Any

JOB = "paddle-cluster-job"
JOB_UID = "11111111-aaaa"


class PodBuilder(dict):
    """A Pod object of the Kubernetes API; every method returns a changed copy."""

    def _with(self, part: str, **fields: Any) -> PodBuilder:
        changed = copy.deepcopy(self)
        changed[part].update(fields)
        return changed

    def running(self) -> PodBuilder:
        return self._with("status", phase="Running")

    def phase(self, phase: str) -> PodBuilder:
        return self._with("status", phase=phase)

    def pending(self, reason: str = "", message: str = "") -> PodBuilder:
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        return self._with("status", phase="Pending", podIP="", conditions=[condition] if reason else [])

    def waiting(self, reason: str, message: str = "") -> PodBuilder:
        states = [{"name": "trainer", "state": {"waiting": {"reason": reason, "message": message}}}]
        return self._with("status", phase="Pending", containerStatuses=states)

    def terminating(self, due: str = "2999-01-01T00:00:00Z") -> PodBuilder:
        return self._with("metadata", deletionTimestamp=due)

    def on_node(self, node: str) -> PodBuilder:
        return self._with("spec", nodeName=node)

    def ready(self, ready: bool, *, containers: bool, reason: str | None = None) -> PodBuilder:
        """Set the kubelet's conditions; ready(False, containers=True) is a pod whose node has stopped reporting."""
        states = {"Ready": (ready, reason), "ContainersReady": (containers, reason)}
        conditions = [{"type": kind, "status": str(is_so), "reason": why} for kind, (is_so, why) in states.items()]
        return self._with("status", conditions=conditions)

    def indexed(self, index: int) -> PodBuilder:
        return self._with(
            "metadata", labels={**self["metadata"]["labels"], "batch.kubernetes.io/job-completion-index": str(index)}
        )

    def of_job(self, uid: str) -> PodBuilder:
        return self._with("metadata", labels={**self["metadata"]["labels"], "batch.kubernetes.io/controller-uid": uid})


def pod(ip: str, name: str = "") -> PodBuilder:
    """Returns a Running pod of the job JOB with this IP."""
    name = name or f"{JOB}-{ip.replace('.', '-')}"
    labels = {"job-name": JOB, "batch.kubernetes.io/controller-uid": JOB_UID}
    metadata = {"name": name, "uid": f"uid-of-{name}", "labels": labels}
    return PodBuilder(metadata=metadata, spec={}, status={"phase": "Running", "podIP": ip})


def podlist(*pods: PodBuilder, token: str = "") -> dict[str, Any]:
    """Returns a PodList of the API."""
    return {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"continue": token} if token else {},
        "items": list(pods),
    }


def pod_environment(**changed: str | None) -> dict[str, str]:
    """Returns the environment that the tutorial's Job gives a pod, with changes; None takes a variable away."""
    environ: dict[str, str | None] = {
        "JOB_NAME": JOB,
        "JOB_PATH": "/home/jobpath",
        "JOB_NAMESPACE": "default",
        "TRAIN_CONFIG_DIR": "quick_start",
        "CONF_PADDLE_NIC": "eth0",
        "CONF_PADDLE_PORT": "7164",
        "CONF_PADDLE_PORTS_NUM": "2",
        "CONF_PADDLE_PORTS_NUM_SPARSE": "2",
        "CONF_PADDLE_GRADIENT_NUM": "3",
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_SERVICE_PORT_HTTPS": "443",
        "POD_IP": "10.0.0.1",
        "SERVICE_ACCOUNT_DIR": "/nonexistent",
        **changed,
    }
    return {name: value for name, value in environ.items() if value is not None}


OWN = pod("127.0.0.1")


def one_pod(**changed: Any) -> dict[str, Any]:
    """Returns a list of this pod, with parts changed: `metadata__uid=3` changes metadata.uid, `spec=[]` the whole."""
    item: dict[str, Any] = json.loads(json.dumps(OWN))
    for name, value in changed.items():
        place, _, inner = name.partition("__")
        if inner:
            item[place][inner] = value
        else:
            item[place] = value
    return podlist(item)  # type: ignore[arg-type]


def items(*values: Any) -> dict[str, Any]:
    """Returns a list of these items, whatever they are."""
    return {"kind": "PodList", "metadata": {}, "items": list(values)}
