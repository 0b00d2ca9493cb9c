"""Describe the state of a job in words, for the head of the report."""

from __future__ import annotations

from dataclasses import dataclass

from paddle_base.runtime.errors import STOP_CODES
from paddle_cluster.elastic.membership_file import describe_driver
from trainer.records.records import Record
from trainer.report.facts import Facts, describe_error, is_passed_on, last_line
from trainer.report.html.text import moment, number, seconds, whole

NEVER_RETRY = (64, 65, 66, 77, 78)  # exit codes that end the Job (podFailurePolicy of k8s/job.yaml)
SILENCE_S = 60.0  # a run that has written nothing for this many seconds may have been killed


@dataclass(frozen=True)
class JobState:
    """The state (training, finished, stopped, failed, restarting or waiting), and a message about the state, or ""."""

    name: str
    message: str = ""


def describe_state(facts: Facts) -> JobState:
    """Return the state of the newest attempt.

    If the training records of an all-reduce job do not show the end of the attempt, the record of its driver is used.
    """
    found = _describe_training(facts)
    end = facts.membership.get("end")
    if end and found.name in ("training", "waiting"):
        status = end["status"]
        name = "finished" if not status else "stopped" if status in STOP_CODES else "failed"
        return JobState(name, end["reason"])
    if facts.membership and found.name == "waiting":
        return JobState("training", _describe_silent_driver(facts))
    return found


def _describe_training(facts: Facts) -> JobState:
    attempt = facts.attempt
    newest = facts.attempts()[-1:]
    end, progress = (one if _is_of(one, attempt) else {} for one in (facts.history.end, facts.progress))
    if facts.job.get("finished") is True or end.get("status") == 0 or progress.get("status") == "finished":
        return JobState("finished")
    if end.get("status") in STOP_CODES or progress.get("status") == "stopped":
        return JobState("stopped", str(end.get("message") or progress.get("message") or ""))
    if newest and newest[0].failure:
        error = newest[0].failure
        unknown = "What failed first is not known. First to notice: " if is_passed_on(error) else ""
        given_up = facts.job.get("given_up") is True
        is_over = given_up or not facts.job or error.get("exit_code") in NEVER_RETRY
        last = "No further attempt follows." if given_up else ""
        return JobState(
            "failed" if is_over else "restarting",
            f"{unknown}{describe_error(error)}\n{last_line(error)}\n{last}".strip(),
        )
    if end or progress.get("status") == "failed":
        is_over = not (end and facts.job) or facts.job.get("given_up") is True or end.get("status") in NEVER_RETRY
        message = str(end.get("message") or progress.get("message") or "no reason was recorded")
        return JobState("failed" if is_over else "restarting", message)
    if progress or (facts.history.starts and _is_of(facts.history.start, attempt)):
        return JobState("training", str(progress.get("message") or "") or _describe_silence(facts))
    if facts.job:
        return JobState("waiting", f"Attempt {attempt} has not begun to train." if attempt else "")
    return JobState("waiting", "Nothing is recorded here yet: no records.jsonl, progress.json or job.json.")


def _describe_silence(facts: Facts) -> str:
    """Return sentences for the head if an unfinished run has written nothing for SILENCE_S seconds, otherwise ""."""
    heard = max((one.ended for one in facts.attempts()[-1:] if one.ended is not None), default=None)
    if heard is None or facts.now - heard < SILENCE_S:
        return ""
    return (
        f"The run has written nothing since {moment(heard)}, {seconds(facts.now - heard)} before this page was made. "
        "The run was killed, or it cannot write to this directory."
    )


def _describe_silent_driver(facts: Facts) -> str:
    age = facts.now - facts.membership["written"]
    return "" if age < SILENCE_S else describe_driver(facts.membership, age, is_late=True)


def share_done(facts: Facts) -> float | None:
    """Return the fraction of the job that is done, or None if it is unknown."""
    if describe_state(facts).name == "finished":
        return 1.0
    share = number(facts.progress.get("job_fraction"))
    if share is not None:
        return min(max(share, 0.0), 1.0)
    total = last_pass(facts)
    first = whole(facts.history.start.get("start_pass"))
    done = len({whole(one.get("pass")) for one in facts.history.passes})
    return min(done / (total - first), 1.0) if total > first and facts.history.passes else None


def time_taken(facts: Facts) -> float | None:
    """Return the seconds from the first attempt's start to the last attempt's end or newest record; None if unknown."""
    attempts = facts.attempts()
    begins = [one.started for one in attempts if one.started is not None]
    ends = [one.ended for one in attempts if one.ended is not None]
    return max(ends) - min(begins) if begins and ends and max(ends) > min(begins) else None


def last_pass(facts: Facts) -> int:
    """Return the number of the last pass that the job will train, plus 1; 0 if it is unknown."""
    start = facts.history.start
    return next((whole(one["passes"]) for one in (start, facts.progress, facts.job) if number(one.get("passes"))), 0)


def _is_of(record: Record, attempt: str) -> bool:
    return bool(record) and str(record.get("attempt", "")) == attempt
