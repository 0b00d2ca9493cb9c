"""The decisions of the Job controller as pure functions: count ended pods, judge the Job, choose the pods to start.

The functions take the time as an argument and return a new state; controller.py supplies the clock and the processes.
Source: Kubernetes 1.34, pkg/controller/job (behaviour only).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paddle_cluster.localcluster.job.manifest import JobSpec, Rule

LONGEST_BACKOFF = 36.0  # longest delay as a multiple of the first delay; Kubernetes has delays of 10 s to 6 minutes


@dataclass(frozen=True)
class Failure:
    """The properties of a failed pod: its index, its container's exit code and its conditions (type -> status)."""

    pod: str
    index: int | None
    exit_code: int | None
    container: str = ""
    conditions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The end of a Job.

    type: Complete or Failed. reason, message: the reason and the message in the Job's condition. pod: the pod that the
    message names, or "" if the message names no pod.
    """

    type: str
    reason: str
    message: str
    pod: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether the Job has reached its completions."""
        return self.type == "Complete"


@dataclass(frozen=True)
class Backoff:
    """The number of failures since the last success, and the time of the last failure."""

    failures: int = 0
    last: float = 0.0


@dataclass(frozen=True)
class JobProgress:
    """The counts of a Job; a pod is counted once, when it ends.

    `failed` excludes failures that the podFailurePolicy ignores, and `backoffs` includes them. The keys of `backoffs`
    are indexes if the Job has a backoffLimitPerIndex; otherwise its only key is None.
    """

    succeeded: int = 0
    succeeded_indexes: frozenset[int] = frozenset()
    failed: int = 0
    failed_indexes: frozenset[int] = frozenset()
    index_failures: Mapping[int, int] = field(default_factory=dict)
    backoffs: Mapping[int | None, Backoff] = field(default_factory=dict)
    verdict: Outcome | None = None


# ----- podFailurePolicy -----


def matches(rule: Rule, failure: Failure) -> bool:
    """Return whether a rule applies to a failed pod."""
    if rule.conditions:
        return any(failure.conditions.get(kind) == status for kind, status in rule.conditions)
    if failure.exit_code is None or failure.exit_code == 0 or rule.container not in ("", failure.container):
        return False
    return (failure.exit_code in rule.values) == (rule.operator == "In")


def judge_failure(rules: Sequence[Rule], failure: Failure) -> tuple[str, int | None]:
    """Return (action, number) of the first rule that applies, or ("Count", None) if no rule applies."""
    for number, rule in enumerate(rules):
        if matches(rule, failure):
            return rule.action, number
    return "Count", None


# ----- counting of ends -----


def count_success(progress: JobProgress, index: int | None) -> JobProgress:
    """Return the counts after a success, which resets the back-off."""
    if index is None:
        return replace(progress, succeeded=progress.succeeded + 1, backoffs={})
    if index in progress.succeeded_indexes:
        return progress
    backoffs: dict[int | None, Backoff] = {
        key: value for key, value in progress.backoffs.items() if key not in (None, index)
    }
    indexes = progress.succeeded_indexes | {index}
    return replace(progress, succeeded=len(indexes), succeeded_indexes=indexes, backoffs=backoffs)


def count_failure(progress: JobProgress, job: JobSpec, failure: Failure, now: float) -> JobProgress:
    """Return the counts after a failure, according to the Job's podFailurePolicy."""
    action, number = judge_failure(job.rules, failure)
    key = failure.index if job.backoff_limit_per_index is not None else None
    previous = progress.backoffs.get(key, Backoff())
    progress = replace(progress, backoffs={**progress.backoffs, key: Backoff(previous.failures + 1, now)})
    if action == "Ignore":
        return progress
    progress = replace(progress, failed=progress.failed + 1)
    if action == "FailJob":
        return replace(progress, verdict=_policy_verdict(job, failure, number or 0))
    if job.backoff_limit_per_index is not None and failure.index is not None:
        return _count_index_failure(progress, job.backoff_limit_per_index, failure.index, action)
    return progress


def _policy_verdict(job: JobSpec, failure: Failure, rule: int) -> Outcome:
    pod = f"{job.namespace}/{failure.pod}"
    if job.rules[rule].conditions:
        what = f"Pod {pod} has a condition"
    else:
        what = f"Container {failure.container} for pod {pod} failed with exit code {failure.exit_code}"
    return Outcome("Failed", "PodFailurePolicy", f"{what} matching FailJob rule at index {rule}", failure.pod)


