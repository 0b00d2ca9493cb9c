"""A snapshot of a run, which the progress line, progress.json, /metrics, `status` and the report show."""

from __future__ import annotations

from typing import NamedTuple

from paddle_base.runtime.errors import STOP_CODES
from trainer.records.records import Record
from trainer.telemetry.progress import Place
from trainer.telemetry.time_breakdown import Spent

TRAINING, FINISHED, FAILED, STOPPED = "training", "finished", "failed", "stopped"


class Snapshot(NamedTuple):
    """The state of a run at the end of a batch, or at the beginning or end of a pass or of the run. It never changes.

    Attributes: place: the progress. batch: number of completed batches of the pass. pass_samples: number of samples of
        a whole pass, or 0 if it is unknown. batches, passes: numbers of batches and passes that this process has
        completed. spent: the time breakdown. numbers: cost and evaluators of the newest log line; the cost is None
        before the first line. last_pass: {pass, samples, cost} of this trainer's newest finished pass. status: TRAINING
        or, after the end of the run, the result of `name_end`. message: the reason for the end.
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
    """Return how a run with this exit status has ended: FINISHED, STOPPED or FAILED."""
    if exit_status in STOP_CODES:
        return STOPPED
    return FAILED if exit_status else FINISHED
