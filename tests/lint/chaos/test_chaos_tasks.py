"""Trials of task jobs: their plan, and what is found wrong with a job."""

import json
from dataclasses import asdict
from itertools import pairwise, product
from pathlib import Path

import pytest
from chaos.allreduce import plan as allreduce
from chaos.tasks import verdict
from chaos.tasks.__main__ import make_mixed_trials
from chaos.tasks.plan import HARMS, LASTING, ROLES, SCALES, SHORT, ElasticTrial, Strike, make_elastic_trials
from chaos.tasks.table import format_elastic_table
from chaos.tasks.trial import ElasticReport, read_elastic_report, read_trial

from paddle_cluster.localcluster.deployment import DeployedPod

# ----- plan


@pytest.mark.parametrize("seed", range(5))
def test_twenty_trials_have_every_harm_of_every_role(seed):
    for begin in (0, 20, 40):
        some = make_elastic_trials(60, seed)[begin : begin + 20]
        first = {(trial.strikes[0].role, trial.strikes[0].harm) for trial in some}
        assert first == set(product(ROLES, HARMS))
        assert {trial.mode for trial in some} == {"sync", "async"}
        assert {trial.store for trial in some} == {"directory", "etcd"}
        assert {trial.is_scaled for trial in some} == {False, True}


@pytest.mark.parametrize("has_texts", [False, True])
def test_the_short_run_has_every_harm_of_every_role(has_texts):
    trials = make_mixed_trials(*SHORT, has_texts, can_cut=True)
    elastic = [trial for trial in trials if isinstance(trial, ElasticTrial)]
    assert {(one.role, one.harm) for trial in elastic for one in trial.strikes} == set(product(ROLES, HARMS))
    assert {(trial.mode, trial.store) for trial in elastic} == set(product(("sync", "async"), ("directory", "etcd")))
    assert {trial.is_scaled for trial in elastic} == {False, True}
    blows = [one for trial in trials if not isinstance(trial, ElasticTrial) for one in trial.blows]
    assert {one.role for one in blows} == set(allreduce.ROLES)
    assert {one.harm for one in blows} == set(allreduce.HARMS)


def test_some_trials_have_two_strikes_at_once():
    several = [trial.strikes for trial in make_elastic_trials(100, 1) if len(trial.strikes) > 1]
    at_once = [one for one in several if one[0].share == one[1].share]
    assert len(several) > 50
    assert len(at_once) > 20


def test_what_cannot_be_survived_is_not_asked_for():
    """A freeze ends, except a trainer's, which nobody waits for; an etcd that is harmed is there."""
    for trial in make_elastic_trials(300, 2):
        for strike in trial.strikes:
            assert strike.role != "etcd" or trial.store == "etcd"
            assert strike.lasts in LASTING or (strike.role, strike.harm) == ("trainer", "freeze")
            assert strike.role != "etcd" or not strike.is_pod


def test_texts_are_trained_where_they_are():
    assert {trial.data for trial in make_elastic_trials(20, 1)} == {"digits"}
    found = [trial.data for trial in make_elastic_trials(20, 1, has_texts=True)]
    assert found.count("texts") == 2


def test_scales_come_in_order_of_the_tasks():
    assert all(one[0] < other[0] for one, other in pairwise(SCALES))


def test_a_trial_says_all_of_itself():
    strikes = (Strike("trainer", "freeze", 0.5, 0.1, lasts="never"), Strike("master", "kill", -1, 2.0, is_pod=True))
    trial = ElasticTrial("1-000", "etcd", "sync", "digits", True, strikes)
    assert str(trial) == (
        "1-000: digits, sync, etcd, scaled: freeze (never) of trainer at 50% +0.10 s; "
        "kill (pod) of master at the start +2.00 s"
    )
    assert str(ElasticTrial("x")) == "x: digits, async, directory: undisturbed"
    assert read_trial(json.loads(json.dumps(asdict(trial)))) == trial


def test_a_report_is_read_as_it_was_written(tmp_path):
    report = ElasticReport(make_elastic_trials(1, 1)[0], str(tmp_path), 12.5, ["1 s: x"], [], 0.05, 9584, ["a fault"])
    report.save()
    assert read_elastic_report(tmp_path) == report


# ----- verdict


def account(**changes):
    passes = [
        {"pass": number, "done": 3, "discarded": 0, "dispatches": 4, "failures": 1, "samples": 30, "repeated": 5}
        for number in range(2)
    ]
    for name, value in changes.items():
        passes[1][name] = value
    return {"phase": "done", "passes": passes}


