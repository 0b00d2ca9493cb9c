"""A run at one moment: what the progress line, progress.json, /metrics, `status` and the report all say."""

from __future__ import annotations

from typing import NamedTuple

from runtime.errors import STOP_CODES
from trainer.records.records import Record
from trainer.telemetry.progress import Place
from trainer.telemetry.time_breakdown import Spent

TRAINING, FINISHED, FAILED, STOPPED = "training", "finished", "failed", "stopped"


class Snapshot(NamedTuple):
    """A run at the end of a batch, or where a pass or the run begins or ends. It never changes.

    Attributes: place: how far the run is.  batch: batches of the pass that are done.  pass_samples: of a whole pass, 0
        where it is not known yet.  batches, passes: done since the program began.  spent: where the time has gone.
        numbers: cost and evaluators of the newest line of the log; the cost is None before the first.
        last_pass: {pass, samples, cost} of this trainer's newest finished pass.
        status, message: TRAINING, or how the run has ended, and why.
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
    """Return how a run has ended that ended with this exit status."""
    if exit_status in STOP_CODES:
        return STOPPED
    return FAILED if exit_status else FINISHED
