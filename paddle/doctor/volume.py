"""Checks the shared volume: whether files can be written, synced and renamed, the free space, and the clock."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

from paddle.doctor.findings import Diagnosis
from paddle.doctor.probing import DoctorCase
from paddle_base.runtime.durable_files import sync_directory
from paddle_base.runtime.errors import MissingInputError, VolumeError
from paddle_cluster.launcher.volume import describe_volume_error

DEFAULT = "/home/jobpath"  # the default of JOB_PATH in a pod that has a JOB_NAME
LEAST_BYTES = 1 << 30  # free bytes below which the check warns
LEAST_FILES = 1000  # free inodes below which the check warns
SLOW_S = 2.0  # seconds for writing a small durable file above which the check warns
MOST_SKEW_S = 30.0  # difference of two clocks, in seconds, above which the check warns
SAMPLE = b"paddle doctor\n"


def check_volume(case: DoctorCase) -> list[Diagnosis]:
    """Check the given directory, or else the directory of this pod's job."""
    place = find_directory(case)
    if place is None:
        return [Diagnosis("volume", "not checked: JOB_PATH is not set; paddle doctor DIR checks DIR", applies=False)]
    if not os.path.isdir(place):  # noqa: PTH112 - Path's fails where a directory above may not be looked into
        return [
            Diagnosis(
                "volume",
                f"there is no directory {place}",
                "jobs have neither data nor a place for output",
                "mount the volume at this path (k8s/pvc.yaml), or correct JOB_PATH",
                MissingInputError.exit_code,
            )
        ]
    began = time.monotonic()
    try:
        skew = try_files(place)
    except OSError as error:
        # the text of an error has its advice after the last semicolon
        why, _, advice = describe_volume_error(place, error).rpartition("; ")
        cost = "no log, checkpoint or parameter can be saved"
        return [Diagnosis("volume", why, cost, advice, VolumeError.exit_code)]
    found = [judge_room(place, time.monotonic() - began)]
    if abs(skew) > MOST_SKEW_S:
        found.append(judge_skew("the volume's server", skew))
    if case.environ.get("KUBERNETES_SERVICE_HOST") and not case.volume and not lies_on_mount(place):
        found.append(
            Diagnosis(
                "mount",
                f"{place} lies in the container's own file system",
                "files in this directory are lost with the pod, and no other pod sees them",
                "mount the volume at JOB_PATH: volumes and volumeMounts of k8s/job.yaml",
            )
        )
    return found


def find_directory(case: DoctorCase) -> Path | None:
    """Return the directory to check: `case.volume`, or the deepest existing directory of this pod's job, or None."""
    if case.volume:
        return Path(case.volume)
    job = case.environ.get("JOB_NAME", "")
    volume = case.environ.get("JOB_PATH", "") or (DEFAULT if job else "")
    if not volume:
        return None
    places = [Path(volume, job, "output"), Path(volume, job), Path(volume)] if job else [Path(volume)]
    return next((place for place in places if os.path.isdir(place)), places[-1])  # noqa: PTH112 - see above


def try_files(directory: Path) -> float:
    """Write, sync, rename, read and remove a small file. Return how many seconds the volume's clock is ahead.

    Raises: OSError.
    """
    name = f".paddle-doctor.{secrets.token_hex(8)}"
    staging, final = directory / f"{name}.writing", directory / name
    try:
        before = time.time()
        with staging.open("xb") as file:
            file.write(SAMPLE)
            file.flush()
            os.fsync(file.fileno())
        after = time.time()
        staging.replace(final)
        sync_directory(directory)
        stamp = final.stat().st_mtime
        if final.read_bytes() != SAMPLE:
            raise OSError(5, "a file does not have the bytes that were written", str(final))
    except OSError as error:
        error.filename = error.filename or str(staging)
        raise
    finally:
        for path in (staging, final):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    # the volume took its time between the two others; only what lies outside is a difference
    return stamp - after if stamp > after else min(0.0, stamp - before)


def judge_room(directory: Path, seconds: float) -> Diagnosis:
    """Return the result about a directory: its free space, and the `seconds` that a small file took."""
    facts = os.statvfs(directory)
    free = facts.f_bavail * facts.f_frsize
    text = f"{directory} can be written, synced and renamed in {seconds:.2f} s; {free / (1 << 30):.1f} GiB are free"
    if free < LEAST_BYTES or (facts.f_files > 0 and facts.f_favail < LEAST_FILES):
        files = f", and {facts.f_favail} files" if facts.f_files else ""
        return Diagnosis(
            "volume",
            f"{text}{files}",
            "if a save fails for lack of room, the attempt ends with status 74",
            "make room on the volume",
        )
    if seconds > SLOW_S:
        cost = "each save takes several times as long, and training waits for it"
        return Diagnosis("volume", text, cost, "look at the volume's server, or save less often: --saving_period")
    return Diagnosis("volume", text)


def lies_on_mount(directory: Path) -> bool:
    """Return whether the directory is on another file system than the container's root."""
    return directory.stat().st_dev != Path("/").stat().st_dev


def judge_skew(server: str, seconds: float) -> Diagnosis:
    """Return the problem that the clock of `server` is `seconds` ahead of (negative: behind) this machine's clock."""
    way = "ahead of" if seconds > 0 else "behind"
    return Diagnosis(
        "clock",
        f"the clock of {server} is {abs(seconds):.0f} s {way} this machine's",
        "ages in `paddle status` and the report are wrong by this time; a certificate may be refused as not yet valid",
        "synchronise the clocks of the nodes (chrony, systemd-timesyncd)",
    )
