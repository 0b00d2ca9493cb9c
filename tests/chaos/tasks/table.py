"""Makes the table of a run of elastic trials from the reports."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from chaos.reports import align
from chaos.tasks.plan import HARMS, MODES, ROLES, STORES, Strike
from chaos.tasks.trial import ElasticReport

HEADS = ("what", "harm", "strikes", "trials", "failed", "seconds (max)")


def format_elastic_table(reports: Sequence[ElasticReport]) -> str:
    """Return rows for roles and harms, for modes and stores, and for all trials; a trial may count in several rows."""
    rows = [HEADS]
    for role in ROLES:
        for harm in HARMS:
            rows += _row(
                role, harm, reports, [one for one in _strikes(reports) if (one.role, one.harm) == (role, harm)]
            )
    for mode in MODES:
        for store in STORES:
            some = [one for one in reports if (one.trial.mode, one.trial.store) == (mode, store)]
            rows += _row(mode, f"all, {store}", some, _strikes(some))
    rows += _row("scaled", "all", [one for one in reports if one.trial.is_scaled], None)
    rows += _row("all", "all", reports, _strikes(reports))
    return align(rows)


def _strikes(reports: Sequence[ElasticReport]) -> list[Strike]:
    return [strike for report in reports for strike in report.trial.strikes]


def _row(
    what: str, harm: str, reports: Sequence[ElasticReport], strikes: Sequence[Strike] | None
) -> list[tuple[str, ...]]:
    """Return the row of the trials with one of the strikes, or of all trials; the list is empty if there are none."""
    some = [one for one in reports if strikes is None or any(strike in strikes for strike in one.trial.strikes)]
    if not some:
        return []
    seconds = [report.seconds for report in some]
    failed = sum(bool(report.faults) for report in some)
    count = len(_strikes(some) if strikes is None else strikes)
    middle = f"{statistics.median(seconds):.1f} ({max(seconds):.1f})"
    return [(what, harm, str(count), str(len(some)), str(failed), middle)]
