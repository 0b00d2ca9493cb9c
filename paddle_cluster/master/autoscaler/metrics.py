"""The metrics of an autoscaler, and a check whether its loop still runs, for the health pages."""

from __future__ import annotations

from collections.abc import Iterator

from paddle_base.runtime.health.liveness import LIVENESS, Liveness
from paddle_base.runtime.health.metrics import Metric, Sample, describe_build
from paddle_cluster.master.autoscaler.loop import Autoscaler

LEADING = Metric("paddle_autoscaler_leads", "1 if this autoscaler leads, 0 if it stands by")
JOBS = Metric("paddle_autoscaler_jobs", "number of task jobs that the autoscaler manages")
IGNORED = Metric("paddle_autoscaler_jobs_left_alone", "Jobs that have the annotations of task jobs and are not managed")
WANTED = Metric("paddle_autoscaler_trainers", "trainers of all jobs by state: wanted, placed, waiting", ("state",))
CHANGES = Metric("paddle_autoscaler_changes_total", "changes of parallelism that the autoscaler made", ("direction",))
FAILED = Metric("paddle_autoscaler_failures_total", "decisions of which a change failed")
DECISION = Metric("paddle_autoscaler_decision_seconds", "seconds that the last decision took")
NODES = Metric("paddle_autoscaler_nodes", "number of nodes that are Ready")

METRICS = (LEADING, JOBS, IGNORED, WANTED, CHANGES, FAILED, DECISION, NODES)
STUCK_S = 120.0  # maximum seconds of one iteration of the loop; a Retry-After header causes a wait of at most 60 s


class AutoscalerMetrics:
    """The state of an autoscaler for its health pages."""

    def __init__(self, autoscaler: Autoscaler, liveness: Liveness = LIVENESS) -> None:
        self._autoscaler, self._liveness = autoscaler, liveness

    def why_stuck(self) -> str:
        """Return "" if the loop has run recently, otherwise the problem."""
        return self._liveness.why_stuck("autoscaler", STUCK_S)

    def read(self) -> Iterator[Sample]:
        """Yield the current values."""
        tally = self._autoscaler.tally
        yield describe_build("autoscaler", "", "")
        yield Sample(LEADING, float(self._autoscaler.lead.leads))
        yield Sample(CHANGES, tally.raised, ("up",))
        yield Sample(CHANGES, tally.lowered, ("down",))
        yield Sample(FAILED, tally.failed)
        if tally.snapshot is None:
            return
        jobs = tally.snapshot.jobs
        yield Sample(JOBS, len(jobs))
        yield Sample(IGNORED, len(tally.snapshot.problems))
        yield Sample(NODES, len(tally.snapshot.room.rooms))
        yield Sample(DECISION, tally.seconds)
        yield Sample(WANTED, sum(job.parallelism for job in jobs), ("wanted",))
        yield Sample(WANTED, sum(sum(job.placed.values()) for job in jobs), ("placed",))
        yield Sample(WANTED, sum(job.waiting for job in jobs), ("waiting",))
