"""Trials of all-reduce jobs: their plan, the ledger of the workers, and what is found wrong with a job."""

import json
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from chaos.allreduce import verdict
from chaos.allreduce.allreduce_model import replay
from chaos.allreduce.ledger import Commit, Ledger, WorkerRecord
from chaos.allreduce.plan import (
    BATCH,
    HARMS,
    LASTING,
    LATER_MOMENTS,
    MOMENTS,
    MOST,
    ROLES,
    SAMPLES,
    AllReduceTrial,
    Blow,
    make_allreduce_trials,
)
from chaos.allreduce.table import format_allreduce_table
from chaos.allreduce.trial import AllReduceReport, read_allreduce_report, read_allreduce_trial
from chaos.tasks.__main__ import find_trial, has_torch, make_mixed_trials
from chaos.tasks.plan import make_elastic_trials

from paddle_cluster.localcluster.deployment import DeployedPod

# ----- plan


@pytest.mark.parametrize("seed", range(5))
def test_sixteen_trials_have_every_harm_of_every_role(seed):
    for begin in (0, 16, 32):
        some = make_allreduce_trials(48, seed)[begin : begin + 16]
        assert {(trial.blows[0].role, trial.blows[0].harm) for trial in some} == set(product(ROLES, HARMS))
        assert {trial.blows[0].moment for trial in some} == set(MOMENTS)
        assert {trial.is_scaled for trial in some} == {False, True}


def test_second_blows_come_at_every_moment():
    seconds = [trial.blows[1] for trial in make_allreduce_trials(200, 1) if len(trial.blows) > 1]
    assert {blow.moment for blow in seconds} == set(LATER_MOMENTS)
    assert len(seconds) > 100


def test_what_stays_frozen_is_no_driver_and_one_thing_of_a_trial():
    for trial in make_allreduce_trials(500, 2):
        staying = [blow for blow in trial.blows if blow.lasts not in LASTING]
        assert len(staying) <= 1
        assert all(blow.harm == "freeze" and blow.role != "driver" for blow in staying)
        assert not any((blow.role, blow.moment) == ("worker", "begin") for blow in staying)


def test_one_of_three_jobs_is_of_torch_and_without_torch_the_same_job_trains_with_numpy():
    trials, others = make_allreduce_trials(300, 1), make_allreduce_trials(300, 1, has_torch=False)
    assert sum(trial.is_torch for trial in trials) == 100
    assert [replace(trial, is_torch=False) for trial in trials] == others
    harms = {(blow.role, blow.harm) for trial in trials if trial.is_torch for blow in trial.blows}
    assert harms == set(product(ROLES, HARMS))


def test_each_number_of_workers_divides_a_batch_and_a_batch_the_data():
    assert [BATCH % size for size in range(1, MOST + 1)] == [0] * MOST
    assert SAMPLES % BATCH == 0


def test_every_fifth_trial_is_an_all_reduce_job_and_the_numbers_of_the_others_stay():
    mixed = make_mixed_trials(20, 1, False, True)
    assert [isinstance(trial, AllReduceTrial) for trial in mixed] == [number % 5 == 4 for number in range(20)]
    assert [trial for trial in mixed if not isinstance(trial, AllReduceTrial)] == make_elastic_trials(16, 1)
    assert [trial.name for trial in mixed[4::5]] == ["1-a000", "1-a001", "1-a002", "1-a003"]


def test_a_name_says_which_trial_it_is():
    assert find_trial("7-094", False, True) == [make_elastic_trials(100, 7)[94]]
    assert find_trial("7-a031", False, True) == [make_allreduce_trials(40, 7, has_torch=has_torch())[31]]
    assert find_trial("a-7", False, True) == find_trial("7-", False, True) == []


def test_a_job_says_all_of_itself():
    blows = (Blow("worker", "freeze", "step", 0.25, 3, "never"), Blow("host", "kill", "report", is_pod=True))
    trial = AllReduceTrial("1-a000", (2, 1), True, blows)
    assert str(trial) == (
        "1-a000: all-reduce, slots 2+1, scaled: freeze (never) of worker 3 at step 25%; kill (pod) of host 0 at report"
    )
    assert read_allreduce_trial(json.loads(json.dumps(asdict(trial)))) == trial


