"""What the workers of a trial have written down, as it is read while they write and after the end."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Commit:
    """A state that a worker has kept.

    step: how many steps are in it.  batch: the samples of the last one, of all ranks.  weights: a digest of their bits.
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

    end: its last line, of the finished work.  read: bytes of its file that are in here.
    """

    name: str
    pid: int = 0
    host: str = ""
    local_rank: int = 0
    commits: list[Commit] = field(default_factory=list)
    end: dict[str, Any] | None = None
    read: int = 0

    def take(self, data: bytes) -> None:
        """Take what the file has beyond `read`; half a line at its end is left."""
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
    """All processes that there ever were, by name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.workers: dict[str, WorkerRecord] = {}

    def look(self) -> None:
        """Read what is new."""
        for path in sorted(self._directory.iterdir()):
            worker = self.workers.setdefault(path.name, WorkerRecord(path.name))
            with path.open("rb") as file:
                file.seek(worker.read)
                worker.take(file.read())

    @property
    def begun(self) -> list[WorkerRecord]:
        """The processes that have said who they are."""
        return [worker for worker in self.workers.values() if worker.pid]

    @property
    def steps(self) -> int:
        """How many steps any worker has committed."""
        return max((worker.commits[-1].step for worker in self.workers.values() if worker.commits), default=0)

    @property
    def generation(self) -> int:
        """The newest generation that has committed anything; 0: none has."""
        return max((worker.commits[-1].generation for worker in self.workers.values() if worker.commits), default=0)

    def list_holders(self, struck: dict[str, int]) -> list[WorkerRecord]:
        """Return the workers that have the newest state, or all of them where there is none yet.

        Args: struck: by name of a worker that something was done to, how many commits it had; it counts again when it
            has more.
        """
        newest = self.generation
        return [
            worker
            for worker in self.begun
            if len(worker.commits) > struck.get(worker.name, -1)
            and (not newest or (worker.commits and worker.commits[-1].generation == newest))
        ]
