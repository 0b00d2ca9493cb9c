"""The API server accepts each component of k8s/ without unknown fields, and a job runs with six of them."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from custom_kinds import custom_kinds
from kubernetes_cluster import REPOSITORY, Cluster, Image, Namespace, copy_manifests, give, make_secret

COMPONENTS = sorted(path.name for path in (REPOSITORY / "k8s/components").iterdir())
ELASTIC_COMPONENTS = sorted(path.name for path in (REPOSITORY / "k8s/tasks/components").iterdir())
JOB = "paddle-cluster-job"
NAMESPACE = "manifests"
LABEL = "app.kubernetes.io/component"
STEPS = (f"{LABEL} in (access, volume)", f"{LABEL}=data", f"{LABEL}=training")  # docs/number-of-nodes.md


@pytest.fixture(scope="module")
def definitions(cluster: Cluster) -> Iterator[None]:
    """Define the kinds of Kueue, Volcano and the Prometheus Operator, without running their controllers."""
    with custom_kinds(cluster, "podgroups", "podmonitors", "resourceflavors", "clusterqueues", "localqueues"):
        cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")  # of an earlier run
        cluster.kubectl("create", "namespace", NAMESPACE)
        yield


def chosen(directory: Path, *components: str, nodes: int = 3) -> Path:
    """Make a directory with a copy of k8s/ in which components and number of nodes are edited as the docs say.

    The kustomization of the directory itself suspends the Jobs, because this test is not meant to run them.
    """
    file = copy_manifests(directory, *components) / "kustomization.yaml"
    file.write_text(file.read_text().replace("count=3", f"count={nodes}"))
    suspended = [{"op": "add", "path": "/spec/suspend", "value": True}]
    above: dict[str, Any] = {"resources": ["k8s"]}
    above["patches"] = [{"target": {"kind": "Job"}, "patch": json.dumps(suspended)}]
    if "restricted" not in components:  # the component `restricted` has its own namespace
        above["namespace"] = NAMESPACE
    (directory / "kustomization.yaml").write_text(json.dumps(above))
    return directory


def create(cluster: Cluster, directory: Path, *, steps: tuple[str, ...] = STEPS) -> None:
    for step in steps:
        cluster.kubectl("create", "--validate=strict", "-k", directory, "-l", step)


def kept(cluster: Cluster, directory: Path) -> list[dict[str, Any]]:
    """Return the objects of a directory as the API server has them now."""
    return json.loads(cluster.kubectl("get", "-k", directory, "-o", "json"))["items"]


def one(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return found


@pytest.fixture
def clean(cluster: Cluster, definitions: None, tmp_path: Path) -> Iterator[Path]:
    """Return a directory; after the test, the objects of its kustomization are deleted from the cluster."""
    yield tmp_path
    cluster.kubectl("delete", "--ignore-not-found", "--timeout=120s", "-k", tmp_path)


@pytest.mark.parametrize("component", COMPONENTS)
def test_each_component_is_accepted_in_the_documented_steps(cluster: Cluster, clean: Path, component: str) -> None:
    directory = chosen(clean, component)
    create(cluster, directory)
    wanted = list(yaml.safe_load_all(cluster.kubectl("kustomize", directory)))
    objects = kept(cluster, directory)
    assert len(objects) == len(wanted) and one(objects, "Job", JOB)
    if component in ("nfs", "single-node"):
        cluster.kubectl("-n", NAMESPACE, "wait", "--for=jsonpath={.status.phase}=Bound", "pvc/mfs", "--timeout=60s")


def test_all_together_agree_on_the_number_of_nodes(cluster: Cluster, clean: Path) -> None:
    directory = chosen(clean, *(name for name in COMPONENTS if name != "single-node"), nodes=5)
    create(cluster, directory)
    objects = kept(cluster, directory)
    job = one(objects, "Job", JOB)
    assert job["spec"]["parallelism"] == job["spec"]["completions"] == 5
    assert one(objects, "PodGroup", JOB)["spec"]["minMember"] == 5
    # the PersistentVolume and the Namespace itself have no namespace
    assert {item["metadata"].get("namespace", "paddle") for item in objects} == {"paddle"}


def test_a_directory_of_the_users_own_passes_the_number_on(cluster: Cluster, tmp_path: Path) -> None:
    """Test the user's kustomization beside k8s/ that docs/manifests.md describes."""
    chosen(tmp_path, nodes=5)
    components = [f"../k8s/components/{name}" for name in ("volcano", "restricted")]
    own = {"resources": ["../k8s"], "components": components, "namespace": "science"}
    (tmp_path / "science").mkdir()
    (tmp_path / "science/kustomization.yaml").write_text(json.dumps(own))
    objects = list(yaml.safe_load_all(cluster.kubectl("kustomize", tmp_path / "science")))
    assert one(objects, "PodGroup", JOB)["spec"]["minMember"] == 5
    assert one(objects, "Namespace", "science")
    assert {item["metadata"].get("namespace", "science") for item in objects} == {"science"}


