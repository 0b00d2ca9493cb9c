"""The job on a real network file system that is slow, unreachable or read-only, or whose client on a node ends.

Each pod uses the mount of its own node.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes_cluster import exit_codes
from long_job import LongJob, Runner, fill_volume
from moosefs import MooseFs, running_moosefs
from saved import check_saved

AWAY_S = 20.0
PASSES = 3
READ_ONLY = r"Read-only file system.*the volume is read-only: mount it read-write"
Start = Callable[..., contextlib.AbstractContextManager[LongJob]]
# seconds; after a refused write, the client may block access to the file until the master's lock of two minutes ends
HELD_S = 300.0


@pytest.fixture
def moosefs(request: pytest.FixtureRequest, digits: Path) -> Iterator[MooseFs]:
    """A MooseFS with the digits."""
    with running_moosefs("job") as file_system:
        fill_volume(digits, file_system.volume, PASSES)
        yield file_system


@pytest.fixture
def start(moosefs: MooseFs, runner: Runner, reference: Path) -> Start:
    """start(name): create the Job on the file system of the fixture `moosefs`."""

    def begin(name: str) -> contextlib.AbstractContextManager[LongJob]:
        volume, patch = moosefs.volume, moosefs.patch()
        return runner(name, volume, *patch, passes=PASSES, reference=reference, host_path=moosefs.nodes)

    return begin


def finish(job: LongJob, *, lost: tuple[int, ...] = ()) -> None:
    """Check that the job ends with the bits of the undisturbed run, and that only pods of `lost` were replaced."""
    job.wait_for_success(seconds=600)
    job.check_bits()
    job.check_pods(lost=lost)
    assert "Traceback" not in job.logs()


def test_a_slow_file_system_slows_down_saving_and_nothing_else(moosefs: MooseFs, start: Start) -> None:
    moosefs.do("slow", "200")
    with start("moosefs-slow") as job:
        finish(job)
        assert job.attempt() == 1


@pytest.mark.parametrize(("harm", "cure"), [("freeze", "thaw"), ("cut", "join")])
def test_a_file_system_that_is_away_in_mid_training_is_waited_for(
    moosefs: MooseFs, start: Start, harm: str, cure: str
) -> None:
    with start(f"moosefs-{harm}") as job:
        job.wait_for_batch(0, 60)
        moosefs.do(harm)
        time.sleep(AWAY_S)
        moosefs.do(cure)
        finish(job)


def test_a_file_system_that_is_away_before_training_is_waited_for(moosefs: MooseFs, start: Start) -> None:
    moosefs.do("freeze")
    with start("moosefs-away") as job:
        time.sleep(AWAY_S)
        assert not job.log(0)
        moosefs.do("thaw")
        finish(job)


def test_a_file_system_that_becomes_read_only_is_waited_for_and_said(moosefs: MooseFs, start: Start) -> None:
    with start("moosefs-read-only") as job:
        job.wait_for_batch(0, 60)
        moosefs.do("read-only")
        job.wait_for_log(0, r"cannot save to .*(Read-only file system|No such device or address)", seconds=HELD_S)
        job.wait_for_log(0, rf"waiting: .*{READ_ONLY}", seconds=HELD_S)
        check_saved(job)
        moosefs.do("read-write")
        finish(job)


def test_a_read_only_file_system_is_an_error_before_training(moosefs: MooseFs, start: Start) -> None:
    moosefs.do("read-only")
    with start("moosefs-unwritable") as job:
        job.wait_for_log(0, rf"error: .*{READ_ONLY}")
        job.wait("pod that ended with 74", lambda: 74 in exit_codes(job.watch.pods(gone=True)))
        assert check_saved(job) == 0
        moosefs.do("read-write")
        job.wait_for_success(seconds=600)
        job.check_bits()


def test_a_pod_whose_node_has_lost_its_client_is_replaced(moosefs: MooseFs, start: Start) -> None:
    """The mount inside the pod stays dead even after the node has mounted the file system again."""
    with start("moosefs-client") as job:
        job.wait_for_batch(0, 60)
        node = job.node(0)
        there = tuple(index for index in range(3) if job.node(index) == node)
        moosefs.do("unmount", node)
        moosefs.do("mount", node)
        job.let_end()
        job.wait_for_log(0, r"error: this pod's mount of the volume, \S+, is dead")
        finish(job, lost=there)
