"""Functions for tests on the cluster: kubectl, docker, and waits for a condition with a deadline."""

import contextlib
import functools
import json
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import requests
import yaml

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
OWNER = 1000  # uid and gid of job.yaml
ENDED = ".status.containerStatuses[*].state.terminated"
BASE = "paddle-test/base"
# `docker build` on this machine needs a local base image and a CA bundle for downloads
BUILD_OPTIONS = ["--build-arg", f"BASE={BASE}", "--build-arg", "BUILD_BASE=paddle-test/build-base"]
BUILD_OPTIONS += ["--build-arg", "PIP_CERT=/ca.crt", "--network", "host"]


def run(*command: str | Path, check: bool = True, stdin: str | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command and return its stdout; if it fails, the exception has its stderr."""
    words = [str(word) for word in command]
    done = subprocess.run(words, input=stdin, env=env, capture_output=True, text=True, timeout=600)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Image(NamedTuple):
    """The image that a user pushes, the bytes of its base image, and the bytes that it adds."""

    reference: str
    base_bytes: int
    added_bytes: int


class Cluster:
    """A running cluster, from the variables that `cluster env` prints."""

    def __init__(self) -> None:
        exports = run(HERE / "cluster", "env").removeprefix("export ").split()
        self.env = {**os.environ, "DOCKER_BUILDKIT": "0", **dict(pair.split("=", 1) for pair in exports)}
        self.registry, self.kubeconfig = self.env["REGISTRY"], Path(self.env["KUBECONFIG"])

    @functools.cached_property
    def _api(self) -> tuple[str, requests.Session]:
        """The API server's address and the admin's HTTP session; kubectl would need 0.1 s of CPU per request."""
        content = yaml.safe_load(self.kubeconfig.read_text())
        server, session = content["clusters"][0]["cluster"], requests.Session()
        session.trust_env, session.verify = False, server["certificate-authority"]
        session.headers["Authorization"] = f"Bearer {content['users'][0]['user']['token']}"
        return server["server"], session

    def get(self, path: str, *, stream: bool = False, **query: str) -> requests.Response:
        """The API server's answer to a GET, whatever its status; raises only if there is no answer."""
        server, session = self._api
        return session.get(server + path, params=query, timeout=30, stream=stream)

    def run(self, *command: str | Path, check: bool = True, stdin: str | None = None) -> str:
        return run(*command, check=check, stdin=stdin, env=self.env)

    def kubectl(self, *arguments: str | Path, check: bool = True, stdin: str | None = None) -> str:
        return self.run("kubectl", *arguments, check=check, stdin=stdin)


class Namespace:
    """A namespace with its own volume, for one scenario."""

    def __init__(self, cluster: Cluster, name: str, volume: Path):
        self.cluster, self.name, self.volume = cluster, name, volume

    def kubectl(self, *arguments: str | Path, check: bool = True, stdin: str | None = None) -> str:
        return self.cluster.kubectl("--namespace", self.name, *arguments, check=check, stdin=stdin)

    def create(self, manifest: dict[str, Any]) -> None:
        self.kubectl("create", "-f", "-", stdin=json.dumps(manifest))

    def pods(self, job: str) -> list[dict[str, Any]]:
        answer = self.cluster.get(f"/api/v1/namespaces/{self.name}/pods", labelSelector=f"job-name={job}")
        answer.raise_for_status()
        return answer.json()["items"]

    def job(self, name: str) -> dict[str, Any]:
        answer = self.cluster.get(f"/apis/batch/v1/namespaces/{self.name}/jobs/{name}")
        answer.raise_for_status()
        return answer.json()

    def log(self, pod: str) -> str:
        """The output of a pod so far, or that of its init container; it is empty if the pod is gone or has none yet."""
        for container in ("", "?container=directories"):
            answer = self.cluster.get(f"/api/v1/namespaces/{self.name}/pods/{pod}/log{container}")
            if answer.ok:
                return answer.content.decode("utf-8", "replace")
        return ""

    def conditions(self, job: str) -> dict[str, dict[str, Any]]:
        """Return type -> condition, for the conditions that are true."""
        found = self.job(job)["status"].get("conditions", [])
        return {condition["type"]: condition for condition in found if condition["status"] == "True"}

    def logs(self, job: str) -> str:
        """The output of all pods of a job so far."""
        return "\n".join(self.log(pod["metadata"]["name"]) for pod in self.pods(job))

    def describe(self, job: str) -> str:
        """The facts that a person would look at if a job does not behave as expected."""
        events = self.kubectl("get", "events", "--sort-by=.lastTimestamp").splitlines()[-15:]
        ends = f"-o=custom-columns=NAME:.metadata.name,ENDED:{ENDED}"
        shown = [self.kubectl("get", "pods,jobs", "-o", "wide"), self.kubectl("get", "pods", ends), *events]
        return "\n".join([*shown, self.logs(job)[-6000:]])

    def wait(self, what: str, condition: Callable[[], Any], *, job: str, seconds: float = 120) -> Any:
        """Poll until the condition holds and return its value; after the deadline, the error shows pods and logs."""
        end = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > end:
                raise AssertionError(f"no {what} after {seconds} s\n{self.describe(job)}")
            time.sleep(0.3)
        return value

    def wait_for_end(self, job: str, *, seconds: float = 180) -> dict[str, dict[str, Any]]:
        """Wait until a job is Complete or Failed and return its conditions."""

        def ended() -> dict[str, dict[str, Any]] | None:
            found = self.conditions(job)
            return found if {"Complete", "Failed"} & found.keys() else None

        return self.wait(f"end of job/{job}", ended, job=job, seconds=seconds)

    def wait_for_success(self, job: str, *, seconds: float = 180) -> None:
        conditions = self.wait_for_end(job, seconds=seconds)
        assert "Complete" in conditions, f"{conditions}\n{self.describe(job)}"

    def wait_for_log(self, job: str, pattern: str, *, seconds: float = 120) -> re.Match[str]:
        """Wait for a line of any pod of a job and return the match."""

        def found() -> re.Match[str] | None:
            return re.search(pattern, self.logs(job), re.MULTILINE)

        return self.wait(f"log line {pattern!r}", found, job=job, seconds=seconds)


def host_volume(
    name: str, namespace: str, claim: str, directory: Path, *, size: str = "100Gi", mode: str = "ReadWriteMany"
) -> dict[str, Any]:
    """Return a PersistentVolume for a claim: a directory of the nodes, which they share with this machine."""
    spec = {
        "capacity": {"storage": size},
        "accessModes": [mode],
        "storageClassName": "",
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": namespace, "name": claim},
        "hostPath": {"path": str(directory), "type": "Directory"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def make_volume_before_its_claim(cluster: Cluster, volume: dict[str, Any]) -> None:
    """Make a PersistentVolume, and wait until it is Available.

    If a claim is created before its volume is Available, minutes may pass until Kubernetes binds it.
    """
    name = volume["metadata"]["name"]
    cluster.kubectl("delete", "pv", name, "--ignore-not-found")  # a kept cluster may have one
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(volume))
    cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Available", f"pv/{name}", "--timeout=60s")


@contextlib.contextmanager
def namespace_with_volume(
    cluster: Cluster, name: str, volume: Path, host_path: Path | None = None, *, secret: bool = True
) -> Iterator[Namespace]:
    """A new namespace with a PersistentVolume for the claim `mfs`; its Jobs are deleted after the block.

    host_path: the path that the nodes mount, if it differs from the path by which the tests see the volume.  secret:
    whether it has the jobs' Secret too.
    """
    space = Namespace(cluster, name, volume)
    cluster.kubectl("delete", "namespace", name, "--ignore-not-found")  # a kept cluster may have one
    cluster.kubectl("create", "namespace", name)
    space.create(host_volume(f"mfs-{name}", name, "mfs", host_path or volume))
    if secret:
        make_secret(space)
    try:
        yield space
    finally:
        space.kubectl("delete", "jobs,pods", "--all", "--timeout=120s")
        space.kubectl("delete", "pvc", "--all", "--timeout=60s")
        cluster.kubectl("delete", "persistentvolume", f"mfs-{name}", "--timeout=60s")


def make_secret(space: Namespace) -> None:
    """Make the Secret of the jobs, by the command of README."""
    space.kubectl("create", "secret", "generic", "paddle-secret", f"--from-literal=secret={secrets.token_hex(32)}")


Overlay = Callable[..., Path]
Once = Callable[[str, Callable[[Path], None]], Path]
Scenario = Callable[..., Namespace]


def exit_codes(pods: list[dict[str, Any]]) -> set[int]:
    """Exit codes of the containers that have ended, and of the init containers that have failed."""
    statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", [])]
    first = [status for pod in pods for status in pod["status"].get("initContainerStatuses", [])]
    found = {status["state"]["terminated"]["exitCode"] for status in statuses if "terminated" in status["state"]}
    return found | {
        status["state"]["terminated"]["exitCode"] for status in first if "terminated" in status["state"]
    } - {0}


@contextlib.contextmanager
def drained(cluster: Cluster, node: str, *options: str) -> Iterator[None]:
    """Drain a node and wait until its pods have ended; after the block the node accepts pods again."""
    try:
        cluster.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s", *options)
        yield
    finally:
        cluster.kubectl("uncordon", node)


@contextlib.contextmanager
def blocking_pod(cluster: Cluster, requests: dict[str, str]) -> Iterator[None]:
    """Let a pod that does nothing take these resources of a node during the block."""
    container = {"name": "blocker", "image": f"{cluster.registry}/pause:1", "resources": {"requests": requests}}
    blocker = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "blocker"}, "spec": {"containers": [container]}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(blocker))
    try:
        cluster.kubectl("wait", "--for=condition=Ready", "pod/blocker", "--timeout=60s")
        yield
    finally:
        cluster.kubectl("delete", "pod", "blocker", "--timeout=60s")


def copy_manifests(directory: Path, *components: str) -> Path:
    """A copy of k8s/ in which these components are enabled by the edit of docs/manifests.md."""
    tree = directory / "k8s"
    shutil.copytree(REPOSITORY / "k8s", tree, symlinks=True)
    file = tree / "kustomization.yaml"
    text = file.read_text()
    for component in components:
        text, edits = re.subn(rf"^#(  - components/{component} )", r"\1", text, flags=re.MULTILINE)
        assert edits == 1, component
    file.write_text(text)
    return tree


def give(directory: Path, owner: int = OWNER) -> None:
    """Give the shared directory to the pods' uid, by the command of the docs."""
    run("chown", "-R", f"{owner}:{owner}", directory)


def copy_volume(source: Path, target: Path) -> None:
    """A volume with the same data and no output."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("output"))
    target.chmod(0o755)  # pods whose uid does not own the directory must be able to read it
