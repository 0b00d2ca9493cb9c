"""The states of an attempt, and the record of the next one."""

import dataclasses
from typing import Any

import pytest

from paddle_cluster.launcher.attempts import AttemptState, JobRecord, state_of
from paddle_cluster.launcher.resume import KEPT_ATTEMPTS, Decision, next_record

RECORD = JobRecord("this", 10, False, attempt=3, pod_uids=["a", "b"], start_pass=2)
NOW = "2026-11-22 20:00:00"
STATES: dict[AttemptState, tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]] = {
    AttemptState.FORMING: ({}, None, {"attempt": "2.before"}),
    AttemptState.RUNNING: ({}, None, {"attempt": RECORD.name}),
    AttemptState.RESTARTING: ({}, {"exit_code": 75}, {"attempt": RECORD.name}),
    AttemptState.FAILED: ({}, {"exit_code": 65}, {"attempt": RECORD.name}),
    AttemptState.FINISHED: ({"finished": True}, {"exit_code": 75}, {}),
    AttemptState.GIVEN_UP: ({"given_up": True}, {"exit_code": 75}, {}),
}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_each_state_has_a_sentence_and_a_case(state: AttemptState) -> None:
    fields, failure, progress = STATES[state]
    assert state_of(dataclasses.replace(RECORD, **fields), failure, progress) is state
    assert len(state.value.split()) > 4
    assert state.is_broken == (state in (AttemptState.RESTARTING, AttemptState.FAILED))


def test_there_is_a_case_for_every_state() -> None:
    assert set(STATES) == set(AttemptState)


def test_a_killed_program_is_worth_a_retry_whatever_its_status_says() -> None:
    assert state_of(RECORD, {"exit_code": 65, "signal": "SIGKILL"}, {}) is AttemptState.RESTARTING


def test_the_next_record_goes_on_and_keeps_the_last_attempts() -> None:
    attempts = [{"name": f"{number}", "started": NOW, "origin": ""} for number in range(KEPT_ATTEMPTS)]
    last = dataclasses.replace(RECORD, attempts=attempts)
    wanted = dataclasses.replace(RECORD, attempt=4, start_pass=0)
    found = next_record(wanted, last, Decision(start_pass=5), is_forgiven=False, restarts=10, started=NOW)
    assert (found.attempt, found.start_pass, found.fruitless, found.given_up) == (4, 5, 0, False)
    assert len(found.attempts) == KEPT_ATTEMPTS
    assert found.attempts[-1] == {"name": found.name, "started": NOW, "origin": "pass-00004"}


@pytest.mark.parametrize(("is_forgiven", "given_up"), [(False, True), (True, False)])
def test_a_job_gives_up_after_too_many_attempts_without_progress(is_forgiven: bool, given_up: bool) -> None:
    last = dataclasses.replace(RECORD, fruitless=1)
    found = next_record(RECORD, last, Decision(start_pass=2), is_forgiven=is_forgiven, restarts=1, started=NOW)
    assert found.given_up is given_up
    assert bool(found.attempts) is not given_up, "an attempt that nobody begins is not listed"
