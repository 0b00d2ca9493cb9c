"""What each kind of pod sees of the shared volume: its own job's directory, in which it changes only its outputs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

K8S = Path(__file__).parents[3] / "k8s"
WHOLE = {"name": "jobpath", "mountPath": "/home/jobpath"}


def pods() -> Iterator[Any]:
    """The file, the names of the job and the specification of every pod that mounts the volume."""
    for folder, job in (
        (K8S, "paddle-cluster-job"),
        (K8S / "tasks", "paddle-elastic"),
        (K8S / "allreduce", "paddle-allreduce"),
    ):
        for path in sorted(folder.glob("*.yaml")):
            for each in yaml.safe_load_all(path.read_text()):
                pod = each.get("spec", {}).get("template", {}).get("spec", {})
                if any("persistentVolumeClaim" in volume for volume in pod.get("volumes", [])):
                    yield pytest.param(job, pod, id=f"{folder.name}/{path.name}")


POD = pytest.mark.parametrize(("job", "pod"), list(pods()))


def mounts(container: dict[str, Any]) -> list[dict[str, Any]]:
    return [mount for mount in container["volumeMounts"] if mount["name"] == "jobpath"]


def test_all_kinds_of_pods_are_looked_at() -> None:
    assert len(list(pods())) == 8


@POD
def test_a_pod_changes_only_what_it_makes(job: str, pod: dict[str, Any]) -> None:
    """Every job could rewrite the config of every other job, which is Python code."""
    (own,) = pod["containers"]
    (maker,) = pod["initContainers"]
    made = [name for name in maker["args"][1:] if name != "--new"]
    writable = {mount["subPath"] for mount in mounts(own) if not mount.get("readOnly")}
    is_data_job = own["name"] == "paddle-data"
    assert writable == ({job} if is_data_job else {f"{job}/{name}" for name in made})
    for mount in mounts(own):
        if "subPath" in mount:
            assert mount["mountPath"] == f"{WHOLE['mountPath']}/{mount['subPath']}"
            assert mount["subPath"].split("/")[0] == job
        else:  # DATA_PATH may be anywhere
            assert is_data_job and mount == {**WHOLE, "readOnly": True}


@POD
def test_only_our_own_script_gets_the_whole_volume(job: str, pod: dict[str, Any]) -> None:
    (maker,) = pod["initContainers"]
    assert maker["volumeMounts"] == [WHOLE] and maker["args"][0] == "directories" and "command" not in maker
    assert maker["image"] == pod["containers"][0]["image"]
    assert maker["securityContext"] == pod["containers"][0]["securityContext"]
    assert "serviceAccountToken" not in str(pod["volumes"])
    for container in (maker, pod["containers"][0]):
        assert {"cpu", "memory", "ephemeral-storage"} <= container["resources"]["requests"].keys()


@pytest.mark.parametrize("folder", ["tasks", "allreduce"])
def test_another_name_of_the_job_reaches_every_mount(folder: str) -> None:
    kustomization = yaml.safe_load((K8S / folder / "kustomization.yaml").read_text())
    targets = [
        (target["select"]["name"], path.rpartition(".")[2])
        for one in kustomization["replacements"]
        if one["source"]["fieldPath"] == "data.JOB_NAME"
        for target in one["targets"]
        for path in target["fieldPaths"]
        if "volumeMounts" in path
    ]
    documents = [each for path in (K8S / folder).glob("*.yaml") for each in yaml.safe_load_all(path.read_text())]
    workloads = [
        each["metadata"]["name"] for each in documents if "jobpath" in str(each.get("spec", {}).get("template"))
    ]
    assert sorted(targets) == sorted((name, field) for name in workloads for field in ("mountPath", "subPath"))


def test_the_claim_outlives_the_chart() -> None:
    paths = ["pvc.yaml", "tasks/volume.yaml", "allreduce/volume.yaml", "components/restricted/namespace.yaml"]
    for path in [*paths, "components/nfs/pv-nfs.yaml", "components/single-node/pv-host-path.yaml"]:
        metadata = yaml.safe_load((K8S / path).read_text())["metadata"]
        assert metadata["annotations"]["helm.sh/resource-policy"] == "keep", path
        assert metadata["labels"]["app.kubernetes.io/component"] == "volume", path
