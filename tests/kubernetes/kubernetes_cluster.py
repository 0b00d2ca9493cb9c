"""What the tests do with the cluster: kubectl, docker, and waiting for a condition with a deadline."""

import contextlib
import functools
import json
import os
import re
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
# what this machine needs for `docker build`: no registry has the base, and downloads need its CA bundle
BUILD_OPTIONS = ["--build-arg", f"BASE={BASE}", "--build-arg", "BUILD_BASE=paddle-test/build-base"]
BUILD_OPTIONS += ["--build-arg", "PIP_CERT=/ca.crt", "--network", "host"]


def run(*command: str | Path, check: bool = True, stdin: str | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command and return its stdout; a failure carries its stderr."""
    words = [str(word) for word in command]
    done = subprocess.run(words, input=stdin, env=env, capture_output=True, text=True, timeout=600)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Image(NamedTuple):
    """The image as a user pushes it, the bytes of its base, and those that it adds to them."""

    reference: str
    base_bytes: int
    added_bytes: int


class Cluster:
    """A running cluster, as `cluster env` describes it."""

    def __init__(self) -> None:
        exports = run(HERE / "cluster", "env").removeprefix("export ").split()
        self.env = {**os.environ, "DOCKER_BUILDKIT": "0", **dict(pair.split("=", 1) for pair in exports)}
        self.registry = self.env["REGISTRY"]

    @functools.cached_property
    def _api(self) -> tuple[str, requests.Session]:
        """The API server's address and a session of the admin's: a poll by kubectl costs a tenth of a second of CPU."""
        content = yaml.safe_load(Path(self.env["KUBECONFIG"]).read_text())
        server, session = content["clusters"][0]["cluster"], requests.Session()
        session.trust_env, session.verify = False, server["certificate-authority"]
        session.headers["Authorization"] = f"Bearer {content['users'][0]['user']['token']}"
        return server["server"], session

    def get(self, path: str, *, stream: bool = False, **query: str) -> requests.Response:
        """What the API server answers to a GET; raises only where there is no answer."""
        server, session = self._api
        return session.get(server + path, params=query, timeout=30, stream=stream)

    def run(self, *command: str | Path, check: bool = True, stdin: str | None = None) -> str:
        return run(*command, check=check, stdin=stdin, env=self.env)

    def kubectl(self, *arguments: str | Path, check: bool = True, stdin: str | None = None) -> str:
        return self.run("kubectl", *arguments, check=check, stdin=stdin)


class Namespace:
    """One namespace with a volume of its own: what one scenario sees."""

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
        """What a pod has printed so far; one that is gone or has no container yet has printed nothing."""
        answer = self.cluster.get(f"/api/v1/namespaces/{self.name}/pods/{pod}/log")
        return answer.content.decode("utf-8", "replace") if answer.ok else ""

    def conditions(self, job: str) -> dict[str, dict[str, Any]]:
        """Type -> condition, of those that are true."""
        found = self.job(job)["status"].get("conditions", [])
        return {condition["type"]: condition for condition in found if condition["status"] == "True"}

    def logs(self, job: str) -> str:
        """What every pod of a job has printed so far."""
        return "\n".join(self.log(pod["metadata"]["name"]) for pod in self.pods(job))

    def describe(self, job: str) -> str:
        """What a person would look at when a job does not do as expected."""
        events = self.kubectl("get", "events", "--sort-by=.lastTimestamp").splitlines()[-15:]
        ends = f"-o=custom-columns=NAME:.metadata.name,ENDED:{ENDED}"
        shown = [self.kubectl("get", "pods,jobs", "-o", "wide"), self.kubectl("get", "pods", ends), *events]
        return "\n".join([*shown, self.logs(job)[-6000:]])

    def wait(self, what: str, condition: Callable[[], Any], *, job: str, seconds: float = 120) -> Any:
        """Poll until the condition holds and return its value; a deadline ends with pods and logs in the message."""
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


@contextlib.contextmanager
def namespace_with_volume(
    cluster: Cluster, name: str, volume: Path, host_path: Path | None = None
) -> Iterator[Namespace]:
    """A fresh namespace (or `default`) with a PersistentVolume for the claim `mfs`; its Jobs are gone afterwards.

    host_path: what the nodes mount, where that is not the path by which the tests see the volume.
    """
    space = Namespace(cluster, name, volume)
    if name != "default":
        # there is one where the cluster was kept from an earlier run
        cluster.kubectl("delete", "namespace", name, "--ignore-not-found")
        cluster.kubectl("create", "namespace", name)
    spec = {
        "capacity": {"storage": "100Gi"},
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": name, "name": "mfs"},
        "hostPath": {"path": str(host_path or volume), "type": "Directory"},
    }
    space.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"mfs-{name}"}, "spec": spec})
    try:
        yield space
    finally:
        space.kubectl("delete", "jobs,pods", "--all", "--timeout=120s")
        space.kubectl("delete", "pvc", "--all", "--timeout=60s")
        cluster.kubectl("delete", "persistentvolume", f"mfs-{name}", "--timeout=60s")


Overlay = Callable[..., Path]
Once = Callable[[str, Callable[[Path], None]], Path]
Scenario = Callable[..., Namespace]


def exit_codes(pods: list[dict[str, Any]]) -> set[int]:
    """Exit codes of the containers that have ended."""
    statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", [])]
    return {status["state"]["terminated"]["exitCode"] for status in statuses if "terminated" in status["state"]}


@contextlib.contextmanager
def drained(cluster: Cluster, node: str, *options: str) -> Iterator[None]:
    """A node that is drained, which waits for the ends of its pods; it takes pods again after the block."""
    try:
        cluster.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s", *options)
        yield
    finally:
        cluster.kubectl("uncordon", node)


def copy_manifests(directory: Path, *components: str) -> Path:
    """A copy of k8s/ in which the lines of these components were edited as docs/manifests.md says."""
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
    """The line of the docs: give the shared directory to the pods' uid."""
    run("chown", "-R", f"{owner}:{owner}", directory)


def copy_volume(source: Path, target: Path) -> None:
    """A volume with the same data and no output."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("output"))
    target.chmod(0o755)  # readable for pods whose uid does not own it
