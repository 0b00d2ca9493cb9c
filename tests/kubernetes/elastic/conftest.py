"""etcd's image, and a job of k8s/elastic."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from elastic_run import PASSES, ElasticRun, Start, make_volume, restricted_namespace, write_overlay
from etcd_process import BINARY
from kubernetes_cluster import BASE, Cluster, Image, Once
from pod_watch import PodWatch


@pytest.fixture(scope="session")
def etcd_image(cluster: Cluster, once: Once) -> str:
    """An image of the etcd that tests/etcd/build compiles."""
    reference = f"{cluster.registry}/etcd:test"

    def build(directory: Path) -> None:
        shutil.copy(BINARY, directory / "etcd")
        (directory / "Dockerfile").write_text(f"FROM {BASE}\nCOPY etcd /usr/bin/etcd\n")
        cluster.run("docker", "build", "-q", "-t", reference, directory)
        cluster.run("docker", "push", "-q", reference)

    once(f"etcd-of-{cluster.registry.replace(':', '-')}", build)
    return reference


@pytest.fixture
def start(cluster: Cluster, image: Image, etcd_image: str, tmp_path: Path) -> Iterator[Start]:
    """start(name, mode, trainers, passes): the job in a namespace of that name."""
    with contextlib.ExitStack() as stack:

        def create(name: str, mode: str = "async", trainers: int = 3, passes: int = PASSES) -> ElasticRun:
            volume, overlay = tmp_path / "volume", tmp_path / "overlay"
            for directory in (volume, overlay):
                directory.mkdir()
                directory.chmod(0o755)
            make_volume(volume, tmp_path / "work", mode)
            write_overlay(overlay, name, image.reference, etcd_image, trainers, passes)
            space = stack.enter_context(restricted_namespace(cluster, name, volume))
            watch = stack.enter_context(PodWatch(space, selector="app.kubernetes.io/part-of=paddle"))
            said = space.kubectl("create", "--validate=strict", "-k", overlay)
            assert "violate" not in said
            return ElasticRun(space, tmp_path / "work", watch, passes)

        yield create
