"""Curves as points: what is drawn of a job's records, thinned out where there are more than a screen has pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.report.facts import Facts
from trainer.report.history import Json
from trainer.report.text import number, whole

Point = tuple[float, float]
DRAWABLE = 1e100  # neither nan nor inf, nor so near to it that a scale overflows
BUCKETS = 250  # of a thinned curve: two points each


@dataclass(frozen=True)
class Series:
    """A curve: its name, the class of its style, and the pieces it is drawn in; with dots where the points are few."""

    name: str
    style: str
    pieces: list[list[Point]]

    @property
    def points(self) -> list[Point]:
        """Return the points of all pieces."""
        return [point for piece in self.pieces for point in piece]


@dataclass(frozen=True)
class Curves:
    """What one chart shows."""

    title: str
    x_name: str
    series: list[Series]


def thin(xs: Sequence[float], ys: Sequence[float], buckets: int = BUCKETS) -> list[Point]:
    """Return the points that can be drawn; of many the lowest and the highest of each bucket: no peak is lost."""
    points = [(x, y) for x, y in zip(xs, ys, strict=True) if abs(x) < DRAWABLE and abs(y) < DRAWABLE]
    if len(points) <= 2 * buckets:
        return points
    kept = [points[0]]
    for bucket in range(buckets):
        part = points[len(points) * bucket // buckets : len(points) * (bucket + 1) // buckets]
        low, high = min(part, key=_height), max(part, key=_height)
        kept += sorted({low, high})
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _height(point: Point) -> float:
    return point[1]


def trace_costs(facts: Facts) -> list[Curves]:
    """Return the chart of the cost and one for each evaluator, over the passes done."""
    history, lengths = facts.history, facts.history.pass_lengths()
    batches = history.batches
    places = [
        place + min(batch / max(lengths[place], 1), 1.0)
        for place, batch in zip(batches.passes, batches.batches, strict=True)
    ]

    def at(record: Json) -> float:
        place = whole(record.get("pass"))
        return place + min(whole(record.get("batch")) / max(lengths.get(place, 0), 1), 1.0)

    def chart(title: str, key: str | None, windows: Sequence[float]) -> Curves:
        passes = [(float(whole(one.get("pass")) + 1), _value(one, key)) for one in history.passes]
        tests = [(at(one), _value(one, key)) for one in history.tests]
        series = [
            Series("batches", "window", [thin(places, windows)]),
            Series("pass", "pass", [_thin_pairs(passes)]),
            Series("test", "test", [_thin_pairs(tests)]),
        ]
        return Curves(title, "passes done", [one for one in series if one.points])

    nothing = [math.nan] * len(batches)
    charts = [chart("cost", None, batches.costs)]
    charts += [chart(name, name, batches.evaluators.get(name, nothing)) for name in history.evaluators()]
    return [one for one in charts if one.series]


def trace_speed(facts: Facts) -> Curves | None:
    """Return the samples per second over the time since the job began, in a piece for each attempt."""
    batches = facts.history.batches
    begins = [begun for start in facts.history.starts if (begun := number(start.get("time"))) is not None]
    times = [moment for moment in batches.times if math.isfinite(moment)]
    begin = min([*begins, *times], default=0.0)
    rows: dict[int, tuple[list[float], list[float]]] = {}
    for attempt, moment, speed in zip(batches.attempts, batches.times, batches.speeds, strict=True):
        xs, ys = rows.setdefault(attempt, ([], []))
        xs.append(moment - begin)
        ys.append(speed)
    pieces = [thin(xs, ys, max(BUCKETS // len(rows), 10)) for xs, ys in rows.values()]
    series = Series("samples per second", "pass", [piece for piece in pieces if piece])
    return Curves("throughput", "time", [series]) if series.points else None


def _value(record: Json, key: str | None) -> float | None:
    if key is None:
        return number(record.get("cost"))
    values = record.get("evaluators")
    return number(values.get(key)) if isinstance(values, dict) else None


def _thin_pairs(pairs: Sequence[tuple[float, float | None]]) -> list[Point]:
    known = [(x, y) for x, y in pairs if y is not None]
    return thin([x for x, _ in known], [y for _, y in known])
