"""The states of an attempt, and the record of the next one."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.launcher.attempts import AttemptResult, AttemptState, JobRecord, state_of
from paddle_cluster.launcher.failures import first_failure, make_error, read_errors
from paddle_cluster.launcher.resume import KEPT_ATTEMPTS, Decision, Saved, choose_origin, next_record
from trainer.report import facts

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


FIRST_FAILURES = {
    "who left because a peer was gone is not the cause": ([(1, 75, ""), (2, 65, "")], 1),
    "a killed program is, although its status is the same": ([(1, 75, ""), (2, 75, "SIGKILL")], 1),
    "of several causes the first that was reported, whatever the pods' clocks say": ([(3, 74, ""), (2, 70, "")], 0),
    "who was stopped from outside comes before who lost a peer": ([(1, 75, ""), (2, 143, "")], 1),
    "when all were left alone, the earliest": ([(2, 75, ""), (3, 69, "")], 0),
}


@pytest.mark.parametrize(("ends", "first"), FIRST_FAILURES.values(), ids=FIRST_FAILURES.keys())
def test_the_first_failure_of_an_attempt(ends: list[tuple[float, int, str]], first: int) -> None:
    errors = [
        {"time": when, "attempt": "3.x", "trainer_id": number, "exit_code": code, "signal": signal}
        for number, (when, code, signal) in enumerate(ends)
    ]
    stale = {"time": 0, "attempt": "2.x", "trainer_id": 7, "exit_code": 65}
    found = first_failure([stale, *errors], "3.x")
    assert found and found["trainer_id"] == first


def test_the_clock_of_the_volume_orders_the_reports_of_pods(tmp_path: Path) -> None:
    """A pod whose clock was ten minutes behind was named as the first that failed, whenever it failed."""
    for number, (written, when) in enumerate([(300.0, 100.0), (200.0, 800.0), (250.0, 200.0)]):
        path = tmp_path / f"node_{number}" / "error.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(make_error("3.x", number, "pod", AttemptResult(70, "trainer", "")) | {"time": when}))
        os.utime(path, (written, written))
    errors = read_errors(tmp_path)
    assert [one["trainer_id"] for one in errors] == [1, 2, 0]
    assert first_failure(errors, "3.x") == errors[0]
    assert [one["trainer_id"] for one in facts.list_output(tmp_path).errors] == [1, 2, 0]
    assert facts.first_failure(facts.list_output(tmp_path).errors, "3.x")["trainer_id"] == 1


# ----- What it goes on from

WANTED = JobRecord("job", 10, False, 3, ["a"], 0, gradient_num=2, pserver_num=2)


def origin(last: JobRecord, passes: int, *states: str) -> tuple[str, int, bool]:
    decision = choose_origin(last, Saved(tuple(range(passes)), states), WANTED)
    return decision.checkpoint, decision.start_pass, decision.archive_state


def test_a_checkpoint_of_more_pods_is_divided_anew_and_one_line_says_so() -> None:
    """Training went on from the newest pass, and the state of the optimiser was lost."""
    last = dataclasses.replace(WANTED, gradient_num=3, pserver_num=3)
    assert origin(last, 3, "pass-00002", "pass-00003-004") == ("pass-00003-004", 0, False)
    message = choose_origin(last, Saved((0, 1, 2), ("pass-00003-004",)), WANTED).message
    assert (
        "\n" not in message
        and "The checkpoint was saved by 3 trainers and 3 pservers" in message
        and "WARNING" not in message
    )
    assert "going on from state/pass-00003-004" in message and "pass 3, in which it was saved, begins again" in message
    at_the_end = choose_origin(last, Saved((0, 1, 2), ("pass-00002",)), WANTED).message
    assert "divided anew" in at_the_end and "begins again" not in at_the_end
    assert origin(last, 0, "pass-00000-004") == ("pass-00000-004", 0, False)
    more_ports = dataclasses.replace(last, ports_num=2)
    assert origin(more_ports, 3, "pass-00002") == ("", 3, True)


def test_the_parameters_that_an_attempt_went_on_with_are_not_given_up() -> None:
    """A pass without a checkpoint is trained again, unless its parameters are all that an attempt had."""
    assert origin(WANTED, 1) == ("", 0, False)
    assert origin(dataclasses.replace(WANTED, start_pass=1), 1) == ("", 1, False)
    assert origin(dataclasses.replace(WANTED, gradient_num=3), 1) == ("", 1, False)
