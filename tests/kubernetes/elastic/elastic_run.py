"""An elastic job of k8s/elastic in a namespace with pod security `restricted`: what is done to it, and its end."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import chaos.elastic
import requests
from chaos.elastic import verdict
from chaos.elastic.job import stage
from chaos.elastic.model import measure_error
from chaos.elastic.plan import ElasticTrial
from kubernetes_cluster import REPOSITORY, Cluster, Namespace, give, namespace_with_volume
from pod_watch import PodWatch

FILES, PASSES = 36, 12  # tasks of a pass
HIGHEST_ERROR = 0.065  # of the digits; the static job of tests/chaos/elastic has 0.048
PACE_S = 0.004  # of a sample: 16 s a pass for one trainer
KINDS = ("master", "pserver", "trainer")
NAME = "paddle-elastic"
END_S = 240.0

Start = Callable[..., "ElasticRun"]


class ElasticRun:
    """A job in its namespace.

    work: config, provider and data on this machine, for a test of the model.
    """

    def __init__(self, space: Namespace, work: Path, watch: PodWatch, passes: int) -> None:
        self.space, self.work, self.watch, self.passes = space, work, watch, passes
        self.output = space.volume / NAME / "output"

    def record(self) -> dict[str, Any]:
        """What the master says of the job; empty before the first time."""
        return verdict.read_account(self.output)

    def share(self) -> float:
        """The share of the job's tasks that are done."""
        record = self.record()
        return (record["pass"] * FILES + record["done"]) / (FILES * self.passes) if record else 0.0

    def wait(self, what: str, condition: Callable[[], Any], seconds: float = 120) -> Any:
        """Wait for a condition; the deadline comes so long after the job last advanced."""
        share, end = -1.0, time.monotonic() + seconds
        while not (found := condition()):
            if (now := self.share()) != share:
                share, end = now, time.monotonic() + seconds
            if time.monotonic() > end:
                raise AssertionError(f"no {what}; {share:.0%} is done\n{self.describe()}")
            time.sleep(0.3)
        return found

    def describe(self) -> str:
        logs = [f"----- {name}\n{log[-2000:]}" for name, log in self.logs().items()]
        return "\n".join([self.space.describe("paddle-trainer"), *logs])

    def logs(self) -> dict[str, str]:
        """What every pod that there was has printed."""
        return {pod["metadata"]["name"]: self.watch.log(pod) for pod in self.watch.pods(gone=True)}

    def wait_for_share(self, share: float) -> None:
        """Wait until so much of the job is done."""
        self.wait(f"{share:.0%} of the job", lambda: self.share() >= share)

    def pods(self, kind: str) -> list[dict[str, Any]]:
        """The pods of a kind that are not deleted, the oldest first."""
        path = f"/api/v1/namespaces/{self.space.name}/pods"
        answer = self.space.cluster.get(path, labelSelector=f"app.kubernetes.io/component={kind}")
        answer.raise_for_status()
        found = sorted(answer.json()["items"], key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def running(self, kind: str) -> list[str]:
        """The names of those that run."""
        return [pod["metadata"]["name"] for pod in self.pods(kind) if pod["status"]["phase"] == "Running"]

    def leader(self) -> str:
        """The name of the master's pod that serves."""
        serving = [pod for pod in self.running("master") if " serving on " in self.space.log(pod)]
        return serving[0] if serving else ""

    def delete(self, pod: str, *options: str) -> None:
        """kubectl delete pod."""
        self.space.kubectl("delete", "pod", pod, "--wait=false", *options)

    def kill(self, pod: str) -> None:
        """The same without a word to its programs."""
        self.delete(pod, "--force", "--grace-period=0")

    def serve(self, replicas: int) -> None:
        """A service beside the job, each pod of which takes more than half of a node; wait for so many of them."""
        if not self.space.kubectl("get", "deployment", "service", "--ignore-not-found"):
            self.space.create(service_deployment(self.space.cluster.registry))
        self.space.kubectl("scale", "deployment", "service", f"--replicas={replicas}")
        self.wait(f"{replicas} pods of the service", lambda: len(self.running("service")) == replicas)

    def scale(self, trainers: int) -> None:
        """Another number of trainers, as docs/elastic.md changes it, and wait until there are so many."""
        patch = json.dumps({"spec": {"parallelism": trainers}})
        self.space.kubectl("patch", "job", "paddle-trainer", "--patch", patch)
        self.wait(f"{trainers} trainers", lambda: len(self.running("trainer")) == trainers)

    # ----- the end

    def check(self) -> None:
        """Wait for the end of everything, and judge."""
        ended = {"Complete", "Failed"}
        self.wait("end of the trainers", lambda: ended & self.space.conditions("paddle-trainer").keys(), END_S)
        assert "Complete" in self.space.conditions("paddle-trainer"), self.describe()
        for kind, target in (("pserver", "statefulset/paddle-pserver"), ("master", "deployment/paddle-master")):
            self.wait(f"end of {kind}", lambda kind=kind: not self.pods(kind))
            assert self.space.kubectl("get", target, "-o", "jsonpath={.spec.replicas}") == "0"
        assert self.etcd_says("job/end")["phase"] == "done"
        faults = verdict.check_account(self.record(), FILES, self.passes, self.samples())
        faults += verdict.check_logs(self.logs())
        assert not faults, f"{faults}\n{self.record()}"
        error = measure_error(self.work, self.output / f"pass-{self.passes - 1:05d}", ElasticTrial("cluster"))
        assert error is not None and error <= HIGHEST_ERROR

    def samples(self) -> int:
        return sum(verdict.count_lines(self.work / "data").values())

    def etcd_says(self, key: str) -> dict[str, Any]:
        """The value of a key of the job, asked of etcd's pod."""
        (pod,) = self.pods("etcd")
        encoded = base64.b64encode(f"/{NAME}/{key}".encode()).decode()
        url = f"http://{pod['status']['podIP']}:2379/v3/kv/range"
        (found,) = requests.post(url, json={"key": encoded}, timeout=30).json()["kvs"]
        return json.loads(base64.b64decode(found["value"]))


def make_volume(volume: Path, work: Path, mode: str) -> None:
    """Put the digits and a config that takes its time onto a volume, as the data job puts digits there."""
    command = [sys.executable, "-m", "prepare", "--split_count=1", f"--shard_files={FILES}", "--test_fraction=1/3"]
    where = [f"--out_dir={volume / NAME}", f"--examples_dir={REPOSITORY / 'examples'}"]
    subprocess.run([*command, *where], cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    stage(work, volume / NAME / "0/data")
    paced = volume / NAME / "paced"
    paced.mkdir()
    source = Path(chaos.elastic.__file__).parent
    text = (source / "elastic_config.py").read_text()
    text, edits = re.subn(r'("mode", str, )"async"', rf'\1"{mode}"', text)
    text, more = re.subn(r'("pace", float, )0\.0', rf"\g<1>{PACE_S}", text)
    assert (edits, more) == (1, 1)
    (paced / "trainer_config.py").write_text(text)
    shutil.copy(source / "elastic_provider.py", paced)
    (volume / "etcd").mkdir()
    give(volume)


def write_overlay(
    directory: Path, namespace: str, image: str, etcd: str, trainers: int, settings: Mapping[str, object]
) -> None:
    """A user's own directory: images, settings, the number of trainers; without the data job, since there is data."""
    content = {
        "resources": [os.path.relpath((REPOSITORY / "k8s/elastic").resolve(), directory.resolve())],
        "namespace": namespace,
        "images": [
            {"name": "REPO/paddle", "newName": image.rpartition(":")[0]},
            {"name": "REPO/etcd", "newName": etcd.rpartition(":")[0], "newTag": etcd.rpartition(":")[2]},
        ],
        "configMapGenerator": [
            {"name": NAME, "behavior": "merge", "literals": [f"{name}={value}" for name, value in settings.items()]}
        ],
        "generatorOptions": {"disableNameSuffixHash": True},
        "patches": [
            {
                "target": {"kind": "Job", "name": "paddle-trainer"},
                "patch": json.dumps([{"op": "replace", "path": "/spec/parallelism", "value": trainers}]),
            },
            # the volume has its data
            {
                "patch": "$patch: delete\napiVersion: batch/v1\nkind: Job\nmetadata: {name: paddle-elastic-data}\n",
            },
        ],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(content))


def service_deployment(registry: str) -> dict[str, Any]:
    """A service that needs room; what it does is nothing."""
    labels = {"app.kubernetes.io/component": "service"}
    container = {
        "name": "service",
        "image": f"{registry}/pause:1",
        "resources": {"requests": {"cpu": "1200m"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    pod = {"containers": [container], "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "service"}, "spec": spec}


def etcd_volume(namespace: str, directory: Path) -> dict[str, Any]:
    """The volume of etcd's claim, which a cluster with a StorageClass would make."""
    spec = {
        "capacity": {"storage": "4Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": namespace, "name": "data-paddle-etcd-0"},
        "hostPath": {"path": str(directory), "type": "Directory"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"etcd-{namespace}"}, "spec": spec}


@contextlib.contextmanager
def restricted_namespace(cluster: Cluster, name: str, volume: Path) -> Iterator[Namespace]:
    """A namespace in which pods must be `restricted`, with the volumes of a job."""
    with namespace_with_volume(cluster, name, volume) as space:
        for mode in ("enforce", "warn"):
            cluster.kubectl("label", "namespace", name, f"pod-security.kubernetes.io/{mode}=restricted", "--overwrite")
        cluster.kubectl("delete", "pv", f"etcd-{name}", "--ignore-not-found")
        space.create(etcd_volume(name, volume / "etcd"))
        # a claim that comes before its volume is known may wait minutes for the next look
        cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Available", f"pv/etcd-{name}", "--timeout=60s")
        try:
            yield space
        finally:
            space.kubectl("delete", "statefulsets,deployments,jobs", "--all", "--timeout=120s")
            space.kubectl("delete", "pvc", "--all", "--timeout=60s")
            cluster.kubectl("delete", "pv", f"etcd-{name}", "--timeout=60s")
            cluster.kubectl("delete", "priorityclass", "paddle-trainers", "--ignore-not-found")
