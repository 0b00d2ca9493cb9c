"""A MooseFS on the nodes of the cluster, for one test (tests/kubernetes/moosefs)."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubernetes_cluster import HERE, run

SCRIPT = HERE / "moosefs"
JOB = "paddle-cluster-job"


class MooseFs:
    """The file system as the tests see it, and its faults. The pods see its directory `share` as their volume.

    number: distinguishes the file systems of tests that run at the same time.
    """

    def __init__(self, number: int, share: str):
        self._env = {**os.environ, "MOOSEFS_NUMBER": str(number)}
        exports = self.do("env").removeprefix("export ").split()
        paths = {name: Path(path) for name, path in (pair.split("=", 1) for pair in exports)}
        self.volume, self.nodes = paths["MOOSEFS_TESTS"] / share, paths["MOOSEFS_NODES"]
        self._share = share

    def do(self, *words: str) -> str:
        """Run a command of the script: freeze, thaw, cut, join, slow MILLISECONDS, unmount NODE, and others."""
        return run(SCRIPT, *words, env=self._env)

    def patch(self) -> list[dict[str, Any]]:
        """Return the operations of a JSON patch by which each pod of the Job uses the mount of its own node."""
        pod = "/spec/template/spec"
        node = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
        changes: list[dict[str, Any]] = []
        for container, paths in (("initContainers/0", [""]), ("containers/0", [f"/{JOB}", f"/{JOB}/output"])):
            changes.append({"op": "add", "path": f"{pod}/{container}/env/-", "value": node})
            for number, below in enumerate(paths):
                mount = f"{pod}/{container}/volumeMounts/{number}"
                changes.append({"op": "test", "path": f"{mount}/name", "value": "jobpath"})
                if below:
                    changes.append({"op": "remove", "path": f"{mount}/subPath"})
                expression = f"$(NODE_NAME)/{self._share}{below}"
                changes.append({"op": "add", "path": f"{mount}/subPathExpr", "value": expression})
        return changes


@contextlib.contextmanager
def running_moosefs(share: str) -> Iterator[MooseFs]:
    """Start a MooseFS, and stop it at the end of the block, also after a failure."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    file_system = MooseFs(number, share)
    file_system.do("down")
    try:
        file_system.do("up")
        yield file_system
    finally:
        file_system.do("down")
