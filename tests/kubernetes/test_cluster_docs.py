"""Runs the commands of README and docs/ that need a cluster, page by page, in a copy of the project.

The commands are unchanged, except registry and directory, which the reader must change too, and the arguments that this
machine needs to build images.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from docpages.blocks import ROOT, blocks_of, has_commands, script
from docpages.project import copy_project, run_script, state_of
from kubernetes_cluster import BUILD_OPTIONS, Cluster, Image, Namespace, give, namespace_with_volume

JOB = "paddle-cluster-job"
ELSEWHERE = {"tasks.md", "allreduce.md", "helm.md"}  # tasks/test_tasks_docs.py, faults/test_chart.py
PAGES = [
    path
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
    if path.name not in ELSEWHERE and has_commands(blocks_of(path), "cluster")
]
DAILY = {"README.md"}  # what a landing waits for; the other pages vary its commands
MAKE_SECRET = "kubectl create secret generic paddle-secret"
REPOSITORY_OF_READER = "registry.example.com/team"
# a job that has ended, for pages whose commands need such a job
DIGITS = """kubectl create -f k8s/rbac.yaml -f k8s/pvc.yaml -f k8s/data-job.yaml
kubectl wait --for=condition=complete job/paddle-data --timeout=5m
kubectl create -f k8s/job.yaml
kubectl wait --for=condition=complete job/paddle-cluster-job --timeout=5m
"""


def passes_are_saved(space: Namespace) -> None:
    assert (space.volume / JOB / "output/pass-00001/done").is_file()


def two_pods_trained(space: Namespace) -> None:
    passes_are_saved(space)
    assert {path.name for path in (space.volume / JOB / "output").glob("node_*")} == {"node_0", "node_1"}


def pods_may_be_listed(space: Namespace) -> None:
    account = f"system:serviceaccount:{space.name}:default"
    assert space.kubectl("auth", "can-i", "list", "pods", f"--as={account}").strip() == "yes"


CHECKS: dict[str, Callable[[Namespace], None]] = {
    "README.md": lambda space: space.wait_for_success(JOB),
    "cluster.md": passes_are_saved,
    "number-of-nodes.md": two_pods_trained,
    "resume.md": passes_are_saved,
    "from-tutorial.md": pods_may_be_listed,
}


@pytest.mark.parametrize(
    "page",
    [pytest.param(path, id=path.stem, marks=[] if path.name in DAILY else pytest.mark.nightly) for path in PAGES],
)
def test_the_cluster_commands_of_the_page_work(page: Path, cluster: Cluster, image: Image, tmp_path: Path) -> None:
    found = blocks_of(page)
    text = script(found, "cluster")
    project = copy_project(tmp_path / "project")
    shorten(project / "k8s/job.yaml")
    if REPOSITORY_OF_READER not in text:
        edit_images(project, image)
    volume = tmp_path / "volume"
    volume.mkdir()
    give(volume)
    has_secret = MAKE_SECRET not in text  # a page that begins with a job needs one
    with namespace_with_volume(cluster, f"docs-{page.stem.lower()}", volume, secret=has_secret) as space:
        before = DIGITS if state_of(page.read_text(encoding="utf-8")) == "digits" else ""
        environ = {**cluster.env, "KUBECONFIG": str(own_context(cluster, space, tmp_path))}
        run_script(before + for_this_machine(text, cluster, volume), project, environ)
        CHECKS.get(page.name, lambda space: None)(space)


def test_the_pages_that_are_checked_are_there() -> None:
    assert {path.name for path in PAGES} >= CHECKS.keys()


def own_context(cluster: Cluster, space: Namespace, directory: Path) -> Path:
    """Write a kubeconfig whose default namespace is that of the page; return its path."""
    path = directory / "kubeconfig"
    shutil.copy(cluster.env["KUBECONFIG"], path)
    cluster.kubectl("--kubeconfig", path, "config", "set-context", "--current", f"--namespace={space.name}")
    return path


def for_this_machine(text: str, cluster: Cluster, volume: Path) -> str:
    """Return the commands with the registry of this cluster, the volume of this test and options for image builds."""
    text = text.replace(REPOSITORY_OF_READER, cluster.registry).replace("/export/paddle", str(volume))
    return text.replace("docker build ", f"docker build {' '.join(BUILD_OPTIONS)} ")


def shorten(job: Path) -> None:
    """Train two passes instead of ten, which is enough for the test."""
    text, count = re.subn(r'(name: NUM_PASSES, value: )"10"', r'\g<1>"2"', job.read_text())
    assert count == 1
    job.write_text(text)


def edit_images(project: Path, image: Image) -> None:
    """Make the edit that docs/cluster.md requires once."""
    for path in project.glob("k8s/*.yaml"):
        path.write_text(path.read_text().replace("REPO/paddle", image.reference.rpartition(":")[0]))
