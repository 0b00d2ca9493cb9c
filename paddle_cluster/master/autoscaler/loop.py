"""The autoscaler's loop: it makes a plan after each change of the cluster, and changes the parallelism of Jobs."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from paddle_base.runtime import glog
from paddle_base.runtime.backoff import exponential_backoff
from paddle_base.runtime.errors import ConfigError, PaddleError
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_base.runtime.health.steady_time import steady_time
from paddle_base.runtime.kubernetes.client import ApiClient, ApiPlace, ApiProblem
from paddle_cluster.master.autoscaler.amounts import EVERY
from paddle_cluster.master.autoscaler.api import (
    APPLY,
    ChangeRefusals,
    JobWriter,
    ParallelismWish,
    advise,
    explain,
    is_about_job,
    is_policy,
)
from paddle_cluster.master.autoscaler.facts import JobFacts
from paddle_cluster.master.autoscaler.lease import ClusterLease
from paddle_cluster.master.autoscaler.mirror import EVERYWHERE, ClusterMirror
from paddle_cluster.master.autoscaler.plan import HOLD_S, LONGEST_HOLD_S, Change, Past, Plan, make_plan, remember
from paddle_cluster.master.autoscaler.snapshot import Caps, ClusterSnapshot, find_mistake, make_snapshot

SLICE_S = 0.2  # maximum seconds until a signal is handled
LONGEST_LOOK_S = 10.0  # maximum seconds between two decisions, even if nothing has changed


@dataclass(frozen=True)
class AutoscalerOptions:
    """The options of the command line.

    namespaces: namespaces of the jobs; (EVERYWHERE,) means all.  home: namespace of the lease.  caps: maximum of the
    requests of all trainers of a namespace.
    """

    namespaces: tuple[str, ...]
    caps: Caps
    home: str
    lease: str
    identity: str
    interval: float
    resync: float
    start_timeout: float
    dry_run: bool
    once: bool


@dataclass
class Tally:
    """Counters for the metrics."""

    raised: int = 0
    lowered: int = 0
    failed: int = 0
    seconds: float = 0.0  # duration of the last decision
    snapshot: ClusterSnapshot | None = None
    plan: Plan | None = None


class Autoscaler:
    """Mirrors the cluster's nodes, pods and Jobs, takes part in the election of a leader, and runs the loop."""

    def __init__(self, place: ApiPlace, options: AutoscalerOptions) -> None:
        self.options, self.tally = options, Tally()
        self._woken = threading.Event()
        self._stop: PaddleError | None = None
        self._writer = JobWriter(place)
        self._cluster = ClusterMirror(lambda: ApiClient(place), options.namespaces, self._woken, options.resync)
        self.lead = ClusterLease(ApiClient(place), options.home, options.lease, options.identity, self._woken.set)
        self._pasts: dict[str, Past] = {}
        self._refusals = ChangeRefusals(HOLD_S, LONGEST_HOLD_S)
        self._said: dict[str, str] = {}  # the last text logged about a Job, by UID, or by "dry UID" in a dry run
        self._wake = math.inf  # time of the next decision if nothing changes, in seconds since the epoch

    def stop(self, error: PaddleError) -> None:
        """Let `run` end with this error. A signal handler may call `stop`; `stop` therefore takes no lock."""
        self._stop = error

    @property
    def why_not_ready(self) -> str:
        """The reason why this autoscaler makes no decisions; "" if it makes decisions."""
        if not self._cluster.is_current:
            return "the state of the cluster is unknown or too old: the API server does not answer"
        return "" if self.lead.leads or self.options.dry_run else "this autoscaler stands by: it does not lead"

    def run(self) -> None:
        """Make decisions until `stop` is called; with `options.once`, make only one decision.

        Raises: StoppedError, ApiForbiddenError, PeerUnreachableError, LeaseLostError, ConfigError.
        """
        self._cluster.start()
        try:
            self._await_cluster()
            self._warn()
            if self.options.once:
                self._look()
                self._check_once()
                return
            if not self.options.dry_run:
                self.lead.start()
                self._await_lead()
            glog.info(
                f"this autoscaler manages {self._describe_scope()}"
                + ("; this is a dry run, which changes nothing" if self.options.dry_run else "")
            )
            self._loop()
        finally:
            self._cluster.stop()
            self.lead.stop()

    @property
    def _is_everywhere(self) -> bool:
        return EVERYWHERE in self.options.namespaces

    def _describe_scope(self) -> str:
        names = self.options.namespaces
        where = f"namespace{'s' if len(names) > 1 else ''} {', '.join(names)}"
        counts = f"Jobs: {len(self._cluster.jobs())}, nodes: {len(self._cluster.nodes())}"
        return f"the task jobs of {'all namespaces' if self._is_everywhere else where} ({counts})"

    def _warn(self) -> None:
        caps = self.options.caps
        lacking = [name for name in self.options.namespaces if name not in caps and EVERY not in caps]
        if lacking and not self._is_everywhere:
            glog.warning(
                f"no cap bounds the trainers of: {', '.join(lacking)}. The autoscaler does not see the pods of other "
                "namespaces, so it may ask for more trainers than fit; give --namespace_caps (docs/autoscaler.md)"
            )

    def _await_cluster(self) -> None:
        deadline = time.monotonic() + self.options.start_timeout
        while not self._cluster.is_current:
            self._pause(1.0)
            self._cluster.check(self.options.start_timeout)
            if time.monotonic() > deadline:
                refusal = self._cluster.check(0.0)
                if refusal or not self._cluster.is_current:
                    problem = refusal or self._cluster.problem
                    raise explain(problem or ApiProblem("the API server does not answer in time"))

    def _await_lead(self) -> None:
        while not self.lead.leads:
            self._pause(5.0)
            if self.lead.problem and self.lead.problem.is_refusal:
                raise explain(self.lead.problem)
            LIVENESS.turn()
        glog.info(f"{self.options.identity} has the lease {self.options.lease}: it leads")
        if self.lead.took_over:  # the previous leader may have changed any job a moment ago
            now = steady_time()
            self._pasts = {uid: Past(now, now, HOLD_S) for uid in self._cluster.jobs()}

    def _loop(self) -> None:
        delays = exponential_backoff(1.0, 30.0)
        while True:
            LIVENESS.turn()
            if not self.options.dry_run:
                self.lead.check()
            self._check_rights()
            rest = self.options.interval
            if self._cluster.is_current:
                try:
                    self._look()
                    delays = exponential_backoff(1.0, 30.0)
                except ApiProblem as problem:
                    self.tally.failed += 1
                    if problem.is_refusal:
                        raise explain(problem) from problem
                    rest = max(next(delays), problem.retry_after, rest)
                    self._wake = 0.0  # try again even if nothing in the cluster changes
                    glog.warning(f"{problem}; the autoscaler tries again in {rest:.0f} s")
            self._rest(rest)
            self._pause(min(LONGEST_LOOK_S, max(self._wake - steady_time(), 0.0)))

    def _check_rights(self) -> None:
        """Check that nodes, pods and Jobs can be read; a namespace that cannot be read is left alone.

        Raises: ApiForbiddenError: a right to the nodes, or in all namespaces, has been missing for `start_timeout`.
        """
        refusal = self._cluster.check(self.options.start_timeout)
        if refusal:
            raise explain(refusal)

    def _rest(self, seconds: float) -> None:
        """Wait for `seconds`; only a call of `stop` interrupts the wait."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self._stop is None:
            time.sleep(min(left, SLICE_S))

    def _pause(self, seconds: float) -> None:
        """Wait at most `seconds` for a change. Raises: StoppedError: a signal has arrived."""
        until = time.monotonic() + seconds
        while self._stop is None and (left := until - time.monotonic()) > 0:
            if self._woken.wait(min(left, SLICE_S)):
                break
        self._woken.clear()
        if self._stop is not None:
            raise self._stop

    def _look(self) -> None:
        begun = time.perf_counter()
        now = steady_time()
        jobs = self._cluster.jobs()
        self._pasts = {uid: past for uid, past in self._pasts.items() if uid in jobs}
        self._refusals.keep({*jobs, *self.options.namespaces})
        nodes, pods = self._cluster.nodes().values(), self._cluster.pods(now).values()
        snapshot = make_snapshot(nodes, pods, jobs.values(), self._pasts, self.options.caps)
        self._complain(snapshot.problems)
        plan = make_plan(snapshot.room, snapshot.jobs, now)
        self.tally.snapshot, self.tally.plan, self._wake = snapshot, plan, plan.wake
        self.tally.seconds = time.perf_counter() - begun
        if self.options.dry_run:
            self._say(snapshot, plan.changes)
            return
        for is_raise in (False, True):  # the changes that free resources are made first
            changes = [change for change in plan.changes if (change.after > change.before) == is_raise]
            self._apply(snapshot, [change for change in changes if self._is_open(snapshot.facts[change.job], now)])

    def _is_open(self, job: JobFacts, now: float) -> bool:
        """Return whether the API server may accept a change of the Job; it may not if it refused one lately."""
        end = self._refusals.end(job.uid, job.namespace)
        if end > now:
            self._wake = min(self._wake, end)
        return end <= now

    def _say(self, snapshot: ClusterSnapshot, changes: Sequence[Change]) -> None:
        """Log each change of a dry run once."""
        for change in changes:
            job = snapshot.facts[change.job]
            said = f"dry run: {_describe(job, change)}"
            if self._said.get(f"dry {job.uid}") != said:
                self._said[f"dry {job.uid}"] = said
                glog.info(said)

    def _apply(self, snapshot: ClusterSnapshot, changes: Sequence[Change]) -> None:
        """Make the changes. Raises: ApiProblem: a change failed.  LeaseLostError: see `ClusterLease.check`."""
        jobs = [snapshot.facts[change.job] for change in changes]
        found = {job.uid: (job, change) for job, change in zip(jobs, changes, strict=True)}
        wishes = [
            ParallelismWish(job.namespace, job.name, job.uid, change.before, change.after)
            for job, change in found.values()
        ]
        failure: ApiProblem | None = None
        for wish, problem in self._writer.set_all(wishes, self.lead.check):
            job, change = found[wish.uid]
            if problem is None:
                self._keep(job, change)
            elif self._is_refused(job, change, problem):
                self.tally.failed += 1
            elif problem.status == 404:
                glog.info(f"{job.key} was deleted before its number of trainers was changed")
            elif is_about_job(problem):
                glog.info(f"{job.key} was changed by another program at the same time; trying again")
                self._wake = 0.0
            else:
                failure = failure or problem  # the changes that were sent before are noted first
        if failure:
            raise failure

    def _is_refused(self, job: JobFacts, change: Change, problem: ApiProblem) -> bool:
        """Return whether a policy refuses the change of a Job, or rights are missing in one of several namespaces.

        Then the Job, or the namespace, is left alone for a while.
        """
        if is_policy(problem):
            key, whose = job.uid, f"{job.key} stays at {change.before} trainers instead of {change.after}"
            advice = f"Correct the Job, or that policy; {APPLY} renews the autoscaler's own policy"
        elif problem.status == 403 and len(self.options.namespaces) > 1:
            key, whose = job.namespace, f"the Jobs of namespace {job.namespace} are left alone"
            advice = advise(job.namespace)
        else:
            return False
        now = steady_time()
        if self._refusals.end(key) <= now:
            seconds = self._refusals.add(key, now)
            glog.warning(f"{whose}: {problem}. {advice}. The autoscaler tries again in {seconds:.0f} s")
        self._wake = 0.0
        return True

    def _keep(self, job: JobFacts, change: Change) -> None:
        self._cluster.set_parallelism(job.uid, change.after)
        self._refusals.forget(job.uid, job.namespace)
        # the time is read after the request, because a busy API server may need seconds for a request
        self._pasts[job.uid] = remember(self._pasts.get(job.uid, Past()), change, steady_time())
        if change.after > change.before:
            self.tally.raised += 1
        else:
            self.tally.lowered += 1
        glog.info(_describe(job, change))

    def _complain(self, problems: dict[str, str]) -> None:
        """Log once for each ignored Job why the autoscaler ignores it."""
        for uid, problem in problems.items():
            if self._said.get(uid) != problem:
                glog.warning(problem)
        kept = {uid: said for uid, said in self._said.items() if uid.startswith("dry ")}
        self._said = kept | problems

    def _check_once(self) -> None:
        mistakes = [
            mistake for job in self._cluster.jobs().values() if not job.queue and (mistake := find_mistake(job))
        ]
        if mistakes:
            raise ConfigError(f"task Jobs with mistakes: {len(mistakes)}; the first: {mistakes[0]}")


def _describe(job: JobFacts, change: Change) -> str:
    return f"{job.key}: {change.before} -> {change.after} trainers: {change.reason}"
