"""Fixtures of the fault tests: the digits, an undisturbed run for comparison, and jobs that a test disturbs."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_cluster import REPOSITORY, Cluster, Once, Overlay, namespace_with_volume
from long_job import JOB, REFERENCE_PASSES, LongJob, Runner, StartJob, fill_volume, training
from pod_watch import PodWatch

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("faults")
            # The timeout is for the test function alone, because fixtures of the session have their own deadlines.
            # pytest-timeout obeys the first marker.
            item.add_marker(pytest.mark.timeout(1200, func_only=True), append=False)


@pytest.fixture(scope="session")
def runner(cluster: Cluster, digits: Path, overlay: Overlay) -> Runner:
    """runner(name, volume, patch..., passes, reference): a Job in a namespace `name` that exists during the block.

    Options: host_path: the path that the nodes mount, if it differs from the path by which the tests see the volume.
    manifests: a copy of k8s/ with components, which is used instead of k8s/.
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
            fill_volume(digits, volume, passes, edit)
        with namespace_with_volume(cluster, name, volume, host_path) as space, PodWatch(space, JOB) as watch:
            directory = overlay(name, (JOB, [training(passes, *flags), *patch]), manifests=manifests)
            space.kubectl("create", "-k", directory, "-l", "app.kubernetes.io/component in (access, volume)")
            job = LongJob(space, directory, passes, reference, watch)
            job.create()
            yield job

    return start


@pytest.fixture(scope="session")
def reference(runner: Runner, once: Once) -> Path:
    """Return the output of the undisturbed run. Pass k of any other job must equal its pass k."""

    def make(directory: Path) -> None:
        with runner("undisturbed", directory / "volume", passes=REFERENCE_PASSES, reference=None) as job:
            job.wait_for_success()
            job.check_pods()
            assert job.attempt() == 1
            shutil.copytree(job.output, directory / "output")

    return once("undisturbed", make) / "output"


@pytest.fixture
def long_job(runner: Runner, reference: Path, tmp_path: Path) -> Iterator[StartJob]:
    """long_job(name, patch..., passes=3, flags, edit, manifests): create the Job in a namespace `name`.

    edit(tree): changes <volume>/paddle-cluster-job before the Job is created.
    """
    with contextlib.ExitStack() as stack:

        def start(name: str, *patch: dict[str, Any], passes: int = 3, **options: Any) -> LongJob:
            run = runner(name, tmp_path / name, *patch, passes=passes, reference=reference, **options)
            return stack.enter_context(run)

        yield start
