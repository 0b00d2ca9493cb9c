"""How far a job is, read from what it writes while it runs: trainer 0's log and the directories of saves."""

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
    """What is known of the job in `output`; `look` brings it up to date.

    logs: how many train.log files trainer 0 has begun, one an attempt. batch, passes: batches of the pass in hand and
    passes ended, by the newest one. saves, states: names that came up in output/ and output/state/, in that order,
    while they were written or after.
    """

    output: Path
    logs: int = 0
    batch: int = 0
    passes: int = 0
    has_batches: bool = False  # the newest log has some
    saves: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    _inode: int = 0
    _offset: int = 0

    def look(self) -> None:
        """Read what came since the last look."""
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
    """Whether the job has come to the moment of a trial (all but `start`, which is about processes)."""
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
