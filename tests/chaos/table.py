"""Makes the table of a run of trials from the reports."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import groupby

from chaos.reports import align
from chaos.trial import Report

HEADS = ("role", "moment", "harm", "runs", "missed", "complete", "bit-equal", "failed", "attempts", "recovery s (max)")


def format_table(reports: Sequence[Report]) -> str:
    """Return a row for every role, moment and harm, then a row for every harm, and a row for all trials."""

    def kind(report: Report) -> tuple[str, str, str]:
        return (report.trial.role, report.trial.moment, report.trial.harm)

    rows = [HEADS]
    for key, group in groupby(sorted(reports, key=kind), key=kind):
        rows.append(_row(key, list(group)))
    for harm in sorted({report.trial.harm for report in reports}):
        rows.append(_row(("all", "all", harm), [report for report in reports if report.trial.harm == harm]))
    rows.append(_row(("all", "all", "all"), list(reports)))
    return align(rows)


def _row(key: tuple[str, str, str], reports: Sequence[Report]) -> tuple[str, ...]:
    struck = [report for report in reports if not report.missed]
    compared = [report for report in struck if report.equal is not None]
    attempts = [report.attempts for report in struck]
    times = [report.recovered for report in struck if report.recovered is not None]
    return (
        *key,
        str(len(reports)),
        str(len(reports) - len(struck)),
        str(sum(report.complete for report in struck)),
        f"{sum(bool(report.equal) for report in compared)}/{len(compared)}",
        str(sum(bool(report.faults) for report in struck)),
        f"{min(attempts)}-{max(attempts)}" if attempts else "",
        f"{statistics.median(times):.1f} ({max(times):.1f})" if times else "",
    )
