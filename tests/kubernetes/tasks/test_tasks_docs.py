"""The cluster commands of docs/tasks.md and docs/allreduce.md, run in a copy of the project."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from docpages.blocks import ROOT, blocks_of, script
from docpages.project import copy_project, run_script
from kubernetes_cluster import Cluster, Image, Namespace, give
from tasks_run import NAME, restricted_namespace
from test_cluster_docs import own_context

pytestmark = [pytest.mark.elastic, pytest.mark.short]


def model_is_saved(space: Namespace, _: str) -> None:
    assert (space.volume / NAME / "output/pass-00009/done").is_file()
    assert "Complete" in space.conditions("paddle-elastic-data")


def workers_have_trained(space: Namespace, output: str) -> None:
    assert "[0]<stdout>:epoch 3: 3 workers, error 0.0000" in output
    assert "Complete" in space.conditions("paddle-driver")


@pytest.mark.parametrize(("page", "check"), [("tasks", model_is_saved), ("allreduce", workers_have_trained)])
def test_the_commands_of_the_page_work(
    page: str, check: Callable[[Namespace, str], None], cluster: Cluster, image: Image, etcd_image: str, tmp_path: Path
) -> None:
    project, volume = copy_project(tmp_path / "project"), tmp_path / "volume"
    (volume / "etcd").mkdir(parents=True)
    give(volume)
    name_images(project / f"k8s/{page}/kustomization.yaml", {"REPO/paddle": image.reference, "REPO/etcd": etcd_image})
    with restricted_namespace(cluster, f"docs-{page}", volume) as space:
        environ = {**cluster.env, "KUBECONFIG": str(own_context(cluster, space, tmp_path))}
        try:
            check(space, run_script(script(blocks_of(ROOT / f"docs/{page}.md"), "cluster"), project, environ))
        finally:
            cluster.kubectl("delete", "priorityclass", "paddle-workers", "--ignore-not-found")


def name_images(kustomization: Path, images: dict[str, str]) -> None:
    """Set the names of images in a kustomization as a reader of the page does; the file may have only some of them."""
    text, total = kustomization.read_text(), 0
    for name, reference in images.items():
        repository, _, tag = reference.rpartition(":")
        pattern = rf"(name: {name}, newName: ){name}, newTag: [^}}]*"
        text, edits = re.subn(pattern, rf"\g<1>{repository}, newTag: {tag}", text)
        total += edits
    assert total == text.count("newName: ")
    kustomization.write_text(text)
