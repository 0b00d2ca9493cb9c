from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from each import each

from paddle_cluster.localcluster.errors import ManifestError
from paddle_cluster.localcluster.job import policy
from paddle_cluster.localcluster.job.manifest import Container, JobSpec, Rule, parse_rules
from paddle_cluster.localcluster.job.policy import Backoff, Failure, JobProgress, Outcome

JOB = JobSpec("j", Container("trainer"), parallelism=3, completions=3, indexed=True)
NEVER_RETRY = Rule("FailJob", "In", frozenset({64, 78}), "trainer")
DRAINED = Rule("Ignore", conditions=(("DisruptionTarget", "True"),))


def failure(code: int | None = 75, index: int | None = 0, **conditions: str) -> Failure:
    return Failure("j-0-abcde", index, code, "trainer", conditions)


def fail(progress: JobProgress, job: JobSpec = JOB, now: float = 100.0, **about: Any) -> JobProgress:
    return policy.count_failure(progress, job, failure(**about), now)


# ----- podFailurePolicy -----

VERDICTS = {
    "a code of the list": ([NEVER_RETRY], failure(78), ("FailJob", 0)),
    "a code that is not in the list": ([NEVER_RETRY], failure(75), ("Count", None)),
    "the first rule that applies wins": ([DRAINED, NEVER_RETRY], failure(78, DisruptionTarget="True"), ("Ignore", 0)),
    "a condition that is False does not apply": ([DRAINED], failure(75, DisruptionTarget="False"), ("Count", None)),
    "NotIn applies to every other failure": ([Rule("Ignore", "NotIn", frozenset({78}))], failure(137), ("Ignore", 0)),
    "NotIn does not apply to its own": ([Rule("Ignore", "NotIn", frozenset({78}))], failure(78), ("Count", None)),
    "another container's rule": ([replace(NEVER_RETRY, container="x")], failure(78), ("Count", None)),
    "a pod that never ran has no code": ([Rule("Ignore", "NotIn", frozenset({78}))], failure(None), ("Count", None)),
}


@each(("rules", "failed", "verdict"), VERDICTS.values(), ids=VERDICTS)
def test_the_policy_judges_a_failure(rules: list[Rule], failed: Failure, verdict: tuple[str, int | None]):
    assert policy.judge_failure(rules, failed) == verdict


CODES = {"operator": "In", "values": [64, 78]}
BAD_RULES = {
    "unknown action": ({"action": "Panic", "onExitCodes": CODES}, "action is 'Panic'"),
    "unknown operator": ({"action": "Count", "onExitCodes": {**CODES, "operator": "Gt"}}, "operator is 'Gt'"),
    "descending": (
        {"action": "Count", "onExitCodes": {**CODES, "values": [78, 64]}},
        r"ascending, without repetitions: \[64, 78\]",
    ),
    "twice": ({"action": "Count", "onExitCodes": {**CODES, "values": [64, 64]}}, "ascending"),
    "zero": ({"action": "Count", "onExitCodes": {**CODES, "values": [0, 64]}}, "must not contain 0"),
    "no values": ({"action": "Count", "onExitCodes": {**CODES, "values": []}}, "a list of numbers"),
    "texts": ({"action": "Count", "onExitCodes": {**CODES, "values": ["64"]}}, "a list of numbers"),
    "neither": ({"action": "Count"}, "either onExitCodes or onPodConditions"),
    "FailIndex": ({"action": "FailIndex", "onExitCodes": CODES}, "needs backoffLimitPerIndex"),
}


@each(("rule", "message"), BAD_RULES.values(), ids=BAD_RULES)
def test_rules_that_the_api_server_rejects_are_refused(rule: dict[str, Any], message: str):
    with pytest.raises(ManifestError, match=message):
        parse_rules({"rules": [rule]}, per_index=False)


def test_rules_are_read():
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "FailJob", "onExitCodes": {"containerName": "trainer", **CODES}},
    ]
    assert parse_rules({"rules": rules}, per_index=False) == (DRAINED, NEVER_RETRY)


# ----- counting -----


def test_an_ignored_failure_is_not_counted_but_delays():
    progress = fail(JobProgress(), replace(JOB, rules=(DRAINED,)), DisruptionTarget="True")
    assert progress.failed == 0
    assert policy.not_before(progress, 0, 10.0) == 110.0


def test_a_success_ends_the_back_off():
    progress = policy.count_success(fail(JobProgress()), 1)
    assert policy.not_before(progress, 0, 10.0) == 0.0
    assert progress.succeeded_indexes == {1}


def test_an_index_succeeds_once():
    progress = policy.count_success(policy.count_success(JobProgress(), 1), 1)
    assert progress.succeeded == 1


def test_without_indexes_every_success_counts():
    assert policy.count_success(policy.count_success(JobProgress(), None), None).succeeded == 2


def test_with_a_limit_per_index_each_index_has_its_own_back_off_and_its_own_end():
    job = replace(JOB, backoff_limit_per_index=1)
    progress = fail(fail(JobProgress(), job, index=0), job, index=0)
    assert progress.failed_indexes == {0}
    assert policy.not_before(progress, 1, 10.0) == 0.0
    assert policy.not_before(progress, 0, 10.0) == 120.0


def test_fail_index_ends_an_index_at_once():
    job = replace(JOB, backoff_limit_per_index=5, rules=(Rule("FailIndex", "In", frozenset({65})),))
    assert fail(JobProgress(), job, code=65, index=2).failed_indexes == {2}


@each(("failures", "seconds"), [(0, 0), (1, 10), (2, 20), (3, 40), (4, 80), (7, 360), (5000, 360)])
def test_the_back_off_doubles_up_to_36_times(failures: int, seconds: float):
    assert policy.backoff_delay(failures, 10.0) == seconds


