"""When a server of an elastic job takes a snapshot, and how that becomes the one it goes on from.

It is copied between two messages by the loop's thread, and written by another one: a temporary file, synced, renamed;
then the key in the registry, which the claim fences; only then are older files removed. A server that dies in between
goes on from the older one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pserver.server.elastic.service import ElasticService
from pserver.server.handlers.background_task import BackgroundTask
from pserver.store.snapshot_files import Content, path_of_new, remove_others, write_snapshot
from registry.interface import Claim
from registry.records import CheckpointRecord
from registry.servers import CHECKPOINTS
from runtime import glog
from runtime.bounded_json import is_integer
from runtime.durable_files import remove_if_possible
from runtime.errors import DamagedError, PaddleError

RETRY_S = 10.0  # until a snapshot that could not be written is tried again
PART, CAPTURE = "service", "capture"  # keys of what a file says of a service: its place among those of the server


class SnapshotStore:
    """Writes the snapshots of a server, one after the other, and makes each the one to go on from.

    Args: claim: of the server's index, which fences what is written.  directory: of the snapshots.
    """

    def __init__(self, claim: Claim, index: int, directory: Path) -> None:
        self.directory, self.index = directory, index
        self._claim = claim
        self._files: list[Path] = []  # of which the registry has one

    def resume(self, path: Path) -> None:
        """Note which file the registry has; others of this server are removed."""
        self._files = [path]
        remove_others(self.directory, self.index, path)

    def store(self, contents: list[Content], step: int) -> None:
        """Write a snapshot and make it the one to go on from.

        Raises: VolumeError: the file cannot be written.  LeaseLostError: the registry does not take it; then all files
            stay, because any may be the one that the registry has.
        """
        began = time.monotonic()
        name, path = path_of_new(self.directory, self.index)
        crc = write_snapshot(path, contents)
        older, self._files = self._files, [*self._files, path]
        record = CheckpointRecord(name, str(path), crc, step, time.time_ns())
        self._claim.put(f"{CHECKPOINTS}{self.index}", record.value)
        self._files = [path]
        for one in older:
            remove_if_possible(one)
        glog.info(f"stored a snapshot after {step} steps in {time.monotonic() - began:.2f} s: {path}")


class FirstSnapshot:
    """A snapshot that a service waits for; it is tried until it is stored, or the server ends."""

    error: PaddleError | None = None

    def __init__(self, snapshots: Snapshots, number: int) -> None:
        self._snapshots, self._number = snapshots, number

    @property
    def is_done(self) -> bool:
        """Whether it is stored."""
        return self._snapshots.stored >= self._number


class Snapshots:
    """The snapshots of the services of a server.

    Attributes: stored: number of those that this process has stored.  failed: of those that could not be written.
        stored_at: when the last one was stored or recovered, in seconds of `time.monotonic`.

    Thread safety: none; the loop's thread calls.
    """

    def __init__(self, services: Sequence[ElasticService], store: SnapshotStore) -> None:
        self.stored = self.failed = 0
        self.stored_at = time.monotonic()
        self._services, self._store = services, store
        self._taken = self._wanted = 0
        self._steps = 0  # of the last one that was taken; -1: it is not stored
        self._retry_at = 0.0
        self._task: BackgroundTask | None = None
        self._files: list[Path] = []  # of which the registry has one

    def ask(self, service: ElasticService) -> FirstSnapshot:
        """Want a snapshot of the services as they are now."""
        self._wanted = self._taken + 1
        return FirstSnapshot(self, self._wanted)

    def turn(self, interval: float) -> bool:
        """Do what is due between two messages; return whether a snapshot has been stored.

        Args: interval: seconds between two snapshots that nobody asks for.
        """
        now = time.monotonic()
        is_stored = self._collect(now)
        if self._task is not None or now < self._retry_at:
            return is_stored
        is_due = now - self.stored_at >= interval and self._count_steps() != self._steps
        if self._wanted > self._taken or is_due:
            contents, steps = self._take(), self._steps
            self._task = BackgroundTask(lambda: self._store.store(contents, steps))
        return is_stored

    def store_last(self) -> None:
        """Store a snapshot now, and return when it is stored.

        Raises: VolumeError, LeaseLostError: it could not be.
        """
        if self._task is not None:
            self._task.wait()
            self._collect(time.monotonic())
        if self._count_steps() != self._steps:
            self._store.store(self._take(), self._steps)
            self.stored = self._taken

    def resume(self, path: Path) -> None:
        """Note that the services have just gone on from a file."""
        self._steps, self.stored_at = self._count_steps(), time.monotonic()
        self._store.resume(path)

    # -----

    def _collect(self, now: float) -> bool:
        task = self._task
        if task is None or not task.is_done:
            return False
        self._task = None
        if task.error is None:
            self.stored, self.stored_at = self._taken, now
            return True
        self.failed += 1
        self._taken -= 1  # those who wait for it wait for the next one
        self._steps, self._retry_at = -1, now + RETRY_S
        glog.error(f"no snapshot is stored; the next trial is in {RETRY_S:g} s: {task.error}")
        return False

    def _count_steps(self) -> int:
        return sum(service.steps for service in self._services)

    def _take(self) -> list[Content]:
        self._taken += 1
        self._steps = self._count_steps()
        captures = [service.capture() for service in self._services]
        return [
            ({PART: number, CAPTURE: capture.note}, dict(capture.arrays))
            for number, capture in enumerate(captures)
            if capture is not None
        ]


def split_content(content: Content) -> tuple[int, dict[str, Any]]:
    """Return the place of a service and what it says of itself, of a part of a file.

    Raises: DamagedError: it is none.
    """
    number, note = content[0].get(PART), content[0].get(CAPTURE)
    if not is_integer(number) or not isinstance(note, dict):
        raise DamagedError("it does not say which service it is of")
    return int(number), note  # type: ignore[arg-type]