def test_a_report_of_a_job_is_read_as_it_was_written(tmp_path):
    trial = make_allreduce_trials(1, 1)[0]
    report = AllReduceReport(trial, str(tmp_path), 12.5, 2.5, 3, ["1 s: x"], [], ["a fault"])
    report.save()
    assert read_allreduce_report(tmp_path) == report


# ----- ledger


def lines(*fields):
    return b"".join(json.dumps(one).encode() + b"\n" for one in fields)


BEGIN = {"pid": 7, "host": "h", "local_rank": "1"}


def kept(step, generation=1, rank=0, batch=(0, 1), **changes):
    fields = {"size": 2, "epoch": 0, "weights": "w"} | changes
    return {"step": step, "generation": generation, "rank": rank, "batch": list(batch), **fields}


def test_half_a_line_is_read_when_the_rest_has_come(tmp_path):
    data = lines(BEGIN, kept(1), kept(2))
    (tmp_path / "one").write_bytes(data[:-5])
    ledger = Ledger(tmp_path)
    ledger.look()
    assert ledger.steps == 1
    (tmp_path / "one").write_bytes(data)
    ledger.look()
    assert (ledger.steps, ledger.generation, ledger.begun[0].pid) == (2, 1, 7)


def test_those_that_have_the_newest_state_hold_it_unless_they_were_struck(tmp_path):
    (tmp_path / "old").write_bytes(lines(BEGIN, kept(1)))
    (tmp_path / "struck").write_bytes(lines(BEGIN, kept(1), kept(2, 2)))
    (tmp_path / "well").write_bytes(lines(BEGIN, kept(1), kept(2, 2)))
    ledger = Ledger(tmp_path)
    ledger.look()
    assert [one.name for one in ledger.list_holders({"struck": 2})] == ["well"]
    assert [one.name for one in ledger.list_holders({"struck": 1})] == ["struck", "well"]


# ----- verdict


def commit(step, generation=1, rank=0, batch=(0,), **changes):
    return Commit(**{**kept(step, generation, rank, batch), "batch": tuple(batch), **changes})


def worker(*commits, name="one", end=None):
    return WorkerRecord(name, 1, "h", 0, list(commits), end)


def test_the_last_commit_of_a_step_counts():
    workers = [worker(commit(1), commit(2)), worker(commit(1, rank=1), commit(2, 2, weights="v"))]
    assert {step: one.generation for step, one in verdict.list_committed(workers).items()} == {1: 1, 2: 2}


def test_ranks_that_have_kept_different_states_are_named():
    assert verdict.check_agreement([worker(commit(1)), worker(commit(1, rank=1))]) == []
    assert verdict.check_agreement([worker(commit(1)), worker(commit(1, rank=1, weights="v"))]) == [
        "step 1 of generation 1 has 2 versions"
    ]
    assert verdict.check_agreement([worker(commit(1)), worker(commit(1, 2, batch=(1,)))]) == [
        "step 1 has other samples in another generation"
    ]


def test_samples_that_are_lost_or_double_are_named():
    steps = {1: commit(1, batch=(0, 1)), 2: commit(2, batch=(2, 3))}
    assert verdict.check_samples(steps, epochs=1, samples=4, batch=2) == []
    assert verdict.check_samples({1: steps[1], 2: commit(2, batch=(1, 2))}, 1, 4, 2) == [
        "epoch 0: the samples [3] were lost",
        "epoch 0: the samples [1] count more than once",
    ]
    assert verdict.check_samples({1: steps[1]}, 1, 4, 2)[0] == "the steps [2] were not committed"


def test_a_generation_goes_on_where_its_rank_0_stopped():
    first = worker(commit(1), commit(2))
    behind = worker(commit(1, rank=1), commit(2, 2), commit(3, 2))  # the old rank 0 had kept 2 and was lost
    assert verdict.check_generations([first, behind]) == []
    gap = worker(commit(1, rank=1), commit(3, 2))
    assert verdict.check_generations([first, gap]) == [
        "generation 2 began with step 3, and its rank 0 had committed 1",
    ]


