"""A job of k8s/allreduce on a real cluster: pods of workers come and go, and the driver's pod is lost."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import allreduce_script
import pytest
from kubernetes_cluster import REPOSITORY, Cluster, Image, Namespace, give, namespace_with_volume
from pod_watch import PodWatch

pytestmark = [pytest.mark.elastic, pytest.mark.alone]

NAMESPACE = "allreduce"
MOUNT = "/home/jobpath"


class AllreduceRun:
    """A job in its namespace."""

    def __init__(self, space: Namespace, watch: PodWatch) -> None:
        self.space, self.watch = space, watch

    def read(self, name: str) -> dict[str, float]:
        path = self.space.volume / name
        return json.loads(path.read_text()) if path.exists() else {}

    def step(self) -> float:
        return self.read("progress").get("step", 0)

    def wait(self, what: str, condition: Callable[[], Any], seconds: float = 180) -> Any:
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < end, f"no {what} at step {self.step()}\n{self.describe()}"
            time.sleep(0.3)
        return found

    def wait_for_size(self, size: int) -> None:
        """Wait until a generation of so many workers has done ten more steps."""
        self.wait(f"{size} workers", lambda: self.read("progress").get("size") == size)
        step = self.step()
        self.wait("ten steps", lambda: self.step() >= step + 10)
        assert self.read("progress")["size"] == size, self.describe()

    def pods(self, component: str) -> list[dict[str, Any]]:
        """The pods of a component that are not deleted, the oldest first."""
        answer = self.space.cluster.get(
            f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=f"app.kubernetes.io/component={component}"
        )
        answer.raise_for_status()
        found = sorted(answer.json()["items"], key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def kill(self, name: str, *options: str) -> None:
        self.space.kubectl("delete", "pod", name, "--wait=false", *options)

    def driver_log(self) -> str:
        pods = [pod for pod in self.watch.pods(gone=True) if "driver" in pod["metadata"]["name"]]
        return "\n".join(self.watch.log(pod) for pod in pods)

    def describe(self) -> str:
        pods = self.watch.pods(gone=True)
        logs = [f"----- {pod['metadata']['name']}\n{self.watch.log(pod)[-3000:]}" for pod in pods]
        return "\n".join([self.space.kubectl("get", "pods,jobs,statefulsets", "-o", "wide"), *logs])


def write_allreduce_overlay(directory: Path, image: str) -> None:
    """A user's own directory: the image, and the script of the volume as the worker's command."""
    command = ["driver", "--hand-over", "python", f"{MOUNT}/train.py", MOUNT]
    path = "/spec/template/spec/containers/0/args"
    content = {
        "resources": [os.path.relpath((REPOSITORY / "k8s/allreduce").resolve(), directory.resolve())],
        "namespace": NAMESPACE,
        "images": [{"name": "REPO/paddle", "newName": image.rpartition(":")[0]}],
        "patches": [
            {
                "target": {"kind": "Job", "name": "paddle-driver"},
                "patch": json.dumps([{"op": "replace", "path": path, "value": command}]),
            }
        ],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(content))


@pytest.fixture
def allreduce(cluster: Cluster, image: Image, tmp_path: Path) -> Iterator[AllreduceRun]:
    volume, overlay = tmp_path / "volume", tmp_path / "overlay"
    for directory in (volume, overlay):
        directory.mkdir()
        directory.chmod(0o755)
    shutil.copy(allreduce_script.__file__ or "", volume / "train.py")
    give(volume)
    write_allreduce_overlay(overlay, image.reference)
    with namespace_with_volume(cluster, NAMESPACE, volume) as space:
        for mode in ("enforce", "warn"):
            cluster.kubectl(
                "label", "namespace", NAMESPACE, f"pod-security.kubernetes.io/{mode}=restricted", "--overwrite"
            )
        space.kubectl("create", "secret", "generic", "paddle-secret", "--from-literal=secret=a-secret-of-the-test")
        with PodWatch(space, selector="app.kubernetes.io/part-of=paddle") as watch:
            said = space.kubectl("create", "--validate=strict", "-k", overlay)
            assert "violate" not in said
            try:
                yield AllreduceRun(space, watch)
            finally:
                space.kubectl("delete", "statefulsets,jobs", "--all", "--timeout=120s")
                cluster.kubectl("delete", "priorityclass", "paddle-workers", "--ignore-not-found")


def test_workers_and_driver_of_an_allreduce_job_are_lost_and_come(allreduce: AllreduceRun) -> None:
    run = allreduce
    run.wait_for_size(3)
    first = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in run.pods("worker")}
    gone = run.pods("worker")[-1]["metadata"]["name"]
    run.kill(gone)
    run.wait("another pod", lambda: {pod["metadata"]["uid"] for pod in run.pods("worker")} - set(first.values()))
    run.wait_for_size(3)
    run.space.kubectl("scale", "statefulset", "paddle-worker", "--replicas=5")
    run.wait_for_size(5)
    (driver,) = run.pods("driver")
    run.kill(driver["metadata"]["name"], "--force", "--grace-period=0")
    old = driver["metadata"]["uid"]
    run.wait("another driver", lambda: [pod for pod in run.pods("driver") if pod["metadata"]["uid"] != old])
    run.wait("goes on", lambda: "workers of a driver that has ended" in run.driver_log())
    run.kill(run.pods("worker")[-1]["metadata"]["name"], "--force", "--grace-period=0")
    step = run.step()
    run.wait("further steps", lambda: run.step() > step + 100)
    run.space.kubectl("scale", "statefulset", "paddle-worker", "--replicas=2")
    run.wait_for_size(2)
    (run.space.volume / "stop").touch()
    run.wait("end", lambda: {"Complete", "Failed"} & run.space.conditions("paddle-driver").keys(), 300)
    assert "Complete" in run.space.conditions("paddle-driver"), run.describe()
    result = run.read("result")
    assert result["difference"] < 1e-9 and result["error"] < 0.06, result
    run.wait("end of the workers", lambda: not run.pods("worker"))
    replicas = run.space.kubectl("get", "statefulset", "paddle-worker", "-o", "jsonpath={.spec.replicas}")
    assert replicas == "0"
