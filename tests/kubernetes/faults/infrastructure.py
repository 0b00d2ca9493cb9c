"""What is done to nodes and to the API server, and undone again whatever becomes of the test."""

import contextlib
import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from kubernetes_cluster import HERE, Cluster, Namespace
from long_job import INDEX, JOB, LongJob

REGISTRY_PORT = "5000"


def control(cluster: Cluster, *words: str) -> None:
    """One command of tests/kubernetes/cluster."""
    cluster.run(HERE / "cluster", *words)


def wait_until_ready(cluster: Cluster) -> None:
    """Wait until pods can be placed on every node.

    A kubelet that has missed its API server may take a minute to report again; the taints go some seconds later.
    """
    cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=180s")
    deadline = time.monotonic() + 60
    while taints := find_taints(cluster):
        assert time.monotonic() < deadline, taints
        time.sleep(0.3)


def find_taints(cluster: Cluster) -> str:
    """The taints of all nodes, as JSON; an empty text where there are none."""
    return cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[*].spec.taints}").strip()


@contextlib.contextmanager
def cut_off(cluster: Cluster, node: str) -> Iterator[None]:
    """A node without a network, and the pods on it; for the length of the block."""
    control(cluster, "cut", node)
    try:
        yield
    finally:
        control(cluster, "join", node)
        wait_until_ready(cluster)


@contextlib.contextmanager
def crashed(cluster: Cluster, node: str) -> Iterator[None]:
    """A node without power; for the length of the block."""
    control(cluster, "crash", node)
    try:
        yield
    finally:
        control(cluster, "revive", node)
        wait_until_ready(cluster)


@contextlib.contextmanager
def tainted(cluster: Cluster, command: str) -> Iterator[None]:
    """The command that a launcher has told, `kubectl taint node NODE KEY=VALUE:EFFECT`, given and taken back."""
    words = command.split()
    assert words[:3] == ["kubectl", "taint", "node"] and len(words) == 5, command
    cluster.kubectl(*words[1:])
    try:
        yield
    finally:
        cluster.kubectl(*words[1:4], f"{words[4]}-")


@contextlib.contextmanager
def without_registry(cluster: Cluster, node: str) -> Iterator[None]:
    """A node that cannot pull an image."""
    control(cluster, "block", node, REGISTRY_PORT)
    try:
        yield
    finally:
        control(cluster, "unblock", node, REGISTRY_PORT)


@contextlib.contextmanager
def without_api_server(cluster: Cluster) -> Iterator[None]:
    control(cluster, "stop-api")
    try:
        yield
    finally:
        control(cluster, "start-api")
        wait_until_ready(cluster)


def limit_pods(space: Namespace, number: int) -> None:
    """Let a namespace have so many pods (ResourceQuota `pods`)."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"}}
    space.kubectl("apply", "-f", "-", stdin=json.dumps({**quota, "spec": {"hard": {"pods": str(number)}}}))


SUSPENDED = {"op": "add", "path": "/spec/suspend", "value": True}


def start_two_of_three(job: LongJob) -> list[int]:
    """Let a Job that was created with SUSPENDED make two pods, and no third; their indexes, once both wait."""
    limit_pods(job.space, 2)
    job.space.kubectl("patch", "job", JOB, "--type=merge", "--patch", '{"spec": {"suspend": false}}')
    pods = job.wait("two pods", lambda: len(found := job.watch.pods()) == 2 and found)
    indexes = sorted(int(pod["metadata"]["labels"][INDEX]) for pod in pods)
    for index in indexes:
        job.wait_for_log(index, "waiting: 2 of 3 Running; 2 of 3 pods exist")
    return indexes


def lonely_index(job: LongJob, wanted: int) -> int:
    """The index `wanted` if its pod is alone on its node, else another such index, so that one pod is harmed."""
    nodes = [job.node(index) for index in range(3)]
    found = [index for index in sorted(range(3), key=lambda one: one != wanted) if nodes.count(nodes[index]) == 1]
    assert found, f"the pods are on the nodes {nodes}\n{job.space.kubectl('describe', 'nodes')}"
    return found[0]


def first_said(job: LongJob, index: int, pattern: str) -> datetime | None:
    """When a pod of an index first printed a line with this in it."""
    for pod in job.pods_of(index):
        for line in job.watch.lines(pod):
            if re.search(pattern, line.text):
                return datetime.fromisoformat(line.time)
    return None


def check_said_within(job: LongJob, index: int, pattern: str, seconds: float, began: datetime) -> None:
    """Wait for a line of an index's pod, and check by its own time that it came soon enough after `began`."""
    job.wait_for_log(index, pattern)
    said = first_said(job, index, pattern)
    assert said is not None and (said - began).total_seconds() <= seconds, f"{pattern!r} at {said}, {began} + {seconds}"


def now() -> datetime:
    return datetime.now(UTC)


def name_of(job: LongJob, index: int) -> str:
    return str(job.pod(index)["metadata"]["name"])


def pod_on(job: LongJob, node: str) -> int:
    """The index whose pod is on this node."""
    found = [pod for pod in job.watch.pods() if pod["spec"].get("nodeName") == f"node-{node}"]
    assert len(found) == 1, f"not one pod on node-{node}: {[pod['metadata']['name'] for pod in found]}"
    return int(found[0]["metadata"]["labels"][INDEX])
