"""What a run tells its owner beside the log: records, progress and report, in files of the job's output directory.

Only trainer 0 writes records.jsonl, progress.json and report.html; every trainer of a job under the launcher keeps its
own node_<id>/progress.json, from which trainer 0 learns how the others fare. All of it is written by a thread, so that
a volume that is slow or away holds up no training; what cannot be written is lost with one WARNING.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.evaluators import Accumulator
from trainer.progress import Progress
from trainer.progress_files import find_slowest, job_speed, read_job, read_trainers, write_progress
from trainer.records import LARGEST, Record, encode_record, numbers_of
from trainer.usage import Usage
from trainer.writer import PERIOD_S, Writer

LAST_WRITES_S = 10.0  # for the files of the end; a volume that is away must not hold up the exit
ALL_BATCHES = 10_000  # so many batch records are all written, of further ones one a second
TRAINING, FINISHED, FAILED, STOPPED = "training", "finished", "failed", "stopped"


@dataclass(frozen=True)
class Target:
    """Where a trainer writes; `node` is its own directory there, None without a launcher."""

    output: Path
    node: Path | None
    trainer_id: int
    attempt: str = ""
    host: str = ""

    @property
    def is_first(self) -> bool:
        """Whether this is trainer 0, the one writer of the job's files."""
        return self.trainer_id == 0


def find_target(save_dir: str, trainer_id: int, environ: Mapping[str, str]) -> Target | None:
    """Return where a trainer writes: into the launcher's PADDLE_OUTPUT, else the save directory; None: nowhere."""
    output = environ.get("PADDLE_OUTPUT", "")
    node = Path(output) / f"node_{trainer_id}" if output else None
    if trainer_id and node is None:
        return None
    host = environ.get("POD_NAME") or socket.gethostname()
    return Target(Path(output or save_dir), node, trainer_id, environ.get("PADDLE_ATTEMPT", ""), host)


