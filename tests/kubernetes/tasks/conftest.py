"""Fixtures: the image of etcd, a job of k8s/tasks, and a job of k8s/allreduce."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from allreduce_run import (
    JOB,
    LEDGER,
    AllreduceRun,
    TorchRun,
    command_of_numpy,
    command_of_torch,
    find_torch,
    machine_volumes,
    write_allreduce_overlay,
)
from etcd_process import BINARY
from kubernetes_cluster import (
    BASE,
    Cluster,
    Image,
    Namespace,
    Once,
    give,
    make_volume_before_its_claim,
    namespace_with_volume,
)
from pod_watch import PodWatch
from tasks_run import (
    PASSES,
    ElasticRun,
    Start,
    StartProgram,
    make_program_volume,
    make_secrets,
    make_volume,
    restricted_namespace,
    write_overlay,
)

HERE = Path(__file__).parent
PACE_S = 2.0  # seconds of a step of the job of torch, before it hurries; all steps of the job would take 200 s


@pytest.fixture(scope="session")
def etcd_image(cluster: Cluster, once: Once) -> str:
    """Return the name of an image of the etcd that tests/etcd/build compiles."""
    reference = f"{cluster.registry}/etcd:test"

    def build(directory: Path) -> None:
        shutil.copy(BINARY, directory / "etcd")
        (directory / "Dockerfile").write_text(f"FROM {BASE}\nCOPY etcd /usr/bin/etcd\n")
        cluster.run("docker", "build", "-q", "-t", reference, directory)
        cluster.run("docker", "push", "-q", reference)

    once(f"etcd-of-{cluster.registry.replace(':', '-')}", build)
    return reference


@pytest.fixture
def create(cluster: Cluster, image: Image, etcd_image: str, tmp_path: Path) -> Iterator[Callable[..., ElasticRun]]:
    """create(name, volume, trainers, settings, component...): create the job in a namespace `name`."""
    with contextlib.ExitStack() as stack:

        def begin(
            name: str, volume: Path, trainers: int, settings: Mapping[str, object], *components: str
        ) -> ElasticRun:
            overlay = tmp_path / "overlay"
            overlay.mkdir()
            overlay.chmod(0o755)
            images = image.reference, etcd_image
            write_overlay(overlay, name, images, trainers, settings, *components)
            space = stack.enter_context(restricted_namespace(cluster, name, volume))
            watch = stack.enter_context(PodWatch(space, selector="app.kubernetes.io/part-of=paddle"))
            make_secrets(space)
            said = space.kubectl("create", "--validate=strict", "-k", overlay)
            assert "violate" not in said
            return ElasticRun(space, tmp_path / "work", watch, int(str(settings["NUM_PASSES"])))

        yield begin


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """Return an empty directory for the volume of a job."""
    directory = tmp_path / "volume"
    directory.mkdir()
    directory.chmod(0o755)
    return directory


@pytest.fixture
def start(create: Callable[..., ElasticRun], volume: Path, tmp_path: Path) -> Start:
    """start(name, mode, trainers, passes, interval): create the job of a config in a namespace `name`.

    interval: time between two snapshots of a server.
    """

    def begin(
        name: str, mode: str = "async", trainers: int = 3, passes: int = PASSES, interval: str = "1s"
    ) -> ElasticRun:
        make_volume(volume, tmp_path / "work", mode)
        settings = {"TRAIN_CONFIG_DIR": "paced", "NUM_PASSES": passes, "CHECKPOINT_INTERVAL": interval}
        return create(name, volume, trainers, settings)

    return begin


@pytest.fixture
def start_program(create: Callable[..., ElasticRun], volume: Path, tmp_path: Path) -> StartProgram:
    """start_program(name, text, trainers, passes): create the job of a program, and return it.

    The second value is the number of samples of a pass.
    """

    def begin(name: str, text: str, trainers: int, passes: int) -> tuple[ElasticRun, int]:
        (tmp_path / "work").mkdir()
        samples = make_program_volume(volume, text)
        settings = {"NUM_PASSES": passes, "CHECKPOINT_INTERVAL": "1s"}
        return create(name, volume, trainers, settings, "program"), samples

    return begin


@contextlib.contextmanager
def allreduce_job(
    cluster: Cluster, image: Image, name: str, directory: Path, command: list[str], machine: Sequence[Path] = ()
) -> Iterator[tuple[Namespace, PodWatch]]:
    """Create a job of k8s/allreduce in a namespace `name`, and delete it after the block.

    directory: where its files may be.  command: that of a worker.  machine: directories of this machine that the
    workers see, at the same paths.
    """
    volume, overlay = directory / "volume", directory / "overlay"
    for made in (volume, overlay, volume / JOB, volume / JOB / "output", volume / JOB / "output" / LEDGER):
        made.mkdir()
        made.chmod(0o755)
    shutil.copy(HERE / "allreduce_script.py", volume / JOB / "train.py")
    give(volume)
    write_allreduce_overlay(overlay, image.reference, name, command, machine)
    with namespace_with_volume(cluster, name, volume) as space, contextlib.ExitStack() as stack:
        for mode in ("enforce", "warn"):
            cluster.kubectl("label", "namespace", name, f"pod-security.kubernetes.io/{mode}=restricted", "--overwrite")
        for each in machine_volumes(machine, name):
            make_volume_before_its_claim(cluster, each)
            stack.callback(cluster.kubectl, "delete", "pv", each["metadata"]["name"], "--wait=false")
        watch = stack.enter_context(PodWatch(space, selector="app.kubernetes.io/part-of=paddle"))
        said = space.kubectl("create", "--validate=strict", "-k", overlay)
        assert "violate" not in said
        try:
            yield space, watch
        finally:
            space.kubectl("delete", "statefulsets,jobs", "--all", "--timeout=120s")
            cluster.kubectl("delete", "priorityclass", "paddle-workers", "--ignore-not-found")


@pytest.fixture
def allreduce(cluster: Cluster, image: Image, tmp_path: Path) -> Iterator[AllreduceRun]:
    """Return a job of numpy, which trains until the file `stop` is in its output."""
    with allreduce_job(cluster, image, "allreduce", tmp_path, command_of_numpy()) as (space, watch):
        yield AllreduceRun(space, watch)


@pytest.fixture
def allreduce_of_torch(cluster: Cluster, image: Image, tmp_path: Path) -> Iterator[TorchRun]:
    """Return a job of torch, which hurries when the file `hurry` is in its output. Its workers run this Python."""
    machine = find_torch()
    if not machine:
        pytest.skip("this Python has no torch, which the pods would share (make test installs it)")
    if Path("/usr") in machine:
        pytest.skip("this Python is that of the system, whose /usr a pod cannot share: make setup PYTHON=another one")
    command = command_of_torch(PACE_S, "hurry")
    with allreduce_job(cluster, image, "allreduce-torch", tmp_path, command, machine) as (space, watch):
        yield TorchRun(space, watch)
