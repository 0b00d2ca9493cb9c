"""The progress of a running job, read from trainer 0's log and from the directories of saves."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from chaos.plan import BATCHES, PASSES, Trial

BATCH = re.compile(rb" Batch=(\d+) samples=")
PASS = re.compile(rb" Pass=(\d+) Batch=")


@dataclass
class Progress:
    """The progress of the job in `output`; `look` updates it.

    logs: number of train.log files of trainer 0, one for each attempt. batch, passes: batches of the current pass and
    number of ended passes, from the newest log. saves, states: names that appeared in output/ and output/state/, in the
    order of appearance; a directory may still be incomplete.
    """

    output: Path
    logs: int = 0
    batch: int = 0
    passes: int = 0
    has_batches: bool = False  # whether the newest log has batches
    saves: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    _inode: int = 0
    _offset: int = 0

    def look(self) -> None:
        """Read the lines and names that are new since the last call."""
        self._read_log(self.output / "node_0" / "train.log")
        self._list(self.output, "pass-", self.saves)
        self._list(self.output / "state", "", self.states)

    def _read_log(self, log: Path) -> None:
        try:
            with log.open("rb") as stream:
                inode = os.fstat(stream.fileno()).st_ino
                if inode != self._inode:
                    self._inode, self._offset, self.batch, self.has_batches = inode, 0, 0, False
                    self.logs += 1
                stream.seek(self._offset)
                content = stream.read()
        except FileNotFoundError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            if match := PASS.search(line):
                self.passes, self.batch = int(match[1]) + 1, 0
            elif match := BATCH.search(line):
                self.batch, self.has_batches = int(match[1]), True

    @staticmethod
    def _list(directory: Path, part: str, known: list[str]) -> None:
        try:
            names = sorted(entry.name for entry in os.scandir(directory) if part in entry.name)
        except FileNotFoundError:
            return
        known += [name for name in names if name not in known]


def is_moment(trial: Trial, progress: Progress) -> bool:
    """Whether the job has reached the moment of a trial, except `start`, which depends on processes."""
    match trial.moment:
        case "first-batch":
            return progress.has_batches
        case "mid-pass":
            return progress.passes > trial.number or (progress.passes == trial.number and progress.batch >= trial.batch)
        case "pass-end":
            return progress.passes > trial.number
        case "saving" if trial.saved == "pass":
            return any(f"pass-{trial.number:05d}" in name for name in progress.saves)
        case "saving":
            return len(progress.states) >= trial.nth_state
        case "last-batch":
            return progress.passes >= PASSES or (progress.passes == PASSES - 1 and progress.batch >= BATCHES - 1)
    raise ValueError(f"no moment {trial.moment!r}")
