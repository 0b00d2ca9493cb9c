"""Take the snapshots of a server of a task job at the right times, and register them in the registry.

The loop's thread copies the state between two messages, and another thread stores the copy in three steps:

- A temporary file is written, synced and renamed.
- The server's key in the registry, which names the file, is written. A server that has lost its claim cannot write it.
- Older files are removed.

If a server ends before the key is written, its successor resumes from the older snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddle_base.registry.interface import Claim
from paddle_base.registry.records import CheckpointRecord
from paddle_base.registry.servers import CHECKPOINTS
from paddle_base.runtime import glog
from paddle_base.runtime.bounded_json import is_integer
from paddle_base.runtime.durable_files import remove_if_possible
from paddle_base.runtime.errors import DamagedError, PaddleError
from pserver.server.handlers.background_task import BackgroundTask
from pserver.server.tasks.service import TaskService
from pserver.store.snapshot_files import Content, path_of_new, remove_others, write_snapshot

RETRY_S = 10.0  # seconds before a failed snapshot is tried again
# keys in the description of a service; their values are the number of the service in the server, and its state. The
# word "capture" stands in files of older releases.
PART, STATE = "service", "capture"


class SnapshotStore:
    """Write the snapshots of a server, one after the other, and register each as the current snapshot.

    Args: claim: the claim of the server's index; if the claim is lost, the registry refuses writes. directory: the
        directory of the snapshots.
    """

    def __init__(self, claim: Claim, index: int, directory: Path) -> None:
        self.directory, self.index = directory, index
        self._claim = claim
        self._files: list[Path] = []  # snapshot files of this server; one of them is registered

    def resume(self, path: Path) -> None:
        """Set which file is registered, and remove all other snapshot files of this server."""
        self._files = [path]
        remove_others(self.directory, self.index, path)

    def store(self, contents: list[Content], step: int) -> None:
        """Write a snapshot and register it.

        Raises: VolumeError: the file cannot be written.  LeaseLostError: the registry refuses to write the key. Then no
            file is removed, because any of the files may be registered.
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
        glog.info(f"stored a snapshot after {step} steps: {path} (written in {time.monotonic() - began:.2f} s)")


class FirstSnapshot:
    """A snapshot that a service waits for; the attempt to store it is repeated until it succeeds or the server ends."""

    error: PaddleError | None = None

    def __init__(self, snapshots: Snapshots, number: int) -> None:
        self._snapshots, self._number = snapshots, number

    @property
    def is_done(self) -> bool:
        """Whether the snapshot is stored."""
        return self._snapshots.stored >= self._number


class Snapshots:
    """The snapshots of the services of a server.

    Attributes: stored: number of snapshots that this process has stored.  failed: number of failed snapshots.
    stored_at: time at which the last snapshot was stored or recovered, in seconds of `time.monotonic`.

    Only the loop's thread may use an object of this class.
    """

    def __init__(self, services: Sequence[TaskService], store: SnapshotStore) -> None:
        self.stored = self.failed = 0
        self.stored_at = time.monotonic()
        self._services, self._store = services, store
        self._taken = self._wanted = 0
        self._steps = 0  # number of steps of all services at the last snapshot; -1: the last snapshot failed
        self._retry_at = 0.0
        self._task: BackgroundTask | None = None

    def ask(self, service: TaskService) -> FirstSnapshot:
        """Request a snapshot of the current state of the services."""
        self._wanted = self._taken + 1
        return FirstSnapshot(self, self._wanted)

    def turn(self, interval: float) -> bool:
        """Perform the due work between two messages; return whether a snapshot has been stored.

        Args: interval: seconds between two regular snapshots.
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
        """Store a snapshot now, and return after it is stored.

        Raises: VolumeError, LeaseLostError: the snapshot was not stored.
        """
        if self._task is not None:
            self._task.wait()
            self._collect(time.monotonic())
        if self._count_steps() != self._steps:
            self._store.store(self._take(), self._steps)
            self.stored = self._taken

    def resume(self, path: Path) -> None:
        """Record that the services have just been restored from a file."""
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
        self._taken -= 1  # requests for the failed snapshot wait for the next snapshot
        self._steps, self._retry_at = -1, now + RETRY_S
        glog.error(f"no snapshot is stored; the next attempt is in {RETRY_S:g} s: {task.error}")
        return False

    def _count_steps(self) -> int:
        return sum(service.steps for service in self._services)

    def _take(self) -> list[Content]:
        self._taken += 1
        self._steps = self._count_steps()
        snapshots = [service.take_snapshot() for service in self._services]
        return [
            ({PART: number, STATE: taken.note}, dict(taken.arrays))
            for number, taken in enumerate(snapshots)
            if taken is not None
        ]


def split_content(content: Content) -> tuple[int, dict[str, Any]]:
    """Return the number of a service and its description, from a part of a snapshot file.

    Raises: DamagedError: the description is invalid.
    """
    number, note = content[0].get(PART), content[0].get(STATE)
    if not is_integer(number) or not isinstance(note, dict):
        raise DamagedError("a part of it does not name its service")
    return int(number), note  # type: ignore[arg-type]
