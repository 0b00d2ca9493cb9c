"""Faults of nodes and of the API server, which are repaired at the end, also if the test fails."""

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
    """Run a command of the script tests/kubernetes/cluster."""
    cluster.run(HERE / "cluster", *words)


def wait_until_ready(cluster: Cluster) -> None:
    """Wait until pods can be placed on every node.

    A kubelet that could not reach the API server may take a minute until it reports again. Kubernetes removes
    the taints of the node some seconds later.
    """
    cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=180s")
    deadline = time.monotonic() + 60
    while taints := find_taints(cluster):
        assert time.monotonic() < deadline, taints
        time.sleep(0.3)


def find_taints(cluster: Cluster) -> str:
    """Return the taints of all nodes as JSON, or "" if there are none."""
    return cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[*].spec.taints}").strip()


@contextlib.contextmanager
def cut_off(cluster: Cluster, node: str) -> Iterator[None]:
    """Cut a node and its pods off from the network during the block."""
    control(cluster, "cut", node)
    try:
        yield
    finally:
        control(cluster, "join", node)
        wait_until_ready(cluster)


@contextlib.contextmanager
def crashed(cluster: Cluster, node: str) -> Iterator[None]:
    """Let a node lose its power during the block."""
    control(cluster, "crash", node)
    try:
        yield
    finally:
        control(cluster, "revive", node)
        wait_until_ready(cluster)


@contextlib.contextmanager
def tainted(cluster: Cluster, command: str) -> Iterator[None]:
    """Run `kubectl taint node NODE KEY=VALUE:EFFECT`, which a launcher logged; remove the taint at the end."""
    words = command.split()
    assert words[:3] == ["kubectl", "taint", "node"] and len(words) == 5, command
    cluster.kubectl(*words[1:])
    try:
        yield
    finally:
        cluster.kubectl(*words[1:4], f"{words[4]}-")


@contextlib.contextmanager
def without_registry(cluster: Cluster, node: str) -> Iterator[None]:
    """Prevent a node from pulling images during the block."""
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
    """Limit the number of pods in a namespace, by a ResourceQuota named `pods`."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"}}
    space.kubectl("apply", "-f", "-", stdin=json.dumps({**quota, "spec": {"hard": {"pods": str(number)}}}))


SUSPENDED = {"op": "add", "path": "/spec/suspend", "value": True}


def start_two_of_three(job: LongJob) -> list[int]:
    """Let a Job that was created with SUSPENDED make two of its three pods; return their indexes when both wait."""
    limit_pods(job.space, 2)
    job.space.kubectl("patch", "job", JOB, "--type=merge", "--patch", '{"spec": {"suspend": false}}')
    pods = job.wait("two pods", lambda: len(found := job.watch.pods()) == 2 and found)
    indexes = sorted(int(pod["metadata"]["labels"][INDEX]) for pod in pods)
    for index in indexes:
        job.wait_for_log(index, "waiting: 2 of 3 Running; 2 of 3 pods exist")
    return indexes


def lonely_index(job: LongJob, wanted: int) -> int:
    """Return an index whose pod is the only one of the job on its node, so that a fault of the node harms one pod.

    The result is `wanted` if this is true of it.
    """
    nodes = [job.node(index) for index in range(3)]
    found = [index for index in sorted(range(3), key=lambda one: one != wanted) if nodes.count(nodes[index]) == 1]
    assert found, f"the pods are on the nodes {nodes}\n{job.space.kubectl('describe', 'nodes')}"
    return found[0]


def first_said(job: LongJob, index: int, pattern: str) -> datetime | None:
    """Return the time at which a pod of an index first printed a line that matches `pattern`."""
    for pod in job.pods_of(index):
        for line in job.watch.lines(pod):
            if re.search(pattern, line.text):
                return datetime.fromisoformat(line.time)
    return None


def check_said_within(job: LongJob, index: int, pattern: str, seconds: float, began: datetime) -> None:
    """Wait for a line of a pod; check that the pod printed it at most `seconds` after `began`."""
    job.wait_for_log(index, pattern)
    said = first_said(job, index, pattern)
    assert said is not None and (said - began).total_seconds() <= seconds, f"{pattern!r} at {said}, {began} + {seconds}"


def now() -> datetime:
    return datetime.now(UTC)


def name_of(job: LongJob, index: int) -> str:
    return str(job.pod(index)["metadata"]["name"])


def pod_on(job: LongJob, node: str) -> int:
    """Return the index of the only pod on this node."""
    found = [pod for pod in job.watch.pods() if pod["spec"].get("nodeName") == f"node-{node}"]
    assert len(found) == 1, f"not one pod on node-{node}: {[pod['metadata']['name'] for pod in found]}"
    return int(found[0]["metadata"]["labels"][INDEX])
