"""Reads the files of the workers of a trial, while they write them and after the end."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Commit:
    """A state that a worker has committed.

    step: its number of steps.  batch: the samples of its last step, of all ranks.  weights: a digest of their bits.
    """

    step: int
    generation: int
    rank: int
    size: int
    epoch: int
    batch: tuple[int, ...]
    weights: str


@dataclass
class WorkerRecord:
    """One process of a worker.

    end: the last line of its file, if it has finished the work.  read: number of bytes of the file that are read.
    """

    name: str
    pid: int = 0
    host: str = ""
    local_rank: int = 0
    commits: list[Commit] = field(default_factory=list)
    end: dict[str, Any] | None = None
    read: int = 0

    def take(self, data: bytes) -> None:
        """Add the lines that the file has after the first `read` bytes; an incomplete last line is read later."""
        whole = data[: data.rfind(b"\n") + 1]
        self.read += len(whole)
        for line in whole.splitlines():
            fields = json.loads(line)
            if "pid" in fields:
                self.pid, self.host, self.local_rank = fields["pid"], fields["host"], int(fields["local_rank"])
            elif "end" in fields:
                self.end = fields
            else:
                self.commits.append(Commit(**{**fields, "batch": tuple(fields["batch"])}))


class Ledger:
    """All processes of all workers so far, by name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.workers: dict[str, WorkerRecord] = {}

    def look(self) -> None:
        """Read the new lines of all files."""
        for path in sorted(self._directory.iterdir()):
            worker = self.workers.setdefault(path.name, WorkerRecord(path.name))
            with path.open("rb") as file:
                file.seek(worker.read)
                worker.take(file.read())

    @property
    def begun(self) -> list[WorkerRecord]:
        """The processes that have written their first line."""
        return [worker for worker in self.workers.values() if worker.pid]

    @property
    def steps(self) -> int:
        """The highest number of steps that a worker has committed."""
        return max((worker.commits[-1].step for worker in self.workers.values() if worker.commits), default=0)

    @property
    def generation(self) -> int:
        """The newest generation with a commit; 0 if there is none."""
        return max((worker.commits[-1].generation for worker in self.workers.values() if worker.commits), default=0)

    def list_holders(self, struck: dict[str, int]) -> list[WorkerRecord]:
        """Return the workers that have the newest state, or all workers if there is no state yet.

        Args: struck: name of a harmed worker -> its number of commits then; it counts again when it has more commits.
        """
        newest = self.generation
        return [
            worker
            for worker in self.begun
            if len(worker.commits) > struck.get(worker.name, -1)
            and (not newest or (worker.commits and worker.commits[-1].generation == newest))
        ]
