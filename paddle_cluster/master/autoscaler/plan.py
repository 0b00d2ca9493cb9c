"""Pure functions that compute the fair share of each job, and the changes of the jobs' numbers of trainers.

`share_out` gives trainers one by one to the job with the least fulfillment, until no node has room. Fulfillment is
(trainers - least) / (most - least). A job is therefore less fulfilled than another job only if the nodes that the less
fulfilled job can use are full.

To raise or lower a job is to raise or lower its number of trainers. A change goes towards the fair share and never
beyond it. A job is not lowered within HOLD_S seconds after it was raised, and not raised within this time after it was
lowered. While the cluster and the jobs do not change, each job is therefore only raised or only lowered.

Source: the autoscaler of 2017, without its faults. The autoscaler of 2017 moved one trainer in each step. It added
trainers if the sum of the nodes' room was large enough, even if no single node had enough room. It made no change while
a pod was pending. No I/O.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from paddle_cluster.master.autoscaler.packing import Amounts, CapCount, ClusterRoom, Packing, Sites

HOLD_S = 30.0  # seconds after a change of a job in which the change is not reversed
REFUSED_S = 30.0  # seconds after which pods without a node count as refused, even if the plan has found room for them
OF_CAP = "its fair share of the cap of namespace"
LONGEST_HOLD_S = 600.0  # maximum of `Past.patience`, which doubles whenever a job is lowered because pods are refused


@dataclass(frozen=True)
class Past:
    """The times of a job's last changes, in seconds. All times in this module are from the same clock."""

    raised: float = -math.inf
    lowered: float = -math.inf
    patience: float = HOLD_S  # seconds after `lowered` before the job is raised again


@dataclass(frozen=True)
class TrainerJob:
    """The present state of a task job. `least` <= `most`."""

    key: str  # namespace/name
    least: int
    most: int
    parallelism: int
    request: Amounts  # requests of one trainer
    sites: Sites = None
    placed: Mapping[int, int] = field(default_factory=dict)  # number of trainers by node, without terminating trainers
    waiting: int = 0  # trainers without a node
    waiting_since: float = math.inf
    past: Past = field(default_factory=Past)

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self.key.partition("/")[0]

    def is_refused(self, now: float) -> bool:
        """Return whether the scheduler finds no node for trainers of this job."""
        return self.waiting > 0 and now - self.waiting_since >= REFUSED_S

    def ceiling(self, now: float) -> int:
        """Return the maximum number of trainers at present; if trainers find no node, no further trainers are added."""
        return max(self.least, min(self.most, sum(self.placed.values()))) if self.is_refused(now) else self.most

    def may_fall(self, now: float) -> bool:
        """Return whether the job may be lowered: it was not raised in the last HOLD_S seconds."""
        return now - self.past.raised >= HOLD_S

    def may_rise(self, now: float) -> bool:
        """Return whether the job may be raised: it was not lowered in the last `past.patience` seconds."""
        return now - self.past.lowered >= self.past.patience


class Change(NamedTuple):
    """A job's new parallelism, and the reason. `refused`: whether the job is lowered while pods are refused."""

    job: int  # index of the job in the list of all jobs
    before: int
    after: int
    reason: str
    refused: bool = False


class Plan(NamedTuple):
    """The changes, the fair shares, and the time of the next decision if the cluster stays unchanged."""

    changes: list[Change]
    shares: list[int]
    wake: float


def share_out(cluster: ClusterRoom, jobs: Sequence[TrainerJob], first: Sequence[int], most: Sequence[int]) -> list[int]:
    """Return the number of trainers that each job gets while nodes have room.

    Each job first gets up to `first` trainers; then the jobs get more trainers, up to `most`. Among equally fulfilled
    jobs, a job that already runs its next trainer comes first. Trainers that cannot be divided evenly therefore stay
    with their jobs. A cap of a namespace bounds only the trainers beyond `first` and beyond the jobs' minimums, and
    counts all trainers.
    """
    packing = Packing(cluster, [job.request for job in jobs], [job.placed for job in jobs])
    floor = [max(number, job.least) for number, job in zip(first, jobs, strict=True)]
    names, caps = [job.namespace for job in jobs], _count(cluster, jobs, floor)
    given = [0] * len(jobs)
    for index, job in enumerate(jobs):
        while given[index] < first[index] and packing.place(index, job.sites):
            given[index] += 1

    def rank(index: int) -> tuple[float, bool, int]:
        job = jobs[index]
        fulfilment = (given[index] - job.least) / max(job.most - job.least, 1)
        return (fulfilment, given[index] >= job.parallelism, index)

    heap = [rank(index) for index, job in enumerate(jobs) if first[index] <= given[index] < most[index]]
    heapq.heapify(heap)
    while heap:
        index = heap[0][2]
        is_free = given[index] < floor[index]  # the trainer counts towards the cap already
        if (is_free or caps.admits(names[index], jobs[index].request)) and packing.place(index, jobs[index].sites):
            if not is_free:
                caps.add(names[index], jobs[index].request)
            given[index] += 1
            if given[index] < most[index]:
                heapq.heapreplace(heap, rank(index))
                continue
        # room only shrinks here, so a job that found none finds none later
        heapq.heappop(heap)
    return given


