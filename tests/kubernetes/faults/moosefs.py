"""A MooseFS of one test's own on the cluster's nodes (tests/kubernetes/moosefs)."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubernetes_cluster import HERE, run

SCRIPT = HERE / "moosefs"


class MooseFs:
    """The file system as the tests see it, and what they do to it. The nodes' pods see `share` of it as their volume.

    number: tells apart those of tests that run at the same time.
    """

    def __init__(self, number: int, share: str):
        self._env = {**os.environ, "MOOSEFS_NUMBER": str(number)}
        exports = self.do("env").removeprefix("export ").split()
        paths = {name: Path(path) for name, path in (pair.split("=", 1) for pair in exports)}
        self.volume, self.nodes = paths["MOOSEFS_TESTS"] / share, paths["MOOSEFS_NODES"]
        self._share = share

    def do(self, *words: str) -> str:
        """What the script can: freeze, thaw, cut, join, slow MILLISECONDS, read-only, read-write, unmount NODE ..."""
        return run(SCRIPT, *words, env=self._env)

    def patch(self) -> list[dict[str, Any]]:
        """The lines of a JSON patch by which each pod of the Job mounts what its own node has mounted."""
        container = "/spec/template/spec/containers/0"
        node = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
        return [
            {"op": "add", "path": f"{container}/env/-", "value": node},
            {"op": "test", "path": f"{container}/volumeMounts/0/name", "value": "jobpath"},
            {"op": "add", "path": f"{container}/volumeMounts/0/subPathExpr", "value": f"$(NODE_NAME)/{self._share}"},
        ]


@contextlib.contextmanager
def running_moosefs(share: str) -> Iterator[MooseFs]:
    """Start one, and stop it however the block ends."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    file_system = MooseFs(number, share)
    file_system.do("down")
    try:
        file_system.do("up")
        yield file_system
    finally:
        file_system.do("down")