def test_a_job_that_began_anew_without_a_word_is_named():
    faults = verdict.check_generations([worker(commit(1), commit(2)), worker(commit(1, 2), name="new")])
    assert faults == [
        "generation 2 began with step 1 of a new worker: the state was lost",
        "rank 0 of generation 2, new, is a new worker: the state was lost",
    ]


def test_a_worker_that_left_out_a_step_is_named():
    assert verdict.check_generations([worker(commit(1), commit(3))]) == ["one committed step 3 after 1 of generation 1"]


def end(weights, seen=((1, 1),)):
    return {"weights": [float(one).hex() for one in weights], "seen": [list(row) for row in seen]}


def test_the_model_is_that_of_an_undisturbed_run():
    steps = {1: commit(1, batch=(0, 1)), 2: commit(2, batch=(2, 3))}
    right = replay([[0, 1], [2, 3]], 4)
    assert verdict.check_model([worker(end=end(right)), worker()], steps, 4) == []
    assert verdict.check_model([worker()], steps, 4) == ["no worker has come to its end"]
    other = right + np.eye(len(right))[0] * 1e-6
    assert verdict.check_model([worker(end=end(right)), worker(end=end(other))], steps, 4) == [
        "2 ranks ended with 2 models",
        "the model differs by 1e-06 from that of an undisturbed run of the same steps",
    ]
    assert verdict.check_model([worker(end=end(right, [[1, 2]]))], steps, 4) == [
        "the state itself counts a sample twice, or not at all"
    ]


def pods(*ends):
    return {"driver": [DeployedPod(0, "driver-0", "uid", "127.0.0.1", Path("x"), list(ends), start_at=None)]}


LATE = (
    "I1 registration.py:192] generation 3 is the last one: 3 of 4 workers have succeeded\n"
    "F1 launch.py:388] 10.77.0.4[0] ended with status 75, as the first of 1 workers that have failed; look\n"
)


def test_a_driver_ends_with_a_good_reason():
    assert verdict.check_ends(pods(137, 143, 0), {}, ()) == []
    assert verdict.check_ends(pods(75, 0), {"driver-0.0.log": "this process has lost its claim of"}, ()) == []
    assert verdict.check_ends(pods(75), {}, ()) == ["driver-0 ended with 75: see driver-0.0.log"]
    assert verdict.check_ends(pods(75), {"driver-0.0.log": LATE}, {"10.77.0.4"}) == []
    assert verdict.check_ends(pods(75), {"driver-0.0.log": LATE}, {"10.77.0.5"}) != []
    assert verdict.check_ends(pods(70), {"driver-0.0.log": LATE}, {"10.77.0.4"}) != []


def test_what_a_worker_ends_with_is_no_bug():
    error = "paddle_base.runtime.errors.PeerUnreachableError"
    shown = f"[1]<stderr>:Traceback (most recent call last):\n[1]<stderr>:{error}: no answer\n"
    assert verdict.check_logs({"driver-0.0.log": shown}) == []
    assert verdict.check_logs({"driver-0.0.log": shown + "[1]<stderr>:KeyError: 3\n"}) == [
        "a worker ended with KeyError: see driver-0.0.log"
    ]
    removed = shown.replace(error, "paddle_cluster.elastic.errors.RemovedFromJobError")
    assert verdict.check_logs({"driver-0.0.log": removed}) == [
        "a worker ended with RemovedFromJobError: see driver-0.0.log"
    ], "a removed worker leaves with one line, and a traceback is a fault"
    assert len(verdict.check_logs({"host-0.0.log": "Traceback (most recent call last):\n"})) == 1


# ----- table


def test_the_table_of_jobs_has_a_row_for_each_harm():
    reports = [
        AllReduceReport(trial, "", 10.0 + number, 1.0) for number, trial in enumerate(make_allreduce_trials(16, 1))
    ]
    reports[3].faults.append("it hangs")
    rows = format_allreduce_table(reports).splitlines()
    assert len(rows) >= 1 + 16 + 2
    assert rows[-1].split()[:5] == ["all", "all", "16", "0", "1"]