def test_a_whole_account_is_right():
    assert verdict.check_account(account(), tasks=3, passes=2, samples=30) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"done": 2}, "pass 1: 2 tasks done and 0 discarded of 3"),
        ({"discarded": 1}, "pass 1: 3 tasks done and 1 discarded of 3"),
        ({"samples": 20}, "pass 1: 20 samples of 30 were trained by account"),
        ({"dispatches": 2}, "pass 1: 2 dispatches of 3 tasks that are done"),
    ],
)
def test_a_pass_that_is_not_whole_is_named(changes, fault):
    assert verdict.check_account(account(**changes), 3, 2, 30) == [fault]


def test_a_pass_that_is_missing_is_named():
    assert verdict.check_account(account(), 3, 3, 30) == ["the account has no pass 2"]


def test_an_account_of_a_job_that_is_not_done_is_named(tmp_path):
    assert verdict.check_account({**account(), "phase": "running"}, 3, 2, 30) == [
        "the account's phase is 'running', not 'done'"
    ]
    assert verdict.check_account(verdict.read_account(tmp_path), 3, 2, 30) != []
    (tmp_path / "tasks.json").write_text("{")
    assert verdict.read_account(tmp_path) == {}


def log_of(*batches):
    lines = [f"I1123 05:41:51.780360 27914 TrainerInternal.cpp:165]  Batch={batch} samples={samples} AvgCost=2.6"
             for batch, samples in batches]  # fmt: skip
    return "\n".join(
        ["task 0 of pass 0 is done: 2 batches, 34 samples in 0.2 s", *lines, "] Pass=0 Batch=2 samples=34 "]
    )


def test_the_samples_of_all_batches_are_counted():
    logs = {"trainer-0.0.log": log_of((1, 20), (2, 34), (1, 20), (2, 40), (3, 54)), "trainer-0.1.log": log_of((1, 20))}
    assert verdict.count_trained(logs | {"pserver-0.0.log": log_of((1, 7))}) == 34 + 54 + 20


@pytest.mark.parametrize(("unreported", "trained", "is_right"), [
    (0, 70, True), (0, 69, False), (0, 71, False), (1, 70, True), (1, 104, True), (1, 105, False)
])  # fmt: skip
def test_what_was_trained_is_the_data_and_what_was_repeated(unreported, trained, is_right):
    record = account(unreported=unreported, repeated=5)
    record["passes"][0]["unreported"] = 0
    assert (verdict.check_samples(record, trained, samples=30, most=34) == []) == is_right


def test_every_file_is_read_in_every_pass():
    assert verdict.check_ledger("a\nb\na\nb\nb\n", passes=2, files=2) == []
    assert verdict.check_ledger("a\nb\nb\n", passes=2, files=3) == [
        "a was read 1 times in 2 passes",
        "2 of 3 files were read",
    ]


def pod(*ends, number=0, **changes):
    found = DeployedPod(number, f"pod-{number}", "uid", "127.0.0.1", Path("pod-0.0.log"), list(ends), start_at=None)
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def test_programs_end_as_those_that_were_harmed_do():
    assert verdict.check_ends({"trainer": [pod(137, 143, 75, 69, 0)], "etcd": [pod(137, start_at=1.0)]}) == []
    assert verdict.check_ends({"trainer": [pod(137, is_leaving=True)]}) == []
    assert verdict.check_ends({"trainer": [pod(70, 0)]}) == ["pod-0 ended with 70: see pod-0.0.log"]
    assert verdict.check_ends({"master": [pod(75)]}) == ["pod-0 ended with [75] and was not started again"]


def test_a_traceback_is_a_fault():
    assert verdict.check_logs({"trainer-0.0.log": "I1123 all is well\n"}) == []
    assert verdict.check_logs({"a.log": "x\nTraceback (most recent call last):\n  File"}) == [
        r"a.log has 'Traceback (most recent call last):\n  File'"
    ]


def test_a_model_may_be_better_than_the_static_jobs_and_a_point_worse():
    assert verdict.check_error(0.01, 0.05) == []
    assert verdict.check_error(0.06, 0.05) == []
    assert verdict.check_error(0.0601, 0.05) == ["the test error is 6.01%, that of the static job 5.00%"]
    assert verdict.check_error(None, 0.05) == ["the model of the last pass cannot be tested: see test.log"]


# ----- table


def test_the_table_has_a_row_for_each_harm_that_was_done():
    trials = make_elastic_trials(20, 1)
    reports = [ElasticReport(trial, "", seconds=10.0 + number) for number, trial in enumerate(trials)]
    reports[3].faults.append("it hangs")
    lines = format_elastic_table(reports).splitlines()
    assert len(lines) >= 1 + 20 + 4 + 1
    assert lines[-1].split()[-4:] == ["20", "1", "19.5", "(29.0)"]
    assert sum("kill" in line for line in lines) == len(ROLES)
