"""Make the page of the report, with its head and its sections. The style and the script are part of the page."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources

from trainer.report.charts.chart import draw_chart, draw_smoothing
from trainer.report.charts.curves import trace_costs, trace_speed
from trainer.report.facts import Facts
from trainer.report.html.markup import Markup, breakable, join, tag
from trainer.report.html.text import NONE, general, moment, number, percent, rate, seconds, whole
from trainer.report.links import Links, show_files
from trainer.report.sections.passes import show_passes
from trainer.report.sections.timeline import draw_attempts
from trainer.report.sections.trainers import draw_times, last_cost
from trainer.report.sections.workers import show_workers
from trainer.report.state import describe_state, last_pass, share_done, time_taken

MOST_CHARTS = 12


def make_page(facts: Facts, links: Links, configuration: Markup | None) -> str:
    """Return the report as a self-contained HTML document.

    Args: configuration: the result of `show_configuration` for the newest start record. Reports reuse this section,
        because making it takes longer than all other work for the page, and because it seldom changes.
    """
    state = describe_state(facts)
    main = tag("main", *_make_sections(facts, links, configuration))
    return make_document(f"{facts.name}: {state.name}", _make_head(facts), main)


def make_document(title: str, *content: Markup) -> str:
    """Return an HTML document with this content, with inline style and script."""
    style, script = (Markup(_read(name)) for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # the policy allows only this script, so no name or message of the job can add a script
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", style),
    )
    body = tag("body", *content, tag("script", script))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _make_head(facts: Facts) -> Markup:
    state, share = describe_state(facts), share_done(facts)
    parts = [
        tag("h1", facts.name, " ", tag("span", state.name, class_=f"state {state.name}")),
        tag("p", f"Written {moment(facts.now)}", class_="quiet"),
    ]
    if share is not None:
        parts.append(tag("progress", percent(share), max="1", value=f"{share:.4f}", aria_label="share of the job done"))
    parts.append(
        tag("dl", *(tag("div", tag("dt", breakable(name)), tag("dd", value)) for name, value in _list_numbers(facts)))
    )
    if state.message:
        is_bad = state.name == "failed"
        parts.append(tag("pre", state.message, class_=f"message {state.name}", role="alert" if is_bad else None))
    return tag("header", *parts)


def _list_numbers(facts: Facts) -> list[tuple[str, str]]:
    """Return the names and values shown in the head."""
    history, progress = facts.history, facts.progress
    state, total = describe_state(facts).name, last_pass(facts)
    numbers = []
    if history.passes or progress or history.starts:
        done = whole(history.passes[-1].get("pass")) + 1 if history.passes else whole(history.start.get("start_pass"))
        passes = f"{done} of {total}" if total else f"{done}"
        numbers.append(("passes done", passes))
    if state != "finished" and (share := share_done(facts)) is not None:
        numbers.append(("done", percent(share)))
    if (taken := time_taken(facts)) is not None:
        numbers.append(("time" if state == "training" else "took", seconds(taken)))
    if state == "training":
        numbers.append(("time left", seconds(progress.get("seconds_left"))))
    cost, of = last_cost(facts)
    if number(cost) is not None:
        numbers.append((f"cost{of}", general(cost)))
    if history.tests:
        test = history.tests[-1]
        numbers.append(("test cost", general(test.get("cost"))))
        values = test.get("evaluators")
        numbers += (
            [(f"test {name}", general(value)) for name, value in values.items()][:3] if isinstance(values, dict) else []
        )
    speed = progress.get("samples_per_second")
    if number(speed) is not None:
        numbers.append((f"samples/s, all trainers{', mean' if state == 'finished' else ''}", rate(speed)))
    if number(history.start.get("trainers")) is not None:
        numbers.append(("trainers", general(history.start.get("trainers"))))
    return numbers or [("passes done", NONE)]


def _make_sections(facts: Facts, links: Links, configuration: Markup | None) -> list[str]:
    charts = trace_costs(facts)
    drawn = [draw_chart(curves, f"chart-{place}") for place, curves in enumerate(charts[:MOST_CHARTS])]
    speed = trace_speed(facts)
    curves = join([draw_smoothing(), tag("div", *drawn, class_="charts")]) if drawn else None
    if len(charts) > MOST_CHARTS:
        curves = join(
            [curves, tag("p", f"{len(charts) - MOST_CHARTS} more evaluators are in the table of the passes.")]
        )
    sections = {
        "Cost and evaluators": curves,
        "Passes": show_passes(facts, links),
        "Throughput": draw_chart(speed, "chart-speed") if speed else None,
        "Time of the trainers": draw_times(facts),
        "Attempts": draw_attempts(facts),
        **({"Workers": show_workers(facts)} if facts.membership else {}),
        "Configuration": configuration,
        "Files": show_files(facts, links),
    }
    order = list(sections)
    if describe_state(facts).name in ("failed", "restarting"):
        # what failed comes first; the sort keeps the order of the rest
        order.sort(key=lambda title: title != "Attempts")
    shown = [make_section(title, content) for title in order if (content := sections[title]) is not None]
    missing = ", ".join(title.lower() for title in order if sections[title] is None)
    return [*shown, tag("p", f"There are no records of: {missing}.", class_="quiet") if missing else ""]


def make_section(title: str, content: Markup) -> Markup:
    """Return a section with its heading."""
    identity = title.lower().replace(" ", "-")
    return tag("section", tag("h2", title, id=identity), content, aria_labelledby=identity)


@functools.cache
def _read(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