def make_plan(cluster: ClusterRoom, jobs: Sequence[TrainerJob], now: float) -> Plan:
    """Return the plan. `jobs`: all jobs, the oldest first, because the oldest job gets its minimum first."""
    least = [job.least for job in jobs]
    given = share_out(cluster, jobs, least, [job.ceiling(now) for job in jobs])
    shares = [max(share, job.least) for share, job in zip(given, jobs, strict=True)]
    short = [job.key for job, share in zip(jobs, shares, strict=True) if job.parallelism < share]
    stay = [_keep(job, share, now, bool(short)) for job, share in zip(jobs, shares, strict=True)]
    # a job whose namespace would exceed its cap keeps no more than its share
    held = _count(cluster, jobs, list(map(max, stay, least)))
    stay = [
        min(kept, share) if held.is_exceeded(job.namespace) else kept
        for job, share, kept in zip(jobs, shares, stay, strict=True)
    ]
    lacking = ""
    targets: Sequence[int] = stay
    if stay != shares:
        targets, room = _raise_some(cluster, jobs, shares, stay, now)
        starved = [i for i, job in enumerate(jobs) if room[i] < min(job.least, given[i])]
        if starved:  # a recently raised job occupies room that another job needs for its minimum
            lacking = jobs[starved[0]].key
            stay = [min(kept, share) for kept, share in zip(stay, shares, strict=True)]
            targets, _ = _raise_some(cluster, jobs, shares, stay, now)
    changes, shared = [], _count(cluster, jobs, shares)
    for index, job in enumerate(jobs):
        after = min(max(targets[index], job.least), job.most)
        if after != job.parallelism:
            others = [key for key in short if key != job.key]
            among = _describe_share(job, after, shared, len(jobs))
            reason = _explain(job, after, lacking, others, among, now)
            refused = after < job.parallelism and job.is_refused(now)
            changes.append(Change(index, job.parallelism, after, reason, refused))
    return Plan(changes, shares, _find_wake(jobs, shares, now))


def remember(past: Past, change: Change, now: float) -> Past:
    """Return the past of a job after one more change."""
    if change.after > change.before:
        return Past(now, past.lowered, past.patience)
    patience = min(2 * past.patience, LONGEST_HOLD_S) if change.refused else HOLD_S
    return Past(past.raised, now, patience)


def _keep(job: TrainerJob, share: int, now: float, is_somebody_short: bool) -> int:
    """Return the number of trainers that a job keeps before other jobs are raised."""
    if job.parallelism <= share or not job.may_fall(now):
        return job.parallelism
    if job.parallelism == share + 1 and not job.waiting and not is_somebody_short:
        return job.parallelism  # a surplus of one trainer does not justify a change
    return share


def _raise_some(
    cluster: ClusterRoom, jobs: Sequence[TrainerJob], shares: Sequence[int], stay: Sequence[int], now: float
) -> tuple[Sequence[int], Sequence[int]]:
    """Raise the jobs that have less than their fair share, as far as the other jobs leave room.

    Returns: for each job, its new number of trainers, and the number of its trainers that fit on the nodes. If a job
        cannot be lowered yet, its new number may exceed the number that fits.
    """
    ceilings = [
        share if job.may_rise(now) or job.parallelism < job.least else kept
        for job, share, kept in zip(jobs, shares, stay, strict=True)
    ]
    most = [max(kept, ceiling) for kept, ceiling in zip(stay, ceilings, strict=True)]
    if list(stay) == [min(kept, share) for kept, share in zip(stay, shares, strict=True)] and most == list(shares):
        return shares, shares  # no job has to wait for its change
    filled = share_out(cluster, jobs, stay, most)
    return [max(kept, count) for kept, count in zip(stay, filled, strict=True)], filled


def _count(cluster: ClusterRoom, jobs: Sequence[TrainerJob], numbers: Sequence[int]) -> CapCount:
    """Return the requests of all trainers, if each job has the given number of trainers."""
    caps = CapCount(cluster.caps)
    for job, number in zip(jobs, numbers, strict=True):
        caps.add(job.namespace, job.request, number)
    return caps


def _describe_share(job: TrainerJob, after: int, shared: CapCount, count: int) -> str:
    """Describe `after`, the job's new number of trainers. `shared`: the requests of the fair shares of all jobs."""
    if after < job.most and not shared.admits(job.namespace, job.request):
        return f"{OF_CAP} {job.namespace}"
    return f"its fair share among {count} jobs" if count > 1 else "what the nodes have room for"


def _explain(job: TrainerJob, after: int, lacking: str, short: Sequence[str], among: str, now: float) -> str:
    if job.parallelism < job.least:
        return f"it has fewer than its minimum, {job.least}"
    if job.parallelism > job.most:
        return f"it has more than its maximum, {job.most}"
    if after > job.parallelism:
        return f"there is room; {among} is reached" if after == job.most else f"there is room; {after} is {among}"
    if job.is_refused(now):
        return f"{job.waiting} of its trainers have found no node for {now - job.waiting_since:.0f} s"
    if lacking and not job.may_fall(now):
        return f"it was raised {now - job.past.raised:.0f} s ago, but {lacking} lacks its minimum; {after} is {among}"
    if short:
        more = f" and {len(short) - 1} more have" if len(short) > 1 else " has"
        return f"{after} is {among}; {short[0]}{more} less"
    return f"{after} is {among}" if among.startswith(OF_CAP) else f"other pods take the room; {after} is {among}"


def _find_wake(jobs: Sequence[TrainerJob], shares: Sequence[int], now: float) -> float:
    """Return the next time at which a delayed change becomes possible, or at which waiting pods count as refused."""
    moments = [job.waiting_since + REFUSED_S for job in jobs if job.waiting]
    for job, share in zip(jobs, shares, strict=True):
        if job.parallelism > share:
            moments.append(job.past.raised + HOLD_S)
        elif job.parallelism < share:
            moments.append(job.past.lowered + job.past.patience)
    return min((moment for moment in moments if moment > now), default=math.inf)
