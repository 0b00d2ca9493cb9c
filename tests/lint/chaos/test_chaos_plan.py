"""Which trials a seed gives."""

import pytest
from chaos.allreduce.plan import make_allreduce_trials
from chaos.plan import HARMS, MODES, MOMENTS, PODS, ROLES, SHORT, Trial, make_trials
from chaos.tasks.plan import make_elastic_trials


@pytest.mark.parametrize("make", [make_trials, make_elastic_trials, make_allreduce_trials])
def test_the_same_seed_gives_the_same_trials_however_many_and_another_seed_others(make):
    assert make(40, 7) == make(40, 7) != make(40, 8)
    assert make(40, 7)[:10] == make(10, 7)


@pytest.mark.parametrize("seed", range(20))
def test_twenty_trials_have_all_roles_moments_and_kinds_of_harm(seed):
    trials = make_trials(20, seed)
    assert {trial.role for trial in trials} == set(ROLES)
    assert {trial.moment for trial in trials} == set(MOMENTS)
    harms = [trial.harm for trial in trials]
    assert harms.count("kill") == 14
    assert harms.count("stop") == harms.count("term") == harms.count("cut") + harms.count("power") == 2
    assert {trial.mode for trial in trials} == set(MODES)


def test_the_short_run_has_all_roles_moments_harms_and_modes_and_the_kill_of_each_program():
    trials = make_trials(*SHORT)
    assert {trial.role for trial in trials} == set(ROLES)
    assert {trial.moment for trial in trials} == set(MOMENTS)
    assert {trial.harm for trial in trials} == set(HARMS)
    assert {trial.mode for trial in trials} == set(MODES)
    early = [
        trial for trial in trials if trial.mode == "sync" and trial.moment in ("first-batch", "mid-pass", "saving")
    ]
    killed = {trial.role.partition("-")[0] for trial in early if trial.harm in ("kill", "power")}
    assert killed == {"trainer", "pserver", "launcher", "pod"}, "of jobs that need them, and whose bits are compared"
    assert any(trial.role == "pod" and trial.harm == "term" for trial in trials), "a pod that is deleted"
    assert any(trial.pod == 0 and trial.ends_pod for trial in early), "the launcher that keeps the record"


def test_36_trials_have_every_pair_of_role_and_moment_once():
    pairs = [(trial.role, trial.moment) for trial in make_trials(36, 3)]
    assert sorted(pairs) == sorted((role, moment) for role in ROLES for moment in MOMENTS)


def test_no_cut_is_planned_where_there_are_no_networks():
    assert {trial.harm for trial in make_trials(100, 1, harms=("kill", "stop", "term"))} == {"kill", "stop", "term"}
    strikes = [one.harm for trial in make_elastic_trials(60, 1, can_cut=False) for one in trial.strikes]
    blows = [one.harm for trial in make_allreduce_trials(60, 1, can_cut=False) for one in trial.blows]
    assert "cut" not in strikes + blows


def test_only_a_program_of_a_living_launcher_is_stopped_for_ever():
    for trial in make_trials(2000, 5, harms=HARMS):
        assert 0 <= trial.pod < PODS
        if trial.harm == "stop" and trial.lasts == "never":
            assert trial.role not in ("launcher", "pod")


def test_what_nobody_watches_need_not_be_noticed():
    for trial in make_trials(2000, 6, harms=HARMS):
        if trial.harm in ("stop", "cut") and trial.moment == "start":
            assert trial.lasts in ("short", "long")
        if trial.harm == "stop" and trial.role == "launcher":
            assert trial.lasts in ("short", "long") and trial.is_unnoticed


@pytest.mark.parametrize(
    ("role", "harm", "ends"),
    [
        ("trainer-0", "kill", False),
        ("pserver-1", "term", False),
        ("launcher", "kill", True),
        ("launcher", "stop", False),
        ("pod", "term", True),
        ("pod", "cut", False),
        ("pod", "power", True),
    ],
)
def test_only_the_end_of_a_launcher_or_pod_costs_a_pod(role, harm, ends):
    assert Trial("one", role=role, moment="mid-pass", harm=harm).ends_pod is ends
