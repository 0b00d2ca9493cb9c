"""Kinds that are not a part of Kubernetes, from the definitions that custom-resources/make writes."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from kubernetes_cluster import Cluster

DIRECTORY = Path(os.environ.get("CLUSTER_DIR", "/var/tmp/paddle-cluster"))


@contextlib.contextmanager
def custom_kinds(cluster: Cluster, *plurals: str) -> Iterator[None]:
    """Define these kinds inside the block; their objects are deleted with them."""
    files = [
        f"-f{path}" for path in (DIRECTORY / "custom-resources").glob("*_*.yaml") if path.stem.split("_")[1] in plurals
    ]
    assert len(files) == len(plurals)
    cluster.kubectl("delete", "--ignore-not-found", *files)  # a kept cluster may still have them
    cluster.kubectl("create", *files)
    try:
        cluster.kubectl("wait", "--for=condition=established", "--timeout=60s", *files)
        yield
    finally:
        cluster.kubectl("delete", "--timeout=60s", *files)
