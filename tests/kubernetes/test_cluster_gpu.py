"""Pods with GPUs on a real API server: what the scheduler, a quota and the autoscaler count.

KWOK plays two nodes with two GPUs each. Their pods run nothing.
"""

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from autoscale.account import create_account
from autoscale.objects import FAKE
from autoscale.on_kwok import kwok
from kubernetes_cluster import Cluster, Namespace, copy_manifests, namespace_with_volume

pytestmark = pytest.mark.kwok
JOB, GPU = "paddle-cluster-job", "nvidia.com/gpu"
NODES = ("gpu-node-0", "gpu-node-1")
GPUS = 2  # of a node


def gpu_node(name: str) -> dict[str, Any]:
    room = {"cpu": "8", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi", GPU: str(GPUS)}
    labels = {"nvidia.com/gpu.present": "true", "kubernetes.io/hostname": name, "type": "kwok"}
    metadata = {"name": name, "annotations": {FAKE: "fake"}, "labels": labels}
    spec = {"taints": [{"key": GPU, "value": "present", "effect": "NoSchedule"}]}
    status = {"allocatable": room, "capacity": room}
    return {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


@pytest.fixture(scope="module")
def gpu_nodes(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        cluster.kubectl("delete", "node", *NODES, "--ignore-not-found")
        for name in NODES:
            cluster.kubectl("create", "-f", "-", stdin=json.dumps(gpu_node(name)))
        with kwok(tmp_path_factory.mktemp("kwok"), kubelets=False):
            cluster.kubectl("wait", "--for=condition=Ready", "node", *NODES, "--timeout=60s")
            yield
            cluster.kubectl("delete", "node", *NODES)


@pytest.fixture
def space(cluster: Cluster, gpu_nodes: None, tmp_path: Path) -> Iterator[Namespace]:
    volume = tmp_path / "volume"
    volume.mkdir()
    with namespace_with_volume(cluster, "gpus", volume) as made:
        yield made


def create(space: Namespace, directory: Path, nodes: int) -> None:
    """Create the training Job with the component `gpu`, and what it needs."""
    file = copy_manifests(directory, "gpu") / "kustomization.yaml"
    file.write_text(file.read_text().replace("count=3", f"count={nodes}"))
    space.kubectl("create", "-k", file.parent, "-l", "app.kubernetes.io/component in (access, volume, training)")


def places(space: Namespace) -> Counter[str]:
    """The number of the Job's running pods on each node."""
    running = [pod for pod in space.pods(JOB) if pod["status"]["phase"] == "Running"]
    return Counter(pod["spec"]["nodeName"] for pod in running)


def refused(space: Namespace) -> str:
    """What the scheduler says about the pods that have no node."""
    conditions = [one for pod in space.pods(JOB) for one in pod["status"].get("conditions", [])]
    return " ".join(one.get("message", "") for one in conditions if one["type"] == "PodScheduled")


def test_each_pod_has_gpus_of_its_own_and_waits_without(space: Namespace, tmp_path: Path) -> None:
    create(space, tmp_path, 5)
    space.wait("two pods on each node", lambda: places(space) == dict.fromkeys(NODES, GPUS), job=JOB)
    space.wait("word of the scheduler", lambda: f"2 Insufficient {GPU}" in refused(space), job=JOB)
    for pod in space.pods(JOB):
        (trainer,) = [one for one in pod["spec"]["containers"] if one["name"] == "trainer"]
        assert trainer["resources"]["limits"][GPU] == trainer["resources"]["requests"][GPU] == "1"
        (volume,) = [one["name"] for one in trainer["volumeMounts"] if one["mountPath"] == "/dev/shm"]
        (shared,) = [one["emptyDir"] for one in pod["spec"]["volumes"] if one["name"] == volume]
        assert shared == {"medium": "Memory", "sizeLimit": "8Gi"}
    assert len(space.pods(JOB)) == 5


def test_a_quota_counts_gpus(space: Namespace, tmp_path: Path) -> None:
    space.kubectl("create", "quota", "gpus", f"--hard=requests.{GPU}=3")
    create(space, tmp_path, 4)
    space.wait("three pods", lambda: sum(places(space).values()) == 3, job=JOB)
    space.wait("word of the quota", lambda: "exceeded quota: gpus" in space.describe(JOB), job=JOB)
    assert len(space.pods(JOB)) == 3


def trainers_with_gpus(parallelism: int) -> dict[str, Any]:
    """The Job of a task job's trainers: each has a GPU and a hundredth of the CPUs of a node."""
    resources = {"requests": {"cpu": "80m"}, "limits": {GPU: "1"}}
    spec: dict[str, Any] = {"restartPolicy": "Never", "tolerations": [{"key": GPU, "operator": "Exists"}]}
    spec["containers"] = [{"name": "trainer", "image": "none", "resources": resources}]
    notes = {"paddle/trainers-min": "1", "paddle/trainers-max": "20"}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "digits", "annotations": notes}}
    return {**made, "spec": {"parallelism": parallelism, "template": {"spec": spec}}}


def test_the_autoscaler_counts_gpus_as_well_as_cpus(space: Namespace, tmp_path: Path) -> None:
    other = {"containers": [{"name": "other", "image": "none", "resources": {"limits": {GPU: "1"}}}]}
    other |= {"tolerations": [{"key": GPU, "operator": "Exists"}]}
    space.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": other})
    space.create(trainers_with_gpus(1))
    space.wait("trainer", lambda: len(space.pods("digits")) == 1, job="digits")
    environ = create_account(tmp_path / "account", space.cluster.env, namespaces=[space.name])
    command = [sys.executable, "-m", "paddle", "autoscaler", f"--namespaces={space.name}", "--start_timeout=2s"]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, env=environ, stderr=log) as process:
        try:
            free = GPUS * len(NODES) - 1  # there are CPUs for 20
            space.wait("trainers", lambda: space.job("digits")["spec"]["parallelism"] == free, job="digits")
            space.wait("pods", lambda: len(space.pods("digits")) == free, job="digits")
            said = (tmp_path / "log").read_text()
            # it raises the job once, to what fits, and does not come back from a larger number
            assert re.findall(r"digits: (\d+) -> (\d+) trainers", said) == [("1", str(free))], said
            space.kubectl("delete", "pod", "other")
            space.wait("one more", lambda: space.job("digits")["spec"]["parallelism"] == free + 1, job="digits")
        finally:
            process.terminate()
            process.wait(60)
    end = time.monotonic() + 60
    while any(pod["status"]["phase"] != "Running" for pod in space.pods("digits")):
        assert time.monotonic() < end, space.describe("digits")
        time.sleep(0.3)