def test_the_queues_of_kueue_are_accepted(cluster: Cluster, definitions: None) -> None:
    file = REPOSITORY / "k8s/components/kueue/queues.yaml"
    cluster.kubectl("create", "--validate=strict", "-f", file)
    cluster.kubectl("delete", "-f", file, "--timeout=60s")


def test_an_unknown_field_of_a_custom_kind_is_refused(cluster: Cluster, definitions: None) -> None:
    group = yaml.safe_load((REPOSITORY / "k8s/components/volcano/pod-group.yaml").read_text())
    group["spec"]["minMembers"] = group["spec"].pop("minMember")
    with pytest.raises(AssertionError, match=r'unknown field "spec\.minMembers"'):
        cluster.kubectl("create", "--validate=strict", "-f", "-", stdin=json.dumps(group))


def create_restricted(cluster: Cluster, directory: Path, kind: str) -> str:
    """Create k8s/KIND of a directory as a dry run where pods must be restricted; return what kubectl says."""
    (directory / "kustomization.yaml").write_text(json.dumps({"resources": [f"k8s/{kind}"], "namespace": NAMESPACE}))
    label = "pod-security.kubernetes.io/warn"
    cluster.kubectl("label", "namespace", NAMESPACE, f"{label}=restricted", "--overwrite")
    command = ["kubectl", "create", "--dry-run=server", "--validate=strict", "-k", str(directory)]
    done = subprocess.run(command, env=cluster.env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr
    cluster.kubectl("label", "namespace", NAMESPACE, f"{label}-")
    return done.stdout


@pytest.mark.parametrize("component", ["", *ELASTIC_COMPONENTS])
def test_the_elastic_job_is_accepted_where_pods_must_be_restricted(
    cluster: Cluster, definitions: None, tmp_path: Path, component: str
) -> None:
    """Test each component as a dry run; tests/kubernetes/tasks runs the job itself."""
    shutil.copytree(REPOSITORY / "k8s", tmp_path / "k8s")
    file = tmp_path / "k8s/tasks/kustomization.yaml"
    text = re.sub(rf"^#(  - components/{component} )", r"\1", file.read_text(), flags=re.MULTILINE)
    file.write_text(text)
    said = create_restricted(cluster, tmp_path, "tasks")
    assert ("statefulset.apps/paddle-etcd" in said) is (component != "external-etcd")


def test_the_allreduce_job_is_accepted_where_pods_must_be_restricted(cluster: Cluster, tmp_path: Path) -> None:
    """Create the objects as a dry run; tests/kubernetes/tasks runs the job."""
    shutil.copytree(REPOSITORY / "k8s", tmp_path / "k8s")
    said = create_restricted(cluster, tmp_path, "allreduce")
    assert "job.batch/paddle-driver" in said and "statefulset.apps/paddle-worker" in said


# ----- a job that runs with six components


@pytest.fixture(scope="module")
def restricted(
    cluster: Cluster, image: Image, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Namespace, Path]]:
    """Run the data job and the training Job to their ends, from a directory of the user with six components."""
    directory, volume = tmp_path_factory.mktemp("own"), tmp_path_factory.mktemp("volume")
    give(volume)
    path = [{"op": "replace", "path": "/spec/hostPath/path", "value": str(volume)}]
    passes = {"name": "trainer", "env": [{"name": "NUM_PASSES", "value": "2"}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": JOB}}
    shorter = {**job, "spec": {"template": {"spec": {"containers": [passes]}}}}
    k8s = os.path.relpath(REPOSITORY / "k8s", directory.resolve())
    names = ("single-node", "quota", "pod-names", "disruption-budget", "prometheus", "restricted")
    own = {
        "resources": [k8s],
        "components": [f"{k8s}/components/{name}" for name in names],
        "images": [{"name": "REPO/paddle", "newName": image.reference.rpartition(":")[0]}],
        "patches": [
            {"target": {"kind": "PersistentVolume"}, "patch": json.dumps(path)},
            {"patch": json.dumps(shorter)},
        ],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(own))
    space = Namespace(cluster, "paddle", volume)
    cluster.kubectl("label", "node", "node-2", "paddle-volume=here")
    try:
        create(cluster, directory, steps=STEPS[:1])
        make_secret(space)
        create(cluster, directory, steps=STEPS[1:2])
        space.wait_for_success("paddle-data")
        create(cluster, directory, steps=STEPS[2:])
        space.wait_for_success(JOB)
        yield space, directory
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "--timeout=120s", "-k", directory)
        cluster.kubectl("label", "node", "node-2", "paddle-volume-")


def test_a_job_trains_in_a_namespace_with_pod_security_restricted(restricted: tuple[Namespace, Path]) -> None:
    space, directory = restricted
    assert (space.volume / JOB / "output/pass-00001/done").is_file()
    namespace = one(kept(space.cluster, directory), "Namespace", "paddle")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_namespace_refuses_a_pod_that_is_not_restricted(restricted: tuple[Namespace, Path]) -> None:
    space, _ = restricted
    with pytest.raises(AssertionError, match="violates PodSecurity"):
        space.kubectl("run", "stranger", "--image=any", "--dry-run=server")


def test_all_pods_ran_on_the_node_that_has_the_volume(restricted: tuple[Namespace, Path]) -> None:
    space, _ = restricted
    pods = [*space.pods("paddle-data"), *space.pods(JOB)]
    assert [pod["spec"]["nodeName"] for pod in pods] == ["node-2"] * 4


def test_the_policy_selects_the_pods_of_the_real_job_and_no_other(restricted: tuple[Namespace, Path]) -> None:
    space, directory = restricted
    policy = one(kept(space.cluster, directory), "NetworkPolicy", JOB)
    (own, _) = policy["spec"]["ingress"]
    (peer,) = own["from"]
    for selector in (policy["spec"]["podSelector"], peer["podSelector"]):
        labels = ",".join(f"{key}={value}" for key, value in selector["matchLabels"].items())
        found = json.loads(space.kubectl("get", "pods", "-l", labels, "-o", "json"))["items"]
        assert {pod["metadata"]["name"] for pod in found} == {pod["metadata"]["name"] for pod in space.pods(JOB)}
        assert len(found) == 3


def test_the_pods_are_found_by_the_annotations(restricted: tuple[Namespace, Path]) -> None:
    space, _ = restricted
    for pod in space.pods(JOB):
        assert pod["metadata"]["annotations"]["prometheus.io/scrape"] == "true"


def test_the_trainers_reach_the_pservers_by_the_names_of_their_pods(restricted: tuple[Namespace, Path]) -> None:
    space, _ = restricted
    hosts = ",".join(f"{JOB}-{index}.paddle-pods" for index in range(3))
    for pod in space.pods(JOB):
        assert f" --pservers={hosts} " in space.log(pod["metadata"]["name"])


def test_the_budget_counts_the_pods_of_the_job(restricted: tuple[Namespace, Path]) -> None:
    """With a selector that Kubernetes cannot use, no drain would be allowed. The pods of this job have ended."""
    space, directory = restricted
    budget = one(kept(space.cluster, directory), "PodDisruptionBudget", JOB)
    conditions = {condition["type"]: condition for condition in budget["status"]["conditions"]}
    assert conditions["DisruptionAllowed"]["reason"] != "SyncFailed", conditions
    assert budget["status"]["desiredHealthy"] == 2
