"""The results of the checks, their lines of output, and the exit status. This module does no input or output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paddle_base.runtime.kubernetes.text import one_line

_TEXT_LIMIT = 400  # maximum characters of a text; messages of the API server can be long
_INDENT = " " * 7


@dataclass(frozen=True)
class Diagnosis:
    """The result of one check.

    `cost`: the consequence of the problem; empty if there is no problem.  `remedy`: what the user can do.
    `exit_code`: the exit status (paddle_base/runtime/errors.py) with which a job would end because of the problem; 0 if
    a job can run in spite of the problem.  `applies`: False if this machine cannot have the problem.
    """

    subject: str
    text: str
    cost: str = ""
    remedy: str = ""
    exit_code: int = 0
    applies: bool = True

    @property
    def state(self) -> str:
        """The first word of the line of output."""
        if not self.applies:
            return "-"
        if self.exit_code:
            return "FAILS"
        return "lacks" if self.cost else "ok"


def render(found: Sequence[Diagnosis]) -> list[str]:
    """Return the lines of output about all checks, and a last line that summarises them."""
    lines = []
    for one in found:
        lines.append(f"{one.state:<5}  {one.subject}: {one_line(one.text, _TEXT_LIMIT)}")
        lines += [f"{_INDENT}cost: {one_line(one.cost, _TEXT_LIMIT)}"] if one.cost else []
        lines += [f"{_INDENT}do:   {one_line(one.remedy, _TEXT_LIMIT)}"] if one.remedy else []
    return [*lines, summarise(found)]


def summarise(found: Sequence[Diagnosis]) -> str:
    """Return the last line, which says whether a job could run here."""
    failing = [one.subject for one in found if one.exit_code]
    lacking = [one.subject for one in found if one.state == "lacks"]
    if failing:
        return f"a job would fail here: {', '.join(failing)} (exit status {choose_exit_status(found)})"
    if lacking:
        return f"nothing essential is missing; read the lines about: {', '.join(lacking)}"
    return "nothing is missing"


def choose_exit_status(found: Sequence[Diagnosis]) -> int:
    """Return the exit code of the first problem that would end a job, or 0."""
    return next((one.exit_code for one in found if one.exit_code), 0)
