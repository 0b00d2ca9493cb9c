"""A run at one moment: the source of the progress line, progress.json, /metrics, `status` and the report."""

from __future__ import annotations

from typing import NamedTuple

from runtime.errors import STOP_CODES
from trainer.records.records import Record
from trainer.telemetry.progress import Place
from trainer.telemetry.time_breakdown import Spent

TRAINING, FINISHED, FAILED, STOPPED = "training", "finished", "failed", "stopped"


class Snapshot(NamedTuple):
    """A run at the end of a batch, or at the beginning or end of a pass or of the run. It never changes.

    Attributes: place: the progress. batch: completed batches of the pass. pass_samples: the samples of a whole pass, 0
        if unknown. batches, passes: numbers of batches and passes that the program has completed. spent: the time
        breakdown. numbers: cost and evaluators of the newest log line; the cost is None before the first line.
        last_pass: {pass, samples, cost} of this trainer's newest finished pass. status, message: TRAINING or the kind
        of end, and the reason for the end.
    """

    place: Place
    batch: int
    pass_samples: int
    batches: int
    passes: int
    spent: Spent
    numbers: Record
    last_pass: Record | None = None
    status: str = TRAINING
    message: str = ""


def name_end(exit_status: int) -> str:
    """Return the kind of end of a run with this exit status: FINISHED, STOPPED or FAILED."""
    if exit_status in STOP_CODES:
        return STOPPED
    return FAILED if exit_status else FINISHED
