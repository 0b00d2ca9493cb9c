"""In which state a job is, in words: what the head of the report says."""

from __future__ import annotations

from dataclasses import dataclass

from pserver.errors import StoppedError
from trainer.records import Record
from trainer.report.facts import Facts, describe_error, last_line
from trainer.report.text import number, whole


@dataclass(frozen=True)
class State:
    """The state, one of training, finished, stopped, failed, waiting; and why, or ""."""

    name: str
    message: str = ""


def describe_state(facts: Facts) -> State:
    """Return the state of the newest attempt."""
    attempt = facts.attempt
    newest = facts.attempts()[-1:]
    end, progress = (one if _is_of(one, attempt) else {} for one in (facts.history.end, facts.progress))
    if facts.job.get("finished") is True or end.get("status") == 0 or progress.get("status") == "finished":
        return State("finished")
    if end.get("status") == StoppedError.exit_code or progress.get("status") == "stopped":
        return State("stopped", str(end.get("message") or progress.get("message") or ""))
    if newest and newest[0].failure:
        error = newest[0].failure
        last = "No further attempt follows." if facts.job.get("given_up") is True else ""
        return State("failed", f"{describe_error(error)}\n{last_line(error)}\n{last}".strip())
    if end or progress.get("status") == "failed":
        return State("failed", str(end.get("message") or progress.get("message") or "no reason was recorded"))
    if progress or (facts.history.starts and _is_of(facts.history.start, attempt)):
        return State("training", str(progress.get("message") or ""))
    if facts.job:
        return State("waiting", f"Attempt {attempt} has not begun to train." if attempt else "")
    return State("waiting", "Nothing is recorded here yet: no records.jsonl, progress.json or job.json.")


def share_done(facts: Facts) -> float | None:
    """Return which share of the job is done, None where nothing tells."""
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
    """Return the seconds from the first attempt's start until the job was heard of last, None if unknown."""
    attempts = facts.attempts()
    begins = [one.started for one in attempts if one.started is not None]
    ends = [one.ended for one in attempts if one.ended is not None]
    return max(ends) - min(begins) if begins and ends and max(ends) > min(begins) else None


def last_pass(facts: Facts) -> int:
    """Return the pass before which training ends, 0 if it is unknown."""
    start = facts.history.start
    return next((whole(one["passes"]) for one in (start, facts.progress, facts.job) if number(one.get("passes"))), 0)


def _is_of(record: Record, attempt: str) -> bool:
    return bool(record) and str(record.get("attempt", "")) == attempt
