"""Draw a chart. Its curves are an SVG picture, and its texts are HTML, which keeps its size on a phone.

The picture is stretched to the available width. The style `vector-effect` keeps the widths of lines and dots.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from trainer.report.charts.axes import Axis, count_axis, time_axis, value_axis
from trainer.report.charts.curves import Curves, Series
from trainer.report.html.markup import Markup, join, tag
from trainer.report.html.text import general, rate, seconds

WIDTH, HEIGHT = 1000, 500  # width and height of the picture, in units of the SVG


def draw_chart(curves: Curves, identity: str) -> Markup:
    """Return the figure of a chart, with the data that the page's script shows beside the pointer."""
    is_time = curves.x_name == "time"
    points = [point for series in curves.series for point in series.points]
    x_axis = (time_axis if is_time else count_axis)([x for x, _ in points])
    y_axis = value_axis([y for _, y in points])
    spell: Callable[[float], str] = rate if is_time else general
    marks = _mark_best(curves, x_axis, y_axis) if curves.best else []
    lines = [_grid(x_axis, y_axis), *(_draw_series(series, x_axis, y_axis) for series in curves.series), *marks]
    picture = tag(
        "svg",
        *lines,
        class_="plot",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=_describe(curves, spell),
    )
    axes = [
        *(tag("span", text, class_="y", style=f"bottom:{100 * at:.2f}%") for at, text in y_axis.ticks),
        *(tag("span", text, class_="x", style=f"left:{100 * at:.2f}%") for at, text in x_axis.ticks),
    ]
    title = f"{curves.title}{', logarithmic' if y_axis.is_log else ''}"
    return tag(
        "figure",
        tag("figcaption", tag("strong", title), tag("span", f"over {curves.x_name}", class_="quiet")),
        tag("p", *(_legend(series, spell) for series in curves.series), *_legend_of_best(curves), class_="legend"),
        tag("div", picture, *axes, tag("div", class_="tip", hidden=True), class_="chart", tabindex="0", id=identity),
        _data(curves, x_axis, y_axis, spell, seconds if is_time else general),
    )


def _grid(x_axis: Axis, y_axis: Axis) -> Markup:
    across = [f"M0 {HEIGHT * (1 - at):.1f}H{WIDTH}" for at, _ in y_axis.ticks]
    along = [f"M{WIDTH * at:.1f} 0V{HEIGHT}" for at, _ in x_axis.ticks]
    return tag("path", d="".join([*across, *along]), class_="grid")


def _draw_series(series: Series, x_axis: Axis, y_axis: Axis) -> Markup:
    pieces = [
        [f"{WIDTH * x_axis.place(x):.1f} {HEIGHT * (1 - y_axis.place(y)):.1f}" for x, y in piece]
        for piece in series.pieces
    ]
    # the page's script finds the data of a line by its position among the lines
    parts = [tag("path", d="".join(f"M{'L'.join(piece)}" for piece in pieces), class_=f"line {series.style}")]
    is_alone = all(len(piece) == 1 for piece in pieces)
    if not series.is_noisy or is_alone:
        dots = "".join(f"M{point}h0" for piece in pieces for point in piece)
        parts.append(tag("path", d=dots, class_=f"dots {series.style}"))
    return join(parts)


def _mark_best(curves: Curves, x_axis: Axis, y_axis: Axis) -> list[Markup]:
    """Return a vertical line at the end of the best pass, and rings around the points on this line."""
    if curves.best is None:
        return []
    end = curves.best.number + 1.0
    left = f"{WIDTH * x_axis.place(end):.1f}"
    found = [(series.style, y) for series in curves.series for x, y in series.points if x == end]
    rings = [
        tag("path", d=f"M{left} {HEIGHT * (1 - y_axis.place(y)):.1f}h0", class_=f"{part} {style}")
        for style, y in found
        if not style.startswith("window")
        for part in ("ring", "hole")
    ]
    return [tag("path", d=f"M{left} 0V{HEIGHT}", class_="best"), *rings]


def _legend_of_best(curves: Curves) -> list[Markup]:
    if curves.best is None:
        return []
    return [tag("span", tag("span", class_="mark best", aria_hidden="true"), curves.best.text, class_="entry")]


def _legend(series: Series, spell: Callable[[float], str]) -> Markup:
    mark = tag("span", class_=f"mark {series.style}", aria_hidden="true")
    return tag("span", mark, f"{series.name} ", tag("b", spell(series.points[-1][1])), class_="entry")


def _describe(curves: Curves, spell: Callable[[float], str]) -> str:
    parts = [
        f"{one.name} from {spell(one.points[0][1])} to {spell(one.points[-1][1])}"
        f" (lowest {spell(min(y for _, y in one.points))}, highest {spell(max(y for _, y in one.points))})"
        for one in curves.series
    ]
    if curves.best:
        parts.append(curves.best.text)
    return f"{curves.title} over {curves.x_name}: {'; '.join(parts)}"


def draw_smoothing() -> Markup:
    """Return the control for the smoothing of all curves. It is hidden until the page's script shows it."""
    choices = (("none", 0), ("light", 0.6), ("medium", 0.85), ("strong", 0.95))
    options = [tag("option", name, value=f"{value:g}", selected=not value) for name, value in choices]
    return tag("label", "smoothing ", tag("select", *options), class_="smoothing", hidden=True)


def _data(
    curves: Curves, x_axis: Axis, y_axis: Axis, spell_y: Callable[[float], str], spell_x: Callable[[float], str]
) -> Markup:
    """Return an invisible element with the places and texts of all points, which the script reads."""
    series = [
        {
            "name": one.name,
            # the lengths of the pieces of a curve that the script may smooth
            "pieces": [len(piece) for piece in one.pieces] if one.is_noisy else [],
            "points": [
                [round(x_axis.place(x), 4), round(y_axis.place(y), 4), spell_x(x), spell_y(y)] for x, y in one.points
            ],
        }
        for one in curves.series
    ]
    text = json.dumps(series, separators=(",", ":"))  # only ASCII characters
    # without "<" the text cannot contain a tag that ends the element
    return tag("script", Markup(text.replace("<", "\\u003c")), type="application/json", class_="data")
