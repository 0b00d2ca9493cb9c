"""The passes as a table, with the numbers that their lines in train.log have."""

from __future__ import annotations

from typing import Any

from trainer.report.facts import Facts
from trainer.report.history import Json
from trainer.report.links import Links
from trainer.report.markup import Markup, join, tag
from trainer.report.tables import make_table
from trainer.report.text import NONE, general, number, rate, seconds, whole

MOST = 200  # rows


def show_passes(facts: Facts, links: Links) -> Markup | None:
    """Return the table, None before the end of the first pass."""
    history = facts.history
    if not history.passes:
        return None
    names = history.evaluators()
    has_tests = bool(history.pass_tests)
    saved = {_pass_of(one): str(one.get("path", "")) for one in history.saves}
    shown = history.passes[-MOST:]
    rows = []
    for one in shown:
        place = whole(one.get("pass"))
        test = history.pass_tests.get(place, {})
        time = number(one.get("seconds"))
        samples = number(one.get("samples"))
        row: list[object] = [place, general(one.get("batch")), general(samples), general(one.get("cost"))]
        row += [general(_evaluator(one, name)) for name in names]
        if has_tests:
            row += [general(test.get("cost")), *(general(_evaluator(test, name)) for name in names)]
        row += [seconds(time), rate(_speed(one, samples, time))]
        row.append(links.to_pass(saved[place]) if place in saved else NONE)
        rows.append(row)
    heads = ["pass", "batches", "samples", "cost", *names]
    heads += ["test cost", *(f"test {name}" for name in names)] if has_tests else []
    heads += ["time", "samples/s", "saved in"]
    rest = len(history.passes) - len(shown)
    note = f"The last {MOST} of {len(history.passes)} passes; train.log has the others." if rest else ""
    return join([tag("p", note) if note else "", make_table("Passes", heads, rows, words=0, is_titled=True)])


def _speed(record: Json, samples: float | None, time: float | None) -> float | None:
    """Return samples per second of all trainers together."""
    usage = record.get("usage")
    if isinstance(usage, dict):
        counts = [number(one.get("samples")) for one in usage.values() if isinstance(one, dict)]
        samples = sum(one for one in counts if one is not None) or samples
    return samples / time if samples is not None and time else None


def _pass_of(save: Json) -> int:
    return whole(save.get("pass"))


def _evaluator(record: Json, name: str) -> Any:
    values = record.get("evaluators")
    return values.get(name) if isinstance(values, dict) else None
