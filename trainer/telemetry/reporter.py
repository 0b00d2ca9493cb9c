"""Write the records, the progress and the HTML report of a run into the output of the job.

Only trainer 0 writes records.jsonl, progress.json and report.html. Every trainer of a job with launchers also writes
its own node_<id>/progress.json, which trainer 0 reads. A thread writes all files, so a slow or lost volume does not
delay training. The first write that fails is reported by a WARNING.

The trainers of a job with a master join and leave, so no trainer writes the files of the job. Each of them writes its
own records.jsonl and progress.json into node_<number>/. The master writes tasks.json about the job.
"""

from __future__ import annotations

import contextlib
import math
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle_base.runtime.rate_limit import RateLimit
from trainer.records.progress_files import (
    TrainerWatch,
    find_slowest,
    job_speed,
    mean_speed,
    read_job,
    sum_last_pass,
    write_progress,
)
from trainer.records.records import LARGEST, BatchSums, Record, encode_record, numbers_of
from trainer.telemetry.periods import BatchRecordLimit, PassWatch
from trainer.telemetry.progress import Progress
from trainer.telemetry.snapshot import FINISHED, TRAINING, Snapshot, name_end
from trainer.telemetry.time_breakdown import TimeBreakdown
from trainer.telemetry.writer import Writer

LAST_WRITES_S = 10.0  # maximum seconds for the last writes; a lost volume must not delay the exit longer


@dataclass(frozen=True)
class OutputTarget:
    """The directories into which a trainer writes.

    `output` is the directory of the job. `node` is the directory of this trainer; without a launcher it is None.
    `in_tasks` is whether a master assigns tasks to this trainer.
    """

    output: Path
    node: Path | None
    trainer_id: int
    attempt: str = ""
    host: str = ""
    in_tasks: bool = False

    @property
    def is_first(self) -> bool:
        """Whether this is trainer 0; only trainer 0 writes the files of the job."""
        return self.trainer_id == 0 and not self.in_tasks

    @property
    def records(self) -> Path | None:
        """The directory in which this trainer writes records.jsonl, or None if it writes no records."""
        if self.in_tasks:
            return self.node
        return self.output if self.is_first else None


def find_target(save_dir: str, trainer_id: int, environ: Mapping[str, str]) -> OutputTarget | None:
    """Return the directories of a trainer, or None if the trainer writes no files.

    The output is PADDLE_OUTPUT or, without a launcher, the save directory.
    """
    output = environ.get("PADDLE_OUTPUT", "")
    node = Path(output) / f"node_{trainer_id}" if output else None
    if trainer_id and node is None:
        return None
    host = environ.get("POD_NAME") or socket.gethostname()
    return OutputTarget(Path(output or save_dir), node, trainer_id, environ.get("PADDLE_ATTEMPT", ""), host)


def find_task_target(save_dir: str, number: int, environ: Mapping[str, str]) -> OutputTarget:
    """Return the directories of a trainer with a master, and create its node_<number>/ in the output of the job."""
    output = Path(environ.get("PADDLE_OUTPUT", "") or save_dir)
    node = output / f"node_{number}"
    with contextlib.suppress(OSError):  # the first write reports the error
        node.mkdir(parents=True, exist_ok=True)
    host = environ.get("POD_NAME") or socket.gethostname()
    return OutputTarget(output, node, number, environ.get("PADDLE_ATTEMPT", ""), host, in_tasks=True)


