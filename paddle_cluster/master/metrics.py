"""The metrics of a master, and a check whether its loop still runs, for the health pages of the master."""

from __future__ import annotations

from collections.abc import Iterator

from paddle_base.runtime.environment import JobEnvironment
from paddle_base.runtime.health.liveness import LIVENESS, Liveness
from paddle_base.runtime.health.metrics import BUILD, Metric, Sample, describe_build
from paddle_cluster.master.server import Master

LEADS = Metric("paddle_master_leads", "1 if this master serves, 0 if it stands by or loads")
PASS = Metric("paddle_master_pass", "number of the current pass; the first is 0")
TASKS = Metric("paddle_master_tasks", "tasks of the current pass by status", ("status",))
MEMBERS = Metric("paddle_master_members", "trainers that have joined and whose lease has not ended")
WAITING = Metric("paddle_master_waiting_members", "trainers that wait for a task")
DISPATCHES = Metric("paddle_master_pass_dispatches", "tasks dispatched in the current pass, including repetitions")
FAILURES = Metric("paddle_master_pass_failures", "failed dispatches of the current pass")
EVENTS = Metric("paddle_master_events_total", "handled events: messages of members, and checks of the clock")
LIMIT = Metric("paddle_master_task_limit_seconds", "current time limit of a task")

METRICS = (BUILD, LEADS, PASS, TASKS, MEMBERS, WAITING, DISPATCHES, FAILURES, EVENTS, LIMIT)


class MasterMetrics:
    """The state of a master for its health pages."""

    def __init__(self, master: Master, job: JobEnvironment, liveness: Liveness = LIVENESS) -> None:
        self._master, self._job, self._liveness = master, job, liveness

    def why_stuck(self) -> str:
        """Return the problem if the loop has not run recently, else "". For a standby, which has no loop, return ""."""
        return "" if self._master.why_not_ready else self._liveness.why_stuck("master", self._job.stuck_timeout)

    def read(self) -> Iterator[Sample]:
        """Yield the current values."""
        yield describe_build("master", self._job.job, self._job.attempt)
        service = self._master.service
        if service is None:
            yield Sample(LEADS, 0)
            return
        state, table = service.state, service.state.table
        yield Sample(LEADS, 0 if self._master.why_not_ready else 1)
        yield Sample(PASS, table.pass_number)
        counts = {"todo": table.todo, "pending": len(table.pending), "done": table.done, "failed": len(table.failed)}
        for status, count in counts.items():
            yield Sample(TASKS, count, (status,))
        yield Sample(MEMBERS, len(state.members))
        yield Sample(WAITING, len(state.waiting))
        yield Sample(DISPATCHES, table.sums.dispatches)
        yield Sample(FAILURES, table.sums.failures)
        yield Sample(EVENTS, service.events)
        yield Sample(LIMIT, state.estimate.limit(0))