# ----- judging the Job -----

LIMITED = replace(JOB, backoff_limit=1)
QUEUE = replace(JOB, completions=None)
DONE = JobProgress(succeeded=3, succeeded_indexes=frozenset({0, 1, 2}))
JUDGEMENTS = {
    "goes on": (JobProgress(), JOB, 3, 0.0, None),
    "all completions": (DONE, JOB, 0, 0.0, "CompletionsReached"),
    "as many failures as the limit": (JobProgress(failed=1), LIMITED, 3, 0.0, None),
    "one failure more than the limit": (JobProgress(failed=2), LIMITED, 3, 0.0, "BackoffLimitExceeded"),
    "before the deadline": (JobProgress(), replace(JOB, active_deadline_seconds=5), 3, 4.9, None),
    "after the deadline": (JobProgress(), replace(JOB, active_deadline_seconds=5), 3, 5.0, "DeadlineExceeded"),
    "work queue with a success and running pods": (
        JobProgress(succeeded=1),
        replace(JOB, completions=None),
        2,
        0.0,
        None,
    ),
    "work queue with a success": (
        JobProgress(succeeded=1),
        replace(JOB, completions=None),
        0,
        0.0,
        "CompletionsReached",
    ),
    "failed indexes while others run": (
        JobProgress(succeeded=1, failed_indexes=frozenset({0})),
        replace(JOB, backoff_limit_per_index=0),
        1,
        0.0,
        None,
    ),
    "failed indexes and no others": (
        JobProgress(succeeded=2, failed_indexes=frozenset({0})),
        replace(JOB, backoff_limit_per_index=0),
        0,
        0.0,
        "FailedIndexes",
    ),
    "too many failed indexes": (
        JobProgress(failed_indexes=frozenset({0, 1})),
        replace(JOB, backoff_limit_per_index=0, max_failed_indexes=1),
        1,
        0.0,
        "MaxFailedIndexesExceeded",
    ),
}


@each(("progress", "job", "active", "elapsed", "reason"), JUDGEMENTS.values(), ids=JUDGEMENTS)
def test_the_job_is_judged(progress: JobProgress, job: JobSpec, active: int, elapsed: float, reason: str | None):
    outcome = policy.judge_job(progress, job, active, elapsed)
    assert (outcome.reason if outcome else None) == reason


def test_a_fail_job_rule_ends_the_job_in_the_words_of_kubernetes():
    job = replace(JOB, rules=(DRAINED, NEVER_RETRY))
    outcome = policy.judge_job(fail(JobProgress(), job, code=78), job, 2, 0.0)
    message = "Container trainer for pod default/j-0-abcde failed with exit code 78 matching FailJob rule at index 1"
    assert outcome == Outcome("Failed", "PodFailurePolicy", message, "j-0-abcde")


# ----- choosing pods -----

WANTS = {
    "all at the beginning": (JobProgress(), JOB, [], [0, 1, 2]),
    "the missing one": (JobProgress(), JOB, [0, 2], [1]),
    "none beside a terminating one of the same index": (JobProgress(), JOB, [0, 1, 2], []),
    "not those that succeeded": (JobProgress(succeeded=1, succeeded_indexes=frozenset({1})), JOB, [0], [2]),
    "not those that failed for good": (JobProgress(failed_indexes=frozenset({0})), JOB, [1], [2]),
    "no more than parallelism": (JobProgress(), replace(JOB, parallelism=2), [0], [1]),
    "without indexes as many as are lacking": (JobProgress(succeeded=1), replace(JOB, indexed=False), [None], [None]),
    "a work queue's pods": (JobProgress(), replace(JOB, indexed=False, completions=None), [None], [None, None]),
    "none after a work queue's first success": (
        JobProgress(succeeded=1),
        replace(JOB, indexed=False, completions=None),
        [],
        [],
    ),
}


@each(("progress", "job", "occupied", "wanted"), WANTS.values(), ids=WANTS)
def test_the_job_wants_pods(progress: JobProgress, job: JobSpec, occupied: list[int | None], wanted: list[int | None]):
    assert policy.pods_wanted(progress, job, occupied) == wanted


# ----- localcluster's own end -----

FAILED = Outcome("Failed", "BackoffLimitExceeded", "")
STATUSES = {
    "complete, though a pod had failed": (Outcome("Complete", "CompletionsReached", ""), [75], 0),
    "a code of ours": (FAILED, [137, 78, 66], 78),
    "foreign codes only": (FAILED, [137, 1], 75),
    "no pod had started": (FAILED, [], 75),
    "SIGTERM to localcluster": (Outcome("Failed", "Terminated", ""), [78], 143),
}


@pytest.mark.parametrize(("outcome", "codes", "status"), STATUSES.values(), ids=STATUSES)
def test_the_exit_status_tells_how_it_went(outcome: Outcome, codes: list[int], status: int):
    assert policy.exit_status(outcome, codes) == status


@pytest.mark.parametrize(("named_code", "status"), [(65, 65), (3, 3), (None, 75)])
def test_the_code_of_the_pod_that_the_failure_names_is_the_exit_status(named_code: int | None, status: int):
    outcome = Outcome("Failed", "PodFailurePolicy", "", "j-1-abcde")
    assert policy.exit_status(outcome, [75, 65], named_code) == status


def test_back_off_counts_every_pod_that_fails():
    progress = JobProgress()
    for index in range(3):
        progress = fail(progress, index=index)
    assert progress.backoffs == {None: Backoff(3, 100.0)}
