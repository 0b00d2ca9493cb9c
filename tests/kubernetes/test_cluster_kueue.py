"""Kueue with its controller: a Job waits without a pod until the quota has room for all of its pods, then runs."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from custom_kinds import DIRECTORY, custom_kinds
from kubernetes_cluster import REPOSITORY, Cluster, Image, Namespace, give, namespace_with_volume, run

pytestmark = pytest.mark.kueue
JOB = "paddle-cluster-job"
KINDS = (
    "workloads",
    "clusterqueues",
    "localqueues",
    "resourceflavors",
    "admissionchecks",
    "workloadpriorityclasses",
    "cohorts",
)
# These features are off, because they need kinds of other projects, or a service that this cluster does not route.
GATES = "MultiKueue=false,ProvisioningACC=false,VisibilityOnDemand=false"


@contextlib.contextmanager
def controller(cluster: Cluster, directory: Path) -> Iterator[None]:
    """Run Kueue's controller beside the cluster, without webhooks; our files have the defaults that webhooks set."""
    run(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
        *("-keyout", directory / "tls.key", "-out", directory / "tls.crt"),
    )
    settings = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "kind": "Configuration",
        "namespace": "kube-system",
        "health": {"healthProbeBindAddress": "127.0.0.1:0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {
            "host": "127.0.0.1",
            "port": 19443 + int(os.environ.get("CLUSTER_NUMBER", 0)),
            "certDir": str(directory),
        },
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job"]},
    }
    (directory / "config.yaml").write_text(json.dumps(settings))
    command = [DIRECTORY / "bin/kueue", f"--config={directory / 'config.yaml'}", f"--feature-gates={GATES}"]
    with (directory / "log").open("w") as log, subprocess.Popen(command, env=cluster.env, stderr=log) as program:
        try:
            yield
            assert program.poll() is None, (directory / "log").read_text()[-3000:]
        finally:
            program.kill()


@pytest.fixture
def queue(cluster: Cluster, tmp_path: Path) -> Iterator[Namespace]:
    """A namespace with the queues of queues.yaml, whose quota of one CPU is less than three pods request."""
    volume = tmp_path / "volume"
    volume.mkdir()
    give(volume)
    with (
        custom_kinds(cluster, *KINDS),
        namespace_with_volume(cluster, "queue", volume) as space,
        controller(cluster, tmp_path),
    ):
        for document in yaml.safe_load_all((REPOSITORY / "k8s/components/kueue/queues.yaml").read_text()):
            if document["kind"] == "ClusterQueue":
                document["spec"] = with_cpus(document["spec"], 1)
            space.create(document)
        yield space
        space.kubectl("delete", "-f", REPOSITORY / "k8s/components/kueue/queues.yaml", "--wait=false")
        space.kubectl("delete", "jobs", "--all", "--timeout=60s")


def with_cpus(spec: dict[str, Any], cpus: int) -> dict[str, Any]:
    (group,) = spec["resourceGroups"]
    (flavor,) = group["flavors"]
    resources = [{**one, "nominalQuota": cpus} if one["name"] == "cpu" else one for one in flavor["resources"]]
    return {**spec, "resourceGroups": [{**group, "flavors": [{**flavor, "resources": resources}]}]}


def why_waiting(space: Namespace) -> str:
    """Return the messages of Kueue about the workloads that have no quota."""
    found = json.loads(space.kubectl("get", "workloads", "-o", "json"))["items"]
    conditions = [condition for one in found for condition in one.get("status", {}).get("conditions", [])]
    return " ".join(one["message"] for one in conditions if (one["type"], one["status"]) == ("QuotaReserved", "False"))


def test_a_job_starts_when_there_is_room_for_all_of_its_pods(queue: Namespace, image: Image, tmp_path: Path) -> None:
    directory = tmp_path / "own"
    directory.mkdir()
    k8s = os.path.relpath(REPOSITORY / "k8s", directory.resolve())
    passes = [{"name": "trainer", "env": [{"name": "NUM_PASSES", "value": "2"}]}]
    patch = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": JOB}}
    patch["spec"] = {"template": {"spec": {"containers": passes}}}
    own = {
        "resources": [k8s],
        "components": [f"{k8s}/components/kueue"],
        "images": [{"name": "REPO/paddle", "newName": image.reference.rpartition(":")[0]}],
        "patches": [{"patch": json.dumps(patch)}],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(own))
    queue.kubectl("create", "-k", directory, "-l", "app.kubernetes.io/component in (access, volume, data)")
    queue.wait_for_success("paddle-data")  # it requests 0.1 CPU, which the quota allows
    queue.kubectl("create", "-k", directory, "-l", "app.kubernetes.io/component=training")
    queue.wait("word of Kueue", lambda: "insufficient" in why_waiting(queue), job=JOB)
    assert queue.job(JOB)["spec"]["suspend"] is True
    assert queue.pods(JOB) == []

    spec = json.loads(queue.kubectl("get", "clusterqueue", "paddle", "-o", "json"))["spec"]
    queue.kubectl("patch", "clusterqueue", "paddle", "--type=merge", "-p", json.dumps({"spec": with_cpus(spec, 2)}))
    queue.wait_for_success(JOB)
    assert len(queue.pods(JOB)) == 3
    assert (queue.volume / JOB / "output/pass-00001/done").is_file()
