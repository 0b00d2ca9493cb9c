"""The commands of docs/elastic.md on a cluster, as they stand there, in a copy of the project."""

import re
from pathlib import Path

import pytest
from docpages.blocks import ROOT, blocks_of, script
from docpages.project import copy_project, run_script
from elastic_run import NAME, restricted_namespace
from kubernetes_cluster import Cluster, Image, give
from test_cluster_docs import own_context

pytestmark = [pytest.mark.elastic, pytest.mark.alone, pytest.mark.short]


def test_the_commands_of_the_page_work(cluster: Cluster, image: Image, etcd_image: str, tmp_path: Path) -> None:
    project, volume = copy_project(tmp_path / "project"), tmp_path / "volume"
    (volume / "etcd").mkdir(parents=True)
    give(volume)
    kustomization = project / "k8s/elastic/kustomization.yaml"
    text = kustomization.read_text()
    for name, reference in (("REPO/paddle", image.reference), ("REPO/etcd", etcd_image)):
        repository, _, tag = reference.rpartition(":")
        text, edits = re.subn(
            rf"(name: {name}, newName: ){name}, newTag: [^}}]*", rf"\g<1>{repository}, newTag: {tag}", text
        )
        assert edits == 1
    kustomization.write_text(text)
    with restricted_namespace(cluster, "docs-elastic", volume) as space:
        environ = {**cluster.env, "KUBECONFIG": str(own_context(cluster, space, tmp_path))}
        run_script(script(blocks_of(ROOT / "docs/elastic.md"), "cluster"), project, environ)
        assert (volume / NAME / "output/pass-00009/done").is_file()
        assert "Complete" in space.conditions("paddle-elastic-data")