class Reporter:
    """What the session tells of its run.

    Args: target: None: nothing is written, the lines of progress are all there is.  passes: the number of the last one,
        plus 1.  line_period_s: between two lines of progress; 0: none.
    """

    def __init__(
        self,
        target: Target | None = None,
        passes: int = 0,
        line_period_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.usage = Usage()
        self._target, self.passes = target, passes
        self._line_period_s, self._clock = line_period_s, clock
        self._last_line = self._last_look = clock()
        known = read_job(target.output).get("pass_samples") if target and target.is_first else 0
        self._progress = Progress(passes, known if isinstance(known, int) and 0 < known < LARGEST else 0, clock)
        self._place = self._progress.look()
        self._numbers: Record = {"cost": None, "evaluators": {}}  # of the newest line of the log
        self._others: dict[str, Record] = {}  # trainer -> what its progress.json says
        self._status, self._message = TRAINING, ""
        self._batch_records, self._last_batch_record, self._began_pass = 0, -math.inf, clock()
        self._writer = Writer(target.output, self._write_progress, has_report=target.is_first) if target else None

    @property
    def numbers(self) -> Record:
        """Cost and evaluators of the newest line of the log; the cost is None before the first."""
        return self._numbers

    @property
    def samples_per_second(self) -> float:
        """This trainer's speed, of a few seconds."""
        return self._place.samples_per_second

    # ----- What the session says

    def start(self, **facts: Any) -> None:
        """Begin to train; `facts` are those of a start record."""
        if self._writer is not None:
            self._writer.start()
        self._record("start", **facts)

    def start_pass(self, number: int, batches: int = 0, samples: int = 0) -> None:
        """Begin a pass, or go on in it."""
        self._began_pass = self._clock()
        self.usage.pass_number, self.usage.batch = number, batches
        self._progress.start_pass(number, samples)

    def add(self, batch: int, samples: int, cost: float) -> str:
        """Count a batch, and return the line of progress if it is due, or ""."""
        self.usage.count(batch, samples, cost)
        self._progress.add(samples)
        now = self._clock()
        if now - self._last_look >= PERIOD_S:
            self._last_look, self._place = now, self._progress.look()
        if not self._line_period_s or now - self._last_line < self._line_period_s:
            return ""
        self._last_line = now
        return self._place.text(job_speed(self._trainers()))

    def add_batch_line(self, since_start: Accumulator, window: Accumulator) -> Record:
        """Record what a batch line of the log says; returns the record."""
        self._numbers = numbers_of(since_start)
        window_numbers = numbers_of(window, "window_")
        self._batch_records += 1
        now = self._clock()
        is_kept = self._batch_records <= ALL_BATCHES or now - self._last_batch_record >= 1.0
        if is_kept:
            self._last_batch_record = now
        numbers = {**self._numbers, **window_numbers}
        return self._record("batch", is_kept=is_kept, **self._where(), samples=since_start.samples, **numbers)

    def finish_pass(self, since_start: Accumulator) -> Record:
        """Record the end of a pass; returns the record."""
        self.usage.passes += 1
        self._progress.finish_pass(since_start.samples)
        self._place = self._progress.look()
        self._numbers = numbers_of(since_start)
        usage = {number: other["usage"] for number, other in self._trainers().items()}
        seconds = round(self._clock() - self._began_pass, 6)
        numbers = {"samples": since_start.samples, **self._numbers, "seconds": seconds, "usage": usage}
        return self._record("pass", **self._where(), **numbers)

    def add_test(self, result: Accumulator) -> Record:
        """Record a test; returns the record."""
        return self._record("test", **self._where(), samples=result.samples, **numbers_of(result))

    def add_save(self, path: str) -> None:
        """Record that parameters were saved."""
        self._record("save", **self._where(), path=path)

    def add_checkpoint(self, name: str) -> None:
        """Record that a checkpoint was made."""
        self._record("checkpoint", **self._where(), name=name)

    def show(self) -> None:
        """Let the report be made: a pass has ended."""
        if self._writer is not None:
            self._writer.show()

    def end(self, status: int, message: str = "") -> None:
        """Say how the run has ended, and wait for the last writes."""
        self._status = {0: FINISHED, 143: STOPPED}.get(status, FAILED)
        self._message = message
        self._record("end", status=status, message=message)
        if self._writer is not None:
            self._writer.end(LAST_WRITES_S)

    # ----- What is made of it

    def _where(self) -> Record:
        return {"pass": self.usage.pass_number, "batch": self.usage.batch}

    def _record(self, kind: str, *, is_kept: bool = True, **fields: Any) -> Record:
        attempt = self._target.attempt if self._target else ""
        record = {"kind": kind, "time": round(time.time(), 3), "attempt": attempt, **fields}
        if self._writer is not None and is_kept and self._target and self._target.is_first:
            self._writer.append(encode_record(record))
        return record

    def _own(self) -> Record:
        """Return what this trainer says of itself."""
        target = self._target or Target(Path(), None, 0)
        own = {"time": round(time.time(), 3), "attempt": target.attempt, "host": target.host}
        speed = round(self._place.samples_per_second, 3)
        return {**own, **self._where(), "samples_per_second": speed, "usage": self.usage.totals()}

    def _trainers(self) -> dict[str, Record]:
        own = {str(self._target.trainer_id if self._target else 0): self._own()}
        return {**self._others, **own}

    def _write_progress(self) -> None:
        """Write this trainer's progress, and as trainer 0 the job's; runs in the writer's thread."""
        target = self._target
        if target is None:
            return
        if target.node is not None:
            write_progress(target.node, self._own())
        if target.is_first:
            if target.node is not None:
                self._others = read_trainers(target.output, target.attempt)
            write_progress(target.output, self._describe_job())

    def _describe_job(self) -> Record:
        place, trainers = self._place, self._trainers()
        return {
            "time": round(time.time(), 3),
            "attempt": self._target.attempt if self._target else "",
            "status": self._status,
            "message": self._message,
            **self._where(),
            "passes": self.passes,
            "pass_fraction": place.pass_fraction,
            "job_fraction": 1.0 if self._status == FINISHED else place.job_fraction,
            "samples_per_second": round(job_speed(trainers), 3),
            "seconds_left": 0.0 if self._status == FINISHED else place.seconds_left,
            "pass_samples": self._progress.pass_samples,
            **self._numbers,
            "slowest": find_slowest(trainers),
            "trainers": trainers,
        }
