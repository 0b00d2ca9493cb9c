"""The section with the table of passes. The table has the numbers that train.log shows for each pass."""

from __future__ import annotations

from typing import Any

from trainer.records.records import Record
from trainer.report.best import find_best
from trainer.report.facts import Facts
from trainer.report.html.markup import Markup, join, tag
from trainer.report.html.tables import HiddenCaption, make_table
from trainer.report.html.text import NONE, general, number, rate, whole
from trainer.report.links import Links

MOST = 200  # maximum number of rows


def show_passes(facts: Facts, links: Links) -> Markup | None:
    """Return the section; None before the end of the first pass."""
    history = facts.history
    if not history.passes:
        return None
    names = history.evaluators()
    has_tests = any(history.test_of(one) for one in history.passes)
    saved = {_pass_of(one): str(one.get("path", "")) for one in history.saves}
    shown = history.passes[-MOST:]
    rows = []
    for one in shown:
        place = whole(one.get("pass"))
        test = history.test_of(one)
        time = number(one.get("seconds"))
        samples = number(one.get("samples"))
        row: list[object] = [place, general(one.get("batch")), general(samples), general(one.get("cost"))]
        row += [general(_evaluator(one, name)) for name in names]
        if has_tests:
            row += [general(test.get("cost")), *(general(_evaluator(test, name)) for name in names)]
        row += [general(time), rate(samples / time if samples is not None and time else None)]
        row.append(links.to_pass(saved[place]) if place in saved else NONE)
        rows.append(row)
    heads = ["pass", "batches", "samples", "cost", *names]
    heads += ["test cost", *(f"test {name}" for name in names)] if has_tests else []
    heads += ["seconds", "samples/s of trainer 0", "saved in"]
    best = find_best(history)
    marked = next((index for index, one in enumerate(shown) if best and whole(one.get("pass")) == best.number), None)
    rest = len(history.passes) - len(shown)
    note = f"The table has the last {MOST} of {len(history.passes)} passes; the logs have all passes." if rest else ""
    notes = [note] if note else []
    notes += [f"{best.text[0].upper()}{best.text[1:]}."] if best else []
    if whole(history.start.get("trainers"), 1) > 1:
        notes.append("The costs and evaluators of passes are those of trainer 0's samples, as in the log of trainer 0.")
    return join(
        [
            *(tag("p", text) for text in notes),
            make_table(HiddenCaption("Passes"), heads, rows, words=0, marked=marked),
        ]
    )


def _pass_of(save: Record) -> int:
    return whole(save.get("pass"))


def _evaluator(record: Record, name: str) -> Any:
    values = record.get("evaluators")
    return values.get(name) if isinstance(values, dict) else None
