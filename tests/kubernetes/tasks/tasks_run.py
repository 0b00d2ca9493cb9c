"""A task job of k8s/tasks in a namespace with pod security `restricted`: commands, and checks of its end."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import chaos.tasks
import pytest
import requests
import requests.adapters
from chaos.tasks import verdict
from chaos.tasks.job import stage
from chaos.tasks.model import measure_error
from chaos.tasks.plan import ElasticTrial
from kubernetes_cluster import (
    REPOSITORY,
    Cluster,
    Namespace,
    give,
    host_volume,
    make_volume_before_its_claim,
    namespace_with_volume,
    run,
)
from pod_watch import PodWatch

from paddle_base.recordio.writing import RecordIOWriter

FILES, PASSES = 36, 12  # files (tasks) of a pass, and passes
HIGHEST_ERROR = 0.065  # share of wrong test digits; the static job of tests/chaos/tasks has 0.048
PACE_S = 0.004  # seconds of a sample; a pass takes one trainer 16 s
KINDS = ("master", "pserver", "trainer")
NAME = "paddle-elastic"
END_S = 240.0

Start = Callable[..., "ElasticRun"]
StartProgram = Callable[..., tuple["ElasticRun", int]]


class ElasticRun:
    """A task job in its namespace.

    work: a directory of this machine with config, provider and data, by which the model is tested.
    """

    def __init__(self, space: Namespace, work: Path, watch: PodWatch, passes: int) -> None:
        self.space, self.work, self.watch, self.passes = space, work, watch, passes
        self.output = space.volume / NAME / "output"

    def record(self) -> dict[str, Any]:
        """Return the master's record of the job; empty before the master has written it."""
        return verdict.read_account(self.output)

    def share(self) -> float:
        """Return the share of the job's tasks that are done."""
        record = self.record()
        return (record["pass"] * FILES + record["done"]) / (FILES * self.passes) if record else 0.0

    def wait(self, what: str, condition: Callable[[], Any], seconds: float = 120) -> Any:
        """Wait until the condition holds; fail if the job does not advance for `seconds`."""
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
        """Return the output of every pod, also of deleted ones."""
        return {pod["metadata"]["name"]: self.watch.log(pod) for pod in self.watch.pods(gone=True)}

    def wait_for_share(self, share: float) -> None:
        """Wait until this share of the job is done."""
        self.wait(f"{share:.0%} of the job", lambda: self.share() >= share)

    def pods(self, kind: str) -> list[dict[str, Any]]:
        """Return the pods of a kind that are not deleted, the oldest first."""
        path = f"/api/v1/namespaces/{self.space.name}/pods"
        answer = self.space.cluster.get(path, labelSelector=f"app.kubernetes.io/component={kind}")
        answer.raise_for_status()
        found = sorted(answer.json()["items"], key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def running(self, kind: str) -> list[str]:
        """Return the names of the running pods of a kind."""
        return [pod["metadata"]["name"] for pod in self.pods(kind) if pod["status"]["phase"] == "Running"]

    def leader(self) -> str:
        """Return the name of the pod whose master leads."""
        serving = [pod for pod in self.running("master") if " serving on " in self.space.log(pod)]
        return serving[0] if serving else ""

    def delete(self, pod: str, *options: str) -> None:
        """Delete a pod with kubectl."""
        self.space.kubectl("delete", "pod", pod, "--wait=false", *options)

    def kill(self, pod: str) -> None:
        """Delete a pod by force, without a SIGTERM to its programs."""
        self.delete(pod, "--force", "--grace-period=0")

    def serve(self, replicas: int) -> None:
        """Scale a service beside the job, and wait for its pods; each pod takes more than half of a node."""
        if not self.space.kubectl("get", "deployment", "service", "--ignore-not-found"):
            self.space.create(service_deployment(self.space.cluster.registry))
        self.space.kubectl("scale", "deployment", "service", f"--replicas={replicas}")
        self.wait(f"{replicas} pods of the service", lambda: len(self.running("service")) == replicas)

    def scale(self, trainers: int) -> None:
        """Change the number of trainers as docs/tasks.md says, and wait until the job has this number."""
        patch = json.dumps({"spec": {"parallelism": trainers}})
        self.space.kubectl("patch", "job", "paddle-trainer", "--patch", patch)
        self.wait(f"{trainers} trainers", lambda: len(self.running("trainer")) == trainers)

    # ----- checks of the end

    def check(self) -> None:
        """Wait until all programs have ended, and check the results."""
        self.check_end(self.samples())
        error = measure_error(self.work, self.output / f"pass-{self.passes - 1:05d}", ElasticTrial("cluster"))
        assert error is not None and error <= HIGHEST_ERROR

    def samples(self) -> int:
        """Return the number of samples of a pass."""
        return sum(verdict.count_lines(self.work / "data").values())

    def check_end(self, samples: int) -> None:
        """Wait until all programs have ended, and check the account: each pass has trained this number of samples."""
        ended = {"Complete", "Failed"}
        self.wait("end of the trainers", lambda: ended & self.space.conditions("paddle-trainer").keys(), END_S)
        assert "Complete" in self.space.conditions("paddle-trainer"), self.describe()
        for kind, target in (("pserver", "statefulset/paddle-pserver"), ("master", "deployment/paddle-master")):
            self.wait(f"end of {kind}", lambda kind=kind: not self.pods(kind))
            assert self.space.kubectl("get", target, "-o", "jsonpath={.spec.replicas}") == "0"
        assert self.etcd_says("job/end")["phase"] == "done"
        faults = verdict.check_account(self.record(), FILES, self.passes, samples)
        faults += verdict.check_logs(self.logs())
        assert not faults, f"{faults}\n{self.record()}"

    def etcd_says(self, key: str) -> dict[str, Any]:
        """Return the value of a key of the job, which the pod of etcd returns only to who has a certificate."""
        (pod,) = self.pods("etcd")
        encoded = base64.b64encode(f"/{NAME}/{key}".encode()).decode()
        url = f"https://{pod['status']['podIP']}:2379/v3/kv/range"
        secret = json.loads(self.space.kubectl("get", "secret", "paddle-etcd-client", "-o", "json"))["data"]
        for name, content in secret.items():
            (self.work / name).write_bytes(base64.b64decode(content))
        with requests.Session() as session:
            session.trust_env, session.verify = False, str(self.work / "ca.crt")
            session.mount("https://", EtcdAdapter())
            with pytest.raises(requests.ConnectionError):
                session.post(url, json={"key": encoded}, timeout=30)
            session.cert = (str(self.work / "tls.crt"), str(self.work / "tls.key"))
            (found,) = session.post(url, json={"key": encoded}, timeout=30).json()["kvs"]
        return json.loads(base64.b64decode(found["value"]))


class EtcdAdapter(requests.adapters.HTTPAdapter):
    """Reaches etcd by an address, and expects the name that its certificate has."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options, assert_hostname="paddle-etcd")


def make_volume(volume: Path, work: Path, mode: str) -> None:
    """Put the digits onto a volume as the data job does, and a config that trains slowly."""
    command = [
        sys.executable,
        "-m",
        "paddle",
        "prepare",
        "--split_count=1",
        f"--shard_files={FILES}",
        "--test_fraction=1/3",
    ]
    where = [f"--out_dir={volume / NAME}", f"--examples_dir={REPOSITORY / 'examples'}"]
    subprocess.run([*command, *where], cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    stage(work, volume / NAME / "0/data")
    paced = volume / NAME / "paced"
    paced.mkdir()
    source = Path(chaos.tasks.__file__).parent
    text = (source / "tasks_config.py").read_text()
    text, edits = re.subn(r'("mode", str, )"async"', rf'\1"{mode}"', text)
    text, more = re.subn(r'("pace", float, )0\.0', rf"\g<1>{PACE_S}", text)
    assert (edits, more) == (1, 1)
    (paced / "trainer_config.py").write_text(text)
    shutil.copy(source / "tasks_provider.py", paced)
    (volume / "etcd").mkdir()
    give(volume)


def make_program_volume(volume: Path, program: str) -> int:
    """Put a program of paddle.v2 onto a volume, and the digits as RecordIO files. Return the number of samples.

    program: its text. It finds the samples, lists of the pixels and the label, in data/part-*, and others in
    data/test.txt.
    """
    rows = gzip.decompress((REPOSITORY / "examples/digits/digits.csv.gz").read_bytes()).decode().splitlines()
    count = len(rows) * 4 // 5 // FILES * FILES
    samples = [(list(map(int, pixels)), int(label)) for *pixels, label in (row.split(",") for row in rows[:count])]
    data = volume / NAME / "0/data"
    data.mkdir(parents=True)
    for number in range(FILES):
        with RecordIOWriter(data / f"part-{number:05d}") as file:
            for sample in samples[number::FILES]:
                file.write(pickle.dumps(sample, 0))
    (data / "test.txt").write_text("\n".join(rows[count:]))
    (volume / NAME / "program").mkdir()
    (volume / NAME / "program/train.py").write_text(program)
    (volume / "etcd").mkdir()
    give(volume)
    return count


def write_overlay(
    directory: Path,
    namespace: str,
    images: tuple[str, str],
    trainers: int,
    settings: Mapping[str, object],
    *components: str,
) -> None:
    """Write the kustomization of a user: images, settings, number of trainers, but no data job (the data exist).

    images: those of the programs and of etcd. components: those of k8s/tasks/components.
    """
    image, etcd = images
    base = REPOSITORY / "k8s/tasks"
    # the data job is left out, because the volume has the data already
    no_data_job = "$patch: delete\napiVersion: batch/v1\nkind: Job\nmetadata: {name: paddle-elastic-data}\n"
    content = {
        "resources": [os.path.relpath(base.resolve(), directory.resolve())],
        "components": [
            os.path.relpath((base / "components" / one).resolve(), directory.resolve()) for one in components
        ],
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
            *([] if "program" in components else [{"patch": no_data_job}]),
        ],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(content))


def service_deployment(registry: str) -> dict[str, Any]:
    """Return the Deployment of a service that takes room and does nothing."""
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


def make_secrets(space: Namespace) -> None:
    """Make the Secrets of a task job, by the command of docs/tasks.md."""
    made = run(REPOSITORY / "k8s/tasks/make-secrets")
    space.kubectl("create", "-f", "-", stdin=made)


@contextlib.contextmanager
def restricted_namespace(cluster: Cluster, name: str, volume: Path) -> Iterator[Namespace]:
    """Make a namespace with the volumes of a job, in which pods must be `restricted`."""
    with namespace_with_volume(cluster, name, volume, secret=False) as space:
        for mode in ("enforce", "warn"):
            cluster.kubectl("label", "namespace", name, f"pod-security.kubernetes.io/{mode}=restricted", "--overwrite")
        etcd = host_volume(
            f"etcd-{name}", name, "data-paddle-etcd-0", volume / "etcd", size="4Gi", mode="ReadWriteOnce"
        )
        make_volume_before_its_claim(cluster, etcd)
        try:
            yield space
        finally:
            space.kubectl("delete", "statefulsets,deployments,jobs", "--all", "--timeout=120s")
            space.kubectl("delete", "pvc", "--all", "--timeout=60s")
            cluster.kubectl("delete", "pv", f"etcd-{name}", "--timeout=60s")
            cluster.kubectl("delete", "priorityclass", "paddle-trainers", "--ignore-not-found")
