"""The section with the attempts of a job on a time line. For a failed attempt it names the program and the reason."""

from __future__ import annotations

from paddle_base.runtime.errors import STOP_CODES
from trainer.report.facts import Attempt, Facts, describe_error, is_passed_on, last_line
from trainer.report.html.markup import Markup, join, tag
from trainer.report.html.text import moment, seconds
from trainer.report.state import describe_state

MOST = 50  # maximum number of attempts that are shown


def draw_attempts(facts: Facts) -> Markup | None:
    """Return the section; None if there are no attempts."""
    attempts = facts.attempts()
    if not attempts:
        return None
    shown = attempts[-MOST:]
    state = describe_state(facts).name
    begins = [one.started for one in shown if one.started is not None]
    ends = [one.ended for one in shown if one.ended is not None]
    first, last = min(begins, default=0.0), max([*begins, *ends], default=0.0)
    if state == "training":
        last = max(last, facts.now)
    items = []
    for one in shown:
        outcome = _outcome(one, state if one is shown[-1] else "ended")
        items.append(
            tag(
                "li",
                tag("p", tag("strong", f"attempt {one.name}" if one.name else "run"), f" {_words(one, outcome)}"),
                _bar(one, outcome, first, last),
                _failure(one),
            )
        )
    rest = len(attempts) - len(shown)
    return join(
        [
            tag("p", f"Number of earlier attempts that are not shown: {rest}.") if rest else "",
            tag("ol", *items, class_="attempts"),
            tag("p", tag("span", moment(first)), tag("span", moment(last)), class_="ends quiet") if begins else "",
        ]
    )


def _outcome(attempt: Attempt, otherwise: str) -> str:
    if attempt.failure is None:
        return otherwise
    return "stopped" if attempt.failure.get("exit_code") in STOP_CODES else "failed"


def _words(attempt: Attempt, outcome: str) -> str:
    length = ""
    if attempt.started is not None and attempt.ended is not None:
        length = f" after {seconds(max(attempt.ended - attempt.started, 0.0))}"
    origin = f"from {attempt.origin}" if attempt.origin else "from the beginning"
    begun = f"{moment(attempt.started)}, " if attempt.started is not None else ""
    ending = {"training": "training now", "waiting": "has not begun to train"}.get(outcome, f"{outcome}{length}")
    return f"{begun}{origin}; {ending}"


def _bar(attempt: Attempt, outcome: str, first: float, last: float) -> Markup:
    if attempt.started is None or last <= first:
        return Markup("")
    ended = last if outcome == "training" else attempt.ended if attempt.ended is not None else attempt.started
    left = (attempt.started - first) / (last - first)
    width = max(min(ended, last) - attempt.started, 0.0) / (last - first)
    span = tag("span", class_=f"span {outcome}", style=f"left:{100 * left:.2f}%;width:{100 * width:.2f}%")
    return tag("div", span, class_="track", aria_hidden="true")


def _failure(attempt: Attempt) -> Markup:
    if attempt.failure is None:
        return Markup("")
    # a lost pod leaves no error report, so the first report may come from a program that noticed the loss
    word = "First to notice" if is_passed_on(attempt.failure) else "First to fail"
    lines = str(attempt.failure.get("message", "")).strip().splitlines()
    whole = tag("details", tag("summary", f"all {len(lines)} lines"), tag("pre", "\n".join(lines)))
    return join(
        [
            tag("p", f"{word}: ", tag("b", describe_error(attempt.failure))),
            tag("pre", last_line(attempt.failure)),
            whole if len(lines) > 1 else "",
        ]
    )
