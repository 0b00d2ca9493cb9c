"""Fixtures: one cluster and one image for all tests, and a namespace and a volume for each scenario."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from kubernetes_cluster import (
    BASE,
    BUILD_OPTIONS,
    HERE,
    OWNER,
    REPOSITORY,
    Cluster,
    Image,
    Namespace,
    Once,
    Overlay,
    Scenario,
    copy_volume,
    give,
    namespace_with_volume,
    run,
)
from xdist.scheduler import LoadScopeScheduling

# tests of one name run one after the other where several run at a time; every other test is on its own
TOGETHER = {
    "test_cluster_autoscaler.py": "autoscaler",  # one namespace
    "test_cluster_gpu.py": "gpus",  # one namespace, two nodes
    "test_cluster_manifests.py": "manifests",  # one namespace, and the definitions of kinds
    "test_cluster_walk.py": "manifests",  # its pods are on three nodes only where no others fill one
    "test_cluster_tutorial.py": "tutorial",  # jobs of one name, in the namespace default
    "test_tasks_docs.py::test_the_commands_of_the_page_work[tasks-model_is_saved]": "elastic",  # one PriorityClass
    "test_tasks_job.py": "elastic",
    "test_tasks_program.py": "elastic",
}


class Together(LoadScopeScheduling):
    """Gives the tests of a name to one worker. (xdist's own groups have no effect with this pytest.)"""

    def _split_scope(self, nodeid: str) -> str:
        test = nodeid.rpartition("/")[2]
        return TOGETHER.get(test) or TOGETHER.get(test.partition("::")[0]) or nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("cluster")
            item.add_marker(pytest.mark.timeout(600))


@contextlib.contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A cluster of three nodes. KEEP_CLUSTER=1 keeps it after the tests, and uses a cluster that was kept.

    A cluster whose tests were interrupted or killed is not used again: a node may be cut off, a namespace full of pods.
    """
    keep = os.environ.get("KEEP_CLUSTER") == "1"
    running = Cluster()
    with only_user_of_the_cluster():
        try:
            if not (keep and running.kubeconfig.exists() and not in_use(running).exists()):
                run(HERE / "cluster", "down")
                run(HERE / "cluster", "up", "3")
            in_use(running).touch()
            yield running
        finally:
            if not keep:
                run(HERE / "cluster", "down")


def in_use(cluster: Cluster) -> Path:
    """Return the file that is there from the beginning of the tests until they have come to their end."""
    return cluster.kubeconfig.with_name("in-use")


def end_once(*_: object) -> NoReturn:
    """End the tests as Ctrl-C does, by any signal; a second one does not disturb their cleaning up."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: None)
    raise KeyboardInterrupt


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    ends = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    if exitstatus in ends and not is_worker():
        in_use(Cluster()).unlink(missing_ok=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    """With pytest-xdist, the controller process owns the cluster that its workers use."""
    if not is_worker():
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, end_once)
    if session.config.getoption("numprocesses", None) and not is_worker():
        stack = contextlib.ExitStack()
        session.config.add_cleanup(stack.close)
        stack.enter_context(running_cluster())


def is_worker() -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    if is_worker():
        yield Cluster()
    else:
        with running_cluster() as running:
            yield running


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """once(name, make): a directory that make(directory) fills; only the first worker or run calls `make`.

    With $SHARED_DIR, several runs share the directories (tests/kubernetes/run). They are in its subdirectory
    made-once/; nothing else in $SHARED_DIR is changed.
    """
    base = tmp_path_factory.getbasetemp()
    root = Path(os.environ.get("SHARED_DIR") or (base.parent if is_worker() else base)) / "made-once"
    root.mkdir(exist_ok=True)

    def fill(name: str, make: Callable[[Path], None]) -> Path:
        whole, partial = root / name, root / f"{name}.partial"
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not whole.exists():
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                make(partial)
                partial.rename(whole)
        return whole

    return fill


@contextlib.contextmanager
def only_user_of_the_cluster() -> Iterator[None]:
    """Only one run at a time may use the machine's cluster, because a second run would delete that of the first."""
    directory = Path(os.environ.get("CLUSTER_DIR", "/var/tmp/paddle-cluster"))
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"lock-{os.environ.get('CLUSTER_NUMBER', 0)}").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pytest.exit(f"another run uses the cluster of {directory}; wait for its end", returncode=75)
        yield


