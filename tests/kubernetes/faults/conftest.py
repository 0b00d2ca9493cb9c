"""What the fault rows share: the digits, an undisturbed run to compare with, and jobs to disturb."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_cluster import REPOSITORY, Cluster, Once, Overlay, give, namespace_with_volume
from long_job import JOB, REFERENCE_PASSES, LongJob, Runner, StartJob, fill_volume, training
from pod_watch import PodWatch

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("faults")
            # of the row alone, and the first that is found: what the session makes once has its own deadlines
            item.add_marker(pytest.mark.timeout(1200, func_only=True), append=False)


@pytest.fixture(scope="session")
def shards(cluster: Cluster, overlay: Overlay, once: Once) -> Path:
    """A volume on which the data job of k8s/ has put the digits, in three shards."""

    def make(volume: Path) -> None:
        give(volume)
        with namespace_with_volume(cluster, "fault-data", volume) as space:
            jobs = overlay("fault-data")
            space.kubectl("create", "-k", jobs, "-l", "app.kubernetes.io/component in (volume, data)")
            space.wait_for_success("paddle-data")

    return once("digits", make)


@pytest.fixture(scope="session")
def runner(cluster: Cluster, shards: Path, overlay: Overlay) -> Runner:
    """runner(name, volume, patch..., passes, reference): the Job in a namespace of that name, as long as the block.

    host_path: what the nodes mount, where that is not the path by which the tests see the volume. manifests: in the
    place of k8s/, a copy with components.
    """

    @contextlib.contextmanager
    def start(
        name: str,
        volume: Path,
        *patch: dict[str, Any],
        passes: int,
        reference: Path | None,
        flags: tuple[str, ...] = (),
        host_path: Path | None = None,
        edit: Callable[[Path], None] = lambda tree: None,
        manifests: Path = REPOSITORY / "k8s",
    ) -> Iterator[LongJob]:
        if not volume.exists():
            fill_volume(shards, volume, edit)
        with namespace_with_volume(cluster, name, volume, host_path) as space, PodWatch(space, JOB) as watch:
            directory = overlay(name, (JOB, [training(passes, *flags), *patch]), manifests=manifests)
            space.kubectl("create", "-k", directory, "-l", "app.kubernetes.io/component in (access, volume)")
            job = LongJob(space, directory, passes, reference, watch)
            job.create()
            yield job

    return start


@pytest.fixture(scope="session")
def reference(runner: Runner, once: Once) -> Path:
    """Output of the undisturbed run; its pass k is that of every job, however many passes that has."""

    def make(directory: Path) -> None:
        with runner("undisturbed", directory / "volume", passes=REFERENCE_PASSES, reference=None) as job:
            job.wait_for_success()
            job.check_pods()
            assert job.attempt() == 1
            shutil.copytree(job.output, directory / "output")

    return once("undisturbed", make) / "output"


@pytest.fixture
def long_job(runner: Runner, reference: Path, tmp_path: Path) -> Iterator[StartJob]:
    """long_job(name, patch..., passes=3, flags, edit, manifests): the Job, created, in a namespace of that name.

    edit(tree): changes <volume>/paddle-cluster-job before.
    """
    with contextlib.ExitStack() as stack:

        def start(name: str, *patch: dict[str, Any], passes: int = 3, **options: Any) -> LongJob:
            run = runner(name, tmp_path / name, *patch, passes=passes, reference=reference, **options)
            return stack.enter_context(run)

        yield start
