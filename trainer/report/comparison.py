"""Make a page that compares two runs: their numbers, their curves, and the settings in which the runs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer.records.records import Record
from trainer.report.best import find_best
from trainer.report.charts.chart import draw_chart, draw_smoothing
from trainer.report.charts.curves import Curves, trace_costs, trace_speed
from trainer.report.facts import Facts
from trainer.report.html.markup import Markup, breakable, join, tag
from trainer.report.html.tables import HiddenCaption, make_table
from trainer.report.html.text import NONE, count, general, moment, number, rate, seconds, shorten, whole
from trainer.report.links import Links
from trainer.report.page import MOST_CHARTS, make_document, make_section
from trainer.report.sections.trainers import last_cost
from trainer.report.state import describe_state, last_pass, time_taken

STYLES = ("a", "b")  # style classes of the two runs
MOST_LISTED = 20  # maximum number of list elements in one cell
REPORT = "report.html"


def make_comparison(runs: Sequence[Facts], links: Sequence[Links]) -> str:
    """Return the page that compares two runs.

    Args: links: for each run, the object that makes links to the files of the run's output.
    """
    names = name_runs([facts.output for facts in runs])
    marks = [tag("span", class_=f"mark {style}", aria_hidden="true") for style in STYLES]
    titles = [
        tag("p", mark, tag("b", name), " ", _link_report(facts, link), class_="path")
        for facts, name, mark, link in zip(runs, names, marks, links, strict=True)
    ]
    header = tag(
        "header",
        tag("h1", "Two runs"),
        *titles,
        tag("p", f"Written {moment(max(facts.now for facts in runs))}", class_="quiet"),
    )
    costs = [trace_costs(facts) for facts in runs]
    speeds = [[one] if (one := trace_speed(facts)) else [] for facts in runs]
    charts = [draw_chart(curves, f"chart-{place}") for place, curves in enumerate(merge(costs, names)[:MOST_CHARTS])]
    speed = [draw_chart(curves, "chart-speed") for curves in merge(speeds, names)]
    sections = [
        ("Numbers", _tabulate("Numbers", names, list_numbers(runs))),
        (
            "Cost and evaluators",
            join([draw_smoothing(), tag("div", *charts, class_="charts")])
            if charts
            else tag("p", "Neither run has a curve."),
        ),
        ("Throughput", join(speed) if speed else tag("p", "Neither run has finished a pass.")),
        ("What differs", _show_differences(runs, names)),
    ]
    main = tag("main", *(make_section(title, content) for title, content in sections))
    return make_document(f"{names[0]} and {names[1]}", header, main)


def name_runs(outputs: Sequence[Path]) -> list[str]:
    """Return a name for each output: the last part of its path that is not equal in both paths."""
    parts = [list(path.parts) for path in outputs]
    while all(len(one) > 1 for one in parts) and parts[0][-1] == parts[1][-1]:
        parts = [one[:-1] for one in parts]
    names = [one[-1] for one in parts]
    if names[0] == names[1]:  # the user has given one output twice
        return [f"{outputs[0].name} (first)", f"{outputs[1].name} (second)"]
    return names


def merge(charts: Sequence[Sequence[Curves]], names: Sequence[str]) -> list[Curves]:
    """Return a chart for each title, with the curves of both runs."""
    titles = dict.fromkeys(one.title for run in charts for one in run)
    merged = []
    for title in titles:
        found = [(place, one) for place, run in enumerate(charts) for one in run if one.title == title]
        series = [
            replace(each, name=f"{names[place]}: {each.name}", style=f"{each.style} {STYLES[place]}")
            for place, one in found
            for each in one.series
        ]
        # curves of windows are drawn behind all other curves
        series.sort(key=lambda each: not each.style.startswith("window"))
        merged.append(Curves(title, found[0][1].x_name, series))
    return merged


def list_numbers(runs: Sequence[Facts]) -> list[list[object]]:
    """Return the rows of the table of numbers. A row has a name and the values of both runs."""
    rows: list[list[object]] = [["state", *(describe_state(facts).name for facts in runs)]]
    rows.append(["passes done", *(_passes_done(facts) for facts in runs)])
    rows.append(["took", *(seconds(time_taken(facts)) for facts in runs)])
    best = [find_best(facts.history) for facts in runs]
    rows.append(["best pass", *(NONE if one is None else f"{one.number}, with {general(one.cost)}" for one in best)])
    for title, newest, cost in (("", _newest_pass, _spell_cost), ("test ", _newest_test, None)):
        records = [newest(facts) for facts in runs]
        costs = [cost(facts) for facts in runs] if cost else [general(one.get("cost")) for one in records]
        rows.append([f"{title}cost, last", *costs])
        measured = [values if isinstance(values := one.get("evaluators"), dict) else {} for one in records]
        for name in dict.fromkeys(name for values in measured for name in values):
            rows.append([f"{title}{name}, last", *(general(values.get(name)) for values in measured)])
    rows.append(["samples/s, all trainers", *(rate(facts.progress.get("samples_per_second")) for facts in runs)])
    return [row for row in rows if any(cell != NONE for cell in row[1:])]


def _passes_done(facts: Facts) -> str:
    done, total = len({whole(one.get("pass")) for one in facts.history.passes}), last_pass(facts)
    return f"{done} of {total}" if total else f"{done}"


def _spell_cost(facts: Facts) -> str:
    cost, of = last_cost(facts)
    return f"{general(cost)}{of.removeprefix(', last pass')}"


def _newest_pass(facts: Facts) -> Record:
    return facts.history.passes[-1] if facts.history.passes else {}


def _newest_test(facts: Facts) -> Record:
    return facts.history.tests[-1] if facts.history.tests else {}


def _show_differences(runs: Sequence[Facts], names: Sequence[str]) -> Markup:
    rows = list_differences([facts.history.start for facts in runs])
    if not all(facts.history.starts for facts in runs):
        return tag("p", "The configuration of at least one run is not known, because there is no start record.")
    if not rows:
        return tag("p", "No difference is recorded: flags, settings, layers and parameters are equal.")
    return _tabulate("What differs", names, rows)


def _tabulate(caption: str, names: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    shown = [[breakable(name), *values] for name, *values in rows]
    return make_table(HiddenCaption(caption), ["name", *names], shown, words=3, style="pairs runs")


def list_differences(starts: Sequence[Record]) -> list[list[str]]:
    """Return a row (name, values of both runs) for each flag, setting, layer and parameter in which the runs differ."""
    described = [_describe_start(start) for start in starts]
    keys = dict.fromkeys(key for one in described for key in one)
    rows = [[key, *(one.get(key, NONE) for one in described)] for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


def _describe_start(start: Record) -> dict[str, str]:
    found = {"config": _spell(start.get("config")), "trainers": _spell(start.get("trainers"))}
    flags, method = _mapping(start.get("flags")), _mapping(start.get("method"))
    found |= {f"--{name}": _spell(value) for name, value in sorted(flags.items())}
    found |= {str(name): _spell(value) for name, value in sorted(method.items())}
    for kind, shown in (("layers", ("type", "size", "active_type", "inputs")), ("parameters", ("dims", "is_static"))):
        items = [one for one in _list(start.get(kind)) if isinstance(one, dict)]
        found[kind] = count(len(items))
        for one in items:
            facts = ", ".join(text for key in shown if (text := _spell(one.get(key))) not in ("", "false", NONE))
            found[f"{kind[:-1]} {one.get('name', '')}"] = facts
    return found


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return NONE
    if number(value) is not None:
        return general(value)
    if isinstance(value, list):
        return " ".join(_spell(one) for one in value[:MOST_LISTED]) + ("…" if len(value) > MOST_LISTED else "")
    return shorten(value, 500)


def _mapping(value: Any) -> Mapping[str, Any]:
    return {str(key): one for key, one in value.items()} if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _link_report(facts: Facts, links: Links) -> Markup:
    return links.to(REPORT, str(facts.output)) if (facts.output / REPORT).is_file() else tag("code", facts.output)