def _count_index_failure(progress: JobProgress, limit: int, index: int, action: str) -> JobProgress:
    failures = progress.index_failures.get(index, 0) + 1
    progress = replace(progress, index_failures={**progress.index_failures, index: failures})
    if action == "FailIndex" or failures > limit:
        progress = replace(progress, failed_indexes=progress.failed_indexes | {index})
    return progress


# ----- judgement of the Job -----


def judge_job(progress: JobProgress, job: JobSpec, active: int, elapsed: float) -> Outcome | None:
    """Return the end of the Job, or None if it continues.

    Args: active: number of pods that are neither finished nor terminating. elapsed: seconds since the Job started.
    """
    if progress.verdict is not None:
        return progress.verdict
    if job.backoff_limit_per_index is None and progress.failed > job.backoff_limit:
        return Outcome("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    if job.active_deadline_seconds is not None and elapsed >= job.active_deadline_seconds:
        return Outcome("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
    if job.max_failed_indexes is not None and len(progress.failed_indexes) > job.max_failed_indexes:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return Outcome("Failed", "MaxFailedIndexesExceeded", message)
    complete = Outcome("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
    if job.completions is None:
        return complete if progress.succeeded > 0 and active == 0 else None
    if progress.succeeded >= job.completions:
        return complete
    if progress.failed_indexes and len(progress.failed_indexes) + progress.succeeded >= job.completions:
        return Outcome("Failed", "FailedIndexes", "Job has failed indexes")
    return None


# ----- choice of pods to start -----


def backoff_delay(failures: int, first: float) -> float:
    """Return the seconds from the last failure to the next pod: `first`, doubled with each failure up to 36 * `first`.

    On a real cluster the delays are 10, 20, 40 ... 360. Each failed pod counts as a failure, so after three
    simultaneous failures the third delay applies.
    """
    return first * min(2.0 ** min(failures - 1, 10), LONGEST_BACKOFF) if failures else 0.0


def not_before(progress: JobProgress, index: int | None, first: float) -> float:
    """Return the earliest start time of a pod with this index; without backoffLimitPerIndex, the index is ignored."""
    backoff = progress.backoffs.get(index, progress.backoffs.get(None, Backoff()))
    return backoff.last + backoff_delay(backoff.failures, first) if backoff.failures else 0.0


def pods_wanted(progress: JobProgress, job: JobSpec, occupied: Collection[int | None]) -> list[int | None]:
    """Return the indexes of the missing pods (None for each pod of a Job without indexes), ignoring the back-off.

    Args: occupied: the indexes of the pods that count as present. Running and pending pods count as present. If the
    podReplacementPolicy is Failed, terminating pods count, too, because only ended pods are replaced.
    """
    if job.completions is None:
        places = 0 if progress.succeeded else job.parallelism
    else:
        places = min(job.parallelism, job.completions - progress.succeeded)
    lacking = max(0, places - len(occupied))
    if not job.indexed:
        return [None] * lacking
    taken = {index for index in occupied if index is not None} | progress.succeeded_indexes | progress.failed_indexes
    free: list[int | None] = [index for index in range(job.completions or 0) if index not in taken]
    return free[:lacking]


# ----- the exit status of localcluster -----

SIGNALLED = {"Terminated": 143, "Interrupted": 130}  # {reason of the Job's end by SIGTERM or Ctrl-C: exit status}
EXIT_CODES = frozenset({64, 65, 66, 69, 70, 74, 75, 77, 78})


def exit_status(outcome: Outcome, pod_codes: Sequence[int], named_code: int | None = None) -> int:
    """Return localcluster's exit status for the end of a Job; only a complete Job has the status 0.

    If the Job's failure names a pod, the result is this pod's exit code, even if another pod failed before. Otherwise
    the result is the first exit code that this project's programs use, because that code shows a script the cause. If
    no pod has such a code, for example after a signal, the result is 75.

    Args: pod_codes: the exit codes of the failed pods in order of their end. named_code: the exit code of the pod that
    the failure names.
    """
    if outcome.is_complete:
        return 0
    if outcome.reason in SIGNALLED:
        return SIGNALLED[outcome.reason]
    if named_code:
        return named_code
    return next((code for code in pod_codes if code in EXIT_CODES), 75)
