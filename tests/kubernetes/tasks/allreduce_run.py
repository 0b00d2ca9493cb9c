"""A job of k8s/allreduce in a namespace with pod security `restricted`: commands and observations."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from chaos.allreduce.ledger import Ledger
from kubernetes_cluster import REPOSITORY, Namespace, host_volume
from pod_watch import PodWatch

JOB = "paddle-allreduce"
MOUNT = f"/home/jobpath/{JOB}"
LEDGER = "ledger"  # directory in the output
# of the job of torch: a step has as many samples with 1 to 6 workers, and an epoch has 32 steps
EPOCHS, SAMPLES, BATCH = 3, 1920, 60


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
            f"/api/v1/namespaces/{self.space.name}/pods", labelSelector=f"app.kubernetes.io/component={component}"
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


class TorchRun(AllreduceRun):
    """The same with the worker torch_script.py, which keeps a ledger of its commits."""

    def __init__(self, space: Namespace, watch: PodWatch) -> None:
        super().__init__(space, watch)
        self.ledger = Ledger(self.output / LEDGER)

    def step(self) -> float:
        self.ledger.look()
        return self.ledger.steps

    def newest(self) -> tuple[int, int]:
        """Return the newest generation with a commit, and its number of workers; 0 and 0 if there is none."""
        self.ledger.look()
        last = [worker.commits[-1] for worker in self.ledger.begun if worker.commits]
        return max(((one.generation, one.size) for one in last), default=(0, 0))

    def wait_for_generation(self, after: int, size: int) -> int:
        """Wait for a commit of a generation of `size` workers that is newer than `after`, and return the generation."""

        def newest() -> int:
            generation, its = self.newest()
            return generation if generation > after and its == size else 0

        return self.wait(f"{size} workers after generation {after}", newest)


def command_of_numpy() -> list[str]:
    """Return the command of a worker that runs allreduce_script.py."""
    return ["python", f"{MOUNT}/train.py", f"{MOUNT}/output"]


def command_of_torch(pace: float, hurry: str) -> list[str]:
    """Return the command of a worker that runs torch_script.py.

    pace: seconds of a step.  hurry: a file in the output; while it exists, a step takes no longer than it needs.
    """
    settings = {
        "EPOCHS": EPOCHS, "SAMPLES": SAMPLES, "BATCH": BATCH, "PACE": pace,
        "HURRY": f"{MOUNT}/output/{hurry}", "LEDGER": f"{MOUNT}/output/{LEDGER}",
    }  # fmt: skip
    given = [f"CHAOS_{name}={value}" for name, value in settings.items()]
    folders = "/opt/paddle/examples/allreduce/torch", REPOSITORY / "tests/chaos/allreduce"
    script = REPOSITORY / "tests/kubernetes/tasks/torch_script.py"
    return ["env", f"PYTHONPATH={':'.join(map(str, folders))}", *given, sys.executable, str(script), str(EPOCHS)]


def find_torch() -> list[Path]:
    """Return the directories of this machine that a pod needs, at the same paths, to run this Python with its torch.

    The image has no torch, and its Python may be another one. Empty: this Python has no torch.
    """
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return []
    needed = [REPOSITORY, Path(sys.base_prefix), Path(found.origin).parents[1]]
    return [one for one in needed if not any(other in one.parents for other in needed)]


def machine_volumes(directories: Iterable[Path], namespace: str) -> list[dict[str, Any]]:
    """Return the volumes with these directories of this machine; `machine_claims` returns their claims."""
    return [
        host_volume(f"machine-{number}-{namespace}", namespace, f"machine-{number}", directory, mode="ReadOnlyMany")
        for number, directory in enumerate(directories)
    ]


def machine_claims(number: int) -> list[dict[str, Any]]:
    """Return the first claims of `machine_volumes`."""
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadOnlyMany"], "storageClassName": "", "resources": resources}
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return [{**kind, "metadata": {"name": f"machine-{one}"}, "spec": spec} for one in range(number)]


def machine_patch(directories: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the patch by which workers see these directories of this machine, at the same paths."""
    patch = []
    for number, directory in enumerate(directories):
        name = f"machine-{number}"
        volume = {"name": name, "persistentVolumeClaim": {"claimName": name, "readOnly": True}}
        mount = {"name": name, "mountPath": str(directory), "readOnly": True}
        patch += [
            {"op": "add", "path": "/spec/template/spec/volumes/-", "value": volume},
            {"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts/-", "value": mount},
        ]
    return patch


def write_allreduce_overlay(
    directory: Path, image: str, namespace: str, command: list[str], machine: Sequence[Path]
) -> None:
    """Write the kustomization of a user: the image, and the command of a worker.

    machine: directories of this machine that the workers see.
    """
    path = "/spec/template/spec/containers/0/args"
    driver = [{"op": "replace", "path": path, "value": ["driver", "--hand-over", *command]}]
    patches = [("Job", "paddle-driver", driver), ("StatefulSet", "paddle-worker", machine_patch(machine))]
    claims = {"apiVersion": "v1", "kind": "List", "items": machine_claims(len(machine))}
    (directory / "claims.yaml").write_text(json.dumps(claims))
    base = os.path.relpath((REPOSITORY / "k8s/allreduce").resolve(), directory.resolve())
    content = {
        "resources": [base, *["claims.yaml"][: len(machine)]],
        "namespace": namespace,
        "images": [{"name": "REPO/paddle", "newName": image.rpartition(":")[0]}],
        "patches": [
            {"target": {"kind": kind, "name": name}, "patch": json.dumps(patch)}
            for kind, name, patch in patches
            if patch
        ],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(content))