class Reporter:
    """The reports of a training session about its run.

    The thread of the session counts batches and samples, and makes a Snapshot of these counts at the end of every
    batch. The progress line, progress.json, /metrics, `status` and the HTML report all use the newest snapshot and
    therefore agree.

    Args: target: the directories to write into, or None if only progress lines are wanted. passes: the number of the
        last pass, plus 1. line_period_s: seconds between two lines of progress; 0 means no lines. in_tasks: whether a
        master assigns tasks to this trainer. The number of this trainer's samples in a pass is then unknown.
    Thread safety: any thread may read `snapshot`. The thread of the writer reads `_others` anew. Only the
    thread of the session uses the other attributes.
    """

    def __init__(
        self,
        target: OutputTarget | None = None,
        passes: int = 0,
        line_period_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        *,
        in_tasks: bool = False,
    ) -> None:
        self.breakdown = TimeBreakdown(clock)
        self._target, self._pass_watch = target, PassWatch(clock)
        self._lines = RateLimit(line_period_s, clock() + (line_period_s or math.inf))
        self._batch_records = BatchRecordLimit(clock)
        known = read_job(target.output).get("pass_samples") if target and target.is_first else 0
        known = known if isinstance(known, int) and 0 < known < LARGEST else 0
        self._progress = Progress(passes, known, clock, has_whole_passes=not in_tasks)
        self._numbers: Record = {"cost": None, "evaluators": {}}  # cost and evaluators of the newest log line
        self._last_pass: Record | None = None
        self._others = TrainerWatch()
        self._trainer_count = 1
        self._snapshot = self._take_snapshot()
        self._writer: Writer | None = None
        if target is not None:
            self._writer = Writer(target.records or target.output, self._write_progress, has_report=target.is_first)

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot of the run."""
        return self._snapshot

    # ----- Called by the session

    def start(self, *, writes: bool = True, **facts: Any) -> None:
        """Record that training begins.

        Args: writes: whether files are written from now on. If not, they are written after a call of `write`. facts:
            fields of the start record.
        """
        self.breakdown.begin()
        self._progress.begin()
        trainers = facts.get("trainers")
        self._trainer_count = trainers if isinstance(trainers, int) else 1
        if writes:
            self.write()
        self._record("start", **facts)

    def extend(self, passes: int) -> None:
        """Record that a program which has ended a training begins another one, whose last pass is `passes` - 1."""
        self._progress.passes = passes

    def write(self) -> None:
        """Begin to write files. Until now, reports have been kept in memory."""
        if self._writer is not None:
            self._writer.start()

    def start_pass(self, number: int, batches: int = 0, samples: int = 0) -> None:
        """Begin a pass, or continue in it after some batches and samples."""
        self._pass_watch.start()
        self.breakdown.pass_number, self.breakdown.batch = number, batches
        self._progress.start_pass(number, samples)
        self._publish()

    def add(self, batch: int, samples: int) -> str:
        """Count a batch. Return the progress line if it is due, otherwise ""."""
        self.breakdown.count(batch, samples)
        self._progress.add(samples)
        self._publish()
        if not self._lines.is_due(self.breakdown.counted):
            return ""
        return self._snapshot.place.text(self._measure_speed(self._trainers(self._snapshot)))

    def add_batch_line(self, since_start: BatchSums, window: BatchSums) -> Record:
        """Record the numbers of a batch line of the log. Return the record."""
        self._numbers = numbers_of(since_start)
        window_numbers = numbers_of(window, "window_")
        is_kept = self._batch_records.takes()
        numbers = {**self._numbers, **window_numbers}
        return self._record("batch", is_kept=is_kept, **self._where(), samples=since_start.samples, **numbers)

    def finish_pass(self, since_start: BatchSums) -> Record:
        """Record the end of a pass. Return the record."""
        self.breakdown.passes += 1
        self._progress.finish_pass(since_start.samples)
        self._numbers = numbers_of(since_start)
        self._last_pass = {
            "pass": self.breakdown.pass_number,
            "samples": since_start.samples,
            "cost": self._numbers["cost"],
        }
        self._publish()
        usage = {number: other["usage"] for number, other in self._trainers(self._snapshot).items()}
        seconds = round(self._pass_watch.seconds, 6)
        numbers = {"samples": since_start.samples, **self._numbers, "seconds": seconds, "usage": usage}
        return self._record("pass", **self._where(), **numbers)

    def add_test(self, result: BatchSums) -> Record:
        """Record a test. Return the record."""
        return self._record("test", **self._where(), samples=result.samples, **numbers_of(result))

    def add_save(self, path: str) -> None:
        """Record that the parameters have been saved in a directory."""
        self._record("save", **self._where(), path=path)

    def add_checkpoint(self, name: str) -> None:
        """Record that a checkpoint has been made."""
        self._record("checkpoint", **self._where(), name=name)

    def show(self) -> None:
        """Request a new HTML report, after the end of a pass."""
        if self._writer is not None:
            self._writer.show()

    def rest(self, status: int = 0, message: str = "") -> None:
        """Show that a training has ended, whose process goes on and may train again. See `end`."""
        self._publish(ending=(name_end(status), message))
        self.show()

    def end(self, status: int, message: str = "") -> None:
        """Record the end of the run, and wait for the last writes. `status` is the exit status of the program."""
        self._record("end", ending=(name_end(status), message), status=status, message=message)
        if self._writer is not None:
            self._writer.end(LAST_WRITES_S)

    # ----- Outputs

    def _where(self) -> Record:
        return {"pass": self.breakdown.pass_number, "batch": self.breakdown.batch}

    def _take_snapshot(self, ending: tuple[str, str] = (TRAINING, "")) -> Snapshot:
        breakdown, status = self.breakdown, ending[0]
        place = self._progress.look(is_over=status != TRAINING)
        if status != TRAINING:  # a finished run has done the whole job, and needs no more time
            share = 1.0 if status == FINISHED else place.job_fraction
            place = place._replace(job_fraction=share, seconds_left=0.0 if status == FINISHED else None)
        return Snapshot(
            place,
            breakdown.batch,
            self._progress.pass_samples,
            breakdown.batches,
            breakdown.passes,
            breakdown.spent(),
            self._numbers,
            self._last_pass,
            *ending,
        )

    def _publish(self, line: str = "", ending: tuple[str, str] = (TRAINING, "")) -> None:
        """Publish a new snapshot, and pass it to the writer with a line for records.jsonl."""
        self._snapshot = self._take_snapshot(ending)
        if self._writer is not None:
            self._writer.tell(self._snapshot, line)

    def _record(
        self, kind: str, *, is_kept: bool = True, ending: tuple[str, str] = (TRAINING, ""), **fields: Any
    ) -> Record:
        attempt = self._target.attempt if self._target else ""
        record = {"kind": kind, "time": round(time.time(), 3), "attempt": attempt, **fields}
        is_written = is_kept and self._target is not None and self._target.records is not None
        self._publish(encode_record(record) if is_written else "", ending)
        return record

    def _own(self, snapshot: Snapshot) -> Record:
        """Return this trainer's progress: the present time, phase and idle seconds, and the values of the snapshot.

        A waiting trainer also writes progress.json, so that `paddle status` can show in which phase it waits, and for
        how long.
        """
        target = self._target or OutputTarget(Path(), None, 0)
        return {
            "time": round(time.time(), 3),
            "attempt": target.attempt,
            "host": target.host,
            "status": snapshot.status,
            "pass": snapshot.place.pass_number,
            "batch": snapshot.batch,
            "samples_per_second": round(snapshot.place.samples_per_second, 3),
            "usage": snapshot.spent.describe(),
            "last_pass": snapshot.last_pass,
            "phase": self.breakdown.phase,
            "idle_seconds": round(self.breakdown.idle_seconds, 1),
        }

    def _trainers(self, snapshot: Snapshot) -> dict[str, Record]:
        own = {str(self._target.trainer_id if self._target else 0): self._own(snapshot)}
        return {**self._others.trainers, **own}

    def _measure_speed(self, trainers: Mapping[str, Record]) -> float:
        own = str(self._target.trainer_id if self._target else 0)
        return job_speed(trainers, self._others.silent - {own})

    def _write_progress(self, snapshot: Snapshot | None) -> None:
        """Write the progress of this trainer, and in trainer 0 also the progress of the job.

        The thread of the writer calls this method.
        """
        target = self._target
        if target is None or snapshot is None:
            return
        try:
            if target.node is not None:
                # a user may have removed the output. Only the next save creates the output again, with a WARNING
                target.node.mkdir(exist_ok=True)
                write_progress(target.node, self._own(snapshot))
        finally:  # the progress of the job is written even if the progress of this trainer cannot be written
            if target.is_first:
                if target.node is not None:
                    self._others.read(target.output, target.attempt)
                write_progress(target.output, self._describe_job(snapshot))

    def _describe_job(self, snapshot: Snapshot) -> Record:
        place, trainers = snapshot.place, self._trainers(snapshot)
        speed = self._measure_speed(trainers) if snapshot.status == TRAINING else mean_speed(trainers)
        return {
            "time": round(time.time(), 3),
            "attempt": self._target.attempt if self._target else "",
            "status": snapshot.status,
            "message": snapshot.message,
            "pass": place.pass_number,
            "batch": snapshot.batch,
            "passes": place.passes,
            "pass_fraction": place.pass_fraction,
            "job_fraction": place.job_fraction,
            "samples": place.samples,
            "samples_per_second": round(speed, 3),
            "seconds_left": place.seconds_left,
            "pass_samples": snapshot.pass_samples,
            **snapshot.numbers,
            "last_pass": sum_last_pass(trainers, self._trainer_count),
            "slowest": find_slowest(trainers),
            "trainers": trainers,
        }
