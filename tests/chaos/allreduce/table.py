"""Makes the table of a run of all-reduce trials from the reports."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from chaos.allreduce.plan import HARMS, LATER_MOMENTS, ROLES, Blow
from chaos.allreduce.trial import AllReduceReport
from chaos.reports import align

HEADS = ("what", "harm", "trials", "missed", "failed", "seconds (max)", "longest pause (max)")


def format_allreduce_table(reports: Sequence[AllReduceReport]) -> str:
    """Return a row for every role and harm, a row for every moment of a second blow, and a row for all trials.

    A trial may count in several rows.
    """
    rows = [HEADS]
    for role in ROLES:
        for harm in HARMS:
            rows += _row(role, harm, reports, lambda blow, own=(role, harm): (blow.role, blow.harm) == own)
    for moment in LATER_MOMENTS:
        some = [one for one in reports if len(one.trial.blows) > 1]
        rows += _row("second", moment, some, lambda blow, own=moment: blow.moment == own)
    rows += _row("scaled", "all", [one for one in reports if one.trial.is_scaled], lambda _: True)
    rows += _row("all", "all", reports, lambda _: True)
    return align(rows)


def _row(
    what: str, harm: str, reports: Sequence[AllReduceReport], is_one: Callable[[Blow], bool]
) -> list[tuple[str, ...]]:
    """Return the row of the trials with such a blow; the list is empty if there is no such trial."""
    some = [one for one in reports if any(map(is_one, one.trial.blows))]
    if not some:
        return []
    missed = sum(bool(one.missed) for one in some)
    failed = sum(bool(one.faults) for one in some)
    times = [_middle([one.seconds for one in some]), _middle([one.pause for one in some])]
    return [(what, harm, str(len(some)), str(missed), str(failed), *times)]


def _middle(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.1f} ({max(seconds):.1f})"