def size_of(cluster: Cluster, image: str) -> int:
    return int(cluster.run("docker", "image", "inspect", "-f", "{{.Size}}", image))


@pytest.fixture(scope="session")
def image(cluster: Cluster, once: Once) -> Image:
    """Build and push the image by the commands of the README, with the build arguments that this machine needs."""
    reference = f"{cluster.registry}/paddle:mypaddle"

    def build(directory: Path) -> None:
        cluster.run(HERE / "base-image")
        cluster.run("docker", "build", *BUILD_OPTIONS, "-t", reference, REPOSITORY)
        cluster.run("docker", "push", "-q", reference)

    once(f"image-of-{cluster.registry.replace(':', '-')}", build)
    base = size_of(cluster, BASE)
    return Image(reference, base, size_of(cluster, reference) - base)


@pytest.fixture(scope="session")
def overlay(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Overlay:
    """overlay(namespace, (job, JSON patch)...): a kustomization that sets the image and applies the patches.

    manifests: a user's edited copy of k8s/, which is used instead of k8s/.
    """

    def make(namespace: str, *patches: tuple[str, list[dict[str, Any]]], manifests: Path = REPOSITORY / "k8s") -> Path:
        directory = tmp_path_factory.mktemp("overlay")
        kustomization = {
            "resources": [os.path.relpath(manifests.resolve(), directory.resolve())],
            "images": [{"name": "REPO/paddle", "newName": image.reference.rpartition(":")[0]}],
            "namespace": namespace,
            "patches": [{"target": {"kind": "Job", "name": job}, "patch": json.dumps(patch)} for job, patch in patches],
        }
        (directory / "kustomization.yaml").write_text(json.dumps(kustomization))
        return directory

    return make


@pytest.fixture(scope="session")
def digits(cluster: Cluster, overlay: Overlay, once: Once) -> Path:
    """Return a volume with the digits in three shards, which the data job of k8s/ has written."""

    def make(volume: Path) -> None:
        give(volume)
        with namespace_with_volume(cluster, "digits", volume) as space:
            space.kubectl("create", "-f", REPOSITORY / "k8s/pvc.yaml")
            space.kubectl("create", "-k", overlay("digits"), "-l", "app.kubernetes.io/component=data")
            space.wait_for_success("paddle-data")
            space.kubectl("wait", "--for=condition=complete", "job/paddle-data", "--timeout=10m")

    return once("digits", make)


@pytest.fixture
def scenario(cluster: Cluster, digits: Path, overlay: Overlay, tmp_path: Path) -> Iterator[Scenario]:
    """scenario(name, patch..., owner, secret): a namespace with the shards of digits and the patched Job.

    secret: whether the namespace has the jobs' Secret.
    """
    with contextlib.ExitStack() as stack:

        def start(name: str, *patch: dict[str, Any], owner: int = OWNER, secret: bool = True) -> Namespace:
            volume = tmp_path / "volume"
            copy_volume(digits, volume)
            give(volume, owner)
            space = stack.enter_context(namespace_with_volume(cluster, name, volume, secret=secret))
            job = overlay(name, *([("paddle-cluster-job", list(patch))] if patch else []))
            space.kubectl("create", "-k", job, "-l", "app.kubernetes.io/component in (access, volume)")
            space.kubectl("create", "-k", job, "-l", "app.kubernetes.io/component=training")
            return space

        yield start
