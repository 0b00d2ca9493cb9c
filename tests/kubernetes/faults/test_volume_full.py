"""A full volume causes a clear error before training; during training, the job waits for room and then continues."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_cluster import Cluster, exit_codes, run
from long_job import LongJob, Runner, fill_volume
from saved import check_saved

PASSES = 3
FULL = r"No space left on device.*the volume is full: make room"


class SmallDisk:
    """A file system of 64 MB in memory, and a file that can fill it."""

    def __init__(self, directory: Path):
        self.volume, self._ballast = directory / "volume", directory / "ballast"

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                try:
                    while file.write(os.urandom(size)):
                        pass
                except OSError:
                    continue  # with smaller blocks
        assert os.statvfs(self._ballast).f_bavail == 0

    def make_room(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def disk(cluster: Cluster, tmp_path: Path) -> Iterator[SmallDisk]:
    """Mount it where `cluster down` unmounts what tests that were killed have left."""
    directory = cluster.kubeconfig.parent / "disks" / tmp_path.name
    directory.mkdir(parents=True)
    run("mount", "-t", "tmpfs", "-o", "size=64M", "small-disk", directory)
    try:
        yield SmallDisk(directory)
    finally:
        run("umount", "--lazy", directory)
        directory.rmdir()


@pytest.mark.short
def test_a_job_whose_volume_fills_up_waits_for_room_and_goes_on(
    runner: Runner, reference: Path, disk: SmallDisk
) -> None:
    with runner("volume-filled", disk.volume, passes=PASSES, reference=reference) as job:
        job.wait_for_batch(0, 60)
        disk.fill()
        job.let_end()
        job.wait_for_log(0, r"cannot save to .*No space left on device")
        job.wait_for_log(0, rf"waiting: .*{FULL}")
        check_saved(job)
        disk.make_room()
        finish(job)


def test_a_full_volume_is_an_error_before_training_and_the_job_runs_when_there_is_room(
    runner: Runner, digits: Path, reference: Path, disk: SmallDisk
) -> None:
    fill_volume(digits, disk.volume, PASSES)
    disk.fill()
    with runner("volume-full", disk.volume, passes=PASSES, reference=reference) as job:
        job.wait_for_log(0, rf"error: .*{FULL}")
        job.wait("pod that ended with 74", lambda: 74 in exit_codes(job.watch.pods(gone=True)))
        assert check_saved(job) == 0
        assert "Traceback" not in job.logs()
        disk.make_room()
        job.wait_for_success()
        job.check_bits()


def finish(job: LongJob) -> None:
    """Check that the job ends with the bits of the undisturbed run, and with its first pods."""
    job.wait_for_success()
    job.check_bits()
    job.check_pods()
    assert "Traceback" not in job.logs()
