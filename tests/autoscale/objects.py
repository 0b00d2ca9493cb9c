"""The objects of the experiment: nodes that KWOK plays, nginx, and the three parts of a job."""

from __future__ import annotations

from typing import Any

from autoscale.cases import BASE, LEAST, MASTER_CPU, MOST, SERVER_CPU, SERVERS, SERVICE_CPU, SIZES, TRAINER_CPU

Item = dict[str, Any]
NAMESPACE = "experiment"
FAKE = "kwok.x-k8s.io/node"
CPUS = {"trainer": TRAINER_CPU, "server": SERVER_CPU, "master": MASTER_CPU, "nginx": SERVICE_CPU, "system": BASE}
MEMORY = {"trainer": "8Gi", "server": "5Gi", "master": "1Gi", "nginx": "3Gi", "system": "64Mi"}


def nodes() -> list[Item]:
    made = []
    for number, size in enumerate(SIZES):
        room = {"cpu": f"{size}m", "memory": "128Gi", "pods": "110"}
        name = f"node-{number:03d}"
        labels = {"type": "kwok", "kubernetes.io/hostname": name}
        metadata = {"name": name, "annotations": {FAKE: "fake"}, "labels": labels}
        spec = {"taints": [{"key": FAKE, "value": "fake", "effect": "NoSchedule"}]}
        made.append({"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": spec,
                     "status": {"allocatable": room, "capacity": room}})  # fmt: skip
    return made


def priorities() -> list[Item]:
    """Trainers below everything; they preempt nobody."""
    common = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    trainers = {"metadata": {"name": "trainers"}, "value": -10, "preemptionPolicy": "Never"}
    return [{**common, **trainers}, {**common, "metadata": {"name": "service"}, "value": 100}]


def pod_of(part: str, job: str = "") -> Item:
    resources = {"requests": {"cpu": f"{CPUS[part]}m", "memory": MEMORY[part]}}
    spec: Item = {
        "nodeSelector": {"type": "kwok"},
        "tolerations": [{"key": FAKE, "operator": "Exists"}],
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "containers": [{"name": part, "image": "none", "resources": resources}],
    }
    priority = {"trainer": "trainers", "nginx": "service"}.get(part)
    if priority:
        spec["priorityClassName"] = priority
    return {"metadata": {"labels": {"part": part, "job": job}}, "spec": spec}


def replicas(kind: str, part: str, count: int, job: str = "") -> tuple[str, Item]:
    """A Deployment, ReplicaSet or DaemonSet, and the path where it is created."""
    labels = {"part": part, "job": job}
    spec: Item = {"selector": {"matchLabels": labels}, "template": pod_of(part, job)}
    if kind != "DaemonSet":
        spec["replicas"] = count
    name = f"{part}{job and '-'}{job}"
    item = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind.lower()}s", item


def trainers(job: str, parallelism: int, *, elastic: bool) -> tuple[str, Item]:
    """The Job of the trainers: a work queue that a preemption does not fail."""
    notes = {"paddle/trainers-min": str(LEAST), "paddle/trainers-max": str(MOST)} if elastic else {}
    template = pod_of("trainer", job)
    template["spec"]["restartPolicy"] = "Never"
    ignored = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    spec = {
        "parallelism": parallelism,
        "backoffLimit": 1000,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": ignored},
        "template": template,
    }
    item = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"job-{job}", "annotations": notes},
        "spec": spec,
    }
    return f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", item


def job_parts(number: int, parallelism: int, *, elastic: bool) -> list[tuple[str, Item]]:
    job = str(number)
    servers, master = replicas("ReplicaSet", "server", SERVERS, job), replicas("ReplicaSet", "master", 1, job)
    return [servers, master, trainers(job, parallelism, elastic=elastic)]
