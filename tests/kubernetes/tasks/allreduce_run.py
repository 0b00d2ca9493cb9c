"""A job of k8s/allreduce in a namespace with pod security `restricted`: commands and observations."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubernetes_cluster import REPOSITORY, Namespace
from pod_watch import PodWatch

NAMESPACE = "allreduce"
JOB = "paddle-allreduce"
MOUNT = f"/home/jobpath/{JOB}"


class AllreduceRun:
    """An all-reduce job in its namespace."""

    def __init__(self, space: Namespace, watch: PodWatch) -> None:
        self.space, self.watch = space, watch
        self.output = space.volume / JOB / "output"

    def read(self, name: str) -> dict[str, float]:
        path = self.output / name
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
        """Wait until a generation of `size` workers has done ten more steps."""
        self.wait(f"{size} workers", lambda: self.read("progress").get("size") == size)
        step = self.step()
        self.wait("ten steps", lambda: self.step() >= step + 10)
        assert self.read("progress")["size"] == size, self.describe()

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Return the pods of a component that are not deleted, the oldest first."""
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
    """Write the kustomization of a user: the image, and a script on the volume as the command of the workers."""
    command = ["driver", "--hand-over", "python", f"{MOUNT}/train.py", f"{MOUNT}/output"]
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
