"""Make the curves of a job from its records. If a curve has more points than a screen shows, points are dropped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainer.records.records import Record
from trainer.report.best import Best, find_best
from trainer.report.facts import Facts
from trainer.report.history import Batches
from trainer.report.html.text import number, whole

Point = tuple[float, float]
DRAWABLE = 1e100  # larger values are dropped, because the arithmetic of an axis could overflow
WINDOW_S = 0.2  # minimum seconds between the two log lines from which a speed is computed
DOTS = 60  # maximum number of points of a curve whose points are shown as dots
BUCKETS = 250  # number of parts into which a curve with too many points is divided; each part keeps two points


@dataclass(frozen=True)
class Series:
    """A curve. `style` is its CSS class. There are gaps between the `pieces` of its line."""

    name: str
    style: str
    pieces: list[list[Point]]

    @property
    def is_noisy(self) -> bool:
        """Whether the curve shows windows of batches or has many points. The page can smooth such a curve."""
        return self.style.startswith("window") or len(self.points) > DOTS

    @property
    def points(self) -> list[Point]:
        """The points of all pieces."""
        return [point for piece in self.pieces for point in piece]


@dataclass(frozen=True)
class Curves:
    """The content of one chart."""

    title: str
    x_name: str
    series: list[Series]
    best: Best | None = None  # the pass that the chart marks, or None


def thin(points: Iterable[tuple[float, float | None]], buckets: int = BUCKETS) -> list[Point]:
    """Return the points that can be drawn; if there are many, only the lowest and the highest point of each bucket."""
    found = [(x, y) for x, y in points if y is not None and abs(x) < DRAWABLE and abs(y) < DRAWABLE]
    if len(found) <= 2 * buckets:
        return found
    kept = [found[0]]
    for bucket in range(buckets):
        part = found[len(found) * bucket // buckets : len(found) * (bucket + 1) // buckets]
        low, high = min(part, key=_height), max(part, key=_height)
        kept += sorted({low, high})
    return kept if kept[-1] == found[-1] else [*kept, found[-1]]


def _height(point: Point) -> float:
    return point[1]


def trace_costs(facts: Facts) -> list[Curves]:
    """Return a chart of the cost and a chart of each evaluator, over the completed passes."""
    history, lengths = facts.history, facts.history.pass_lengths()
    batches, best = history.batches, find_best(history)
    places = [
        place + batch / (lengths[place] or 1) for place, batch in zip(batches.passes, batches.batches, strict=True)
    ]

    def at(record: Record) -> float:
        place = whole(record.get("pass"))
        return place + min(whole(record.get("batch")) / max(lengths.get(place, 0), 1), 1.0)

    def chart(title: str, key: str | None, windows: Sequence[float]) -> Curves:
        passes = [(float(whole(one.get("pass")) + 1), _value(one, key)) for one in history.passes]
        tests = [(at(one), _value(one, key)) for one in history.tests]
        series = [
            Series("batches", "window", [thin(zip(places, windows, strict=True))]),
            Series("pass", "pass", [thin(passes)]),
            Series("test", "test", [thin(tests)]),
        ]
        return Curves(title, "passes done", [one for one in series if one.points], best)

    nothing = [math.nan] * len(batches)
    charts = [chart("cost", None, batches.costs)]
    charts += [chart(name, name, batches.evaluators.get(name, nothing)) for name in history.evaluators()]
    return [one for one in charts if one.series]


def trace_speed(facts: Facts) -> Curves | None:
    """Return the speed of trainer 0 over the time since the job began. Each attempt has its own piece of the curve."""
    history = facts.history
    begin = min([*(one["time"] for one in history.starts), *history.batches.times[:1]], default=0.0)
    passes: dict[str, list[Point]] = {}
    for one in history.passes:
        samples, taken = number(one.get("samples")), number(one.get("seconds"))
        if samples is not None and taken:
            passes.setdefault(str(one.get("attempt")), []).append((one["time"] - begin, samples / taken))
    windows = measure_windows(history.batches)
    share = max(BUCKETS // max(len(windows), len(passes), 1), 10)
    series = [
        Series(
            "between lines of the log", "window", [thin([(x - begin, y) for x, y in one], share) for one in windows]
        ),
        Series("pass", "pass", [thin(one, share) for one in passes.values()]),
    ]
    shown = [one for one in series if one.points]
    return Curves("samples per second of trainer 0", "time", shown) if shown else None


def measure_windows(batches: Batches) -> list[list[Point]]:
    """Return a list for each attempt. An element is (time, samples per second between two log lines of a pass).

    A log line less than WINDOW_S seconds after the previous one is skipped, because the times in the records are
    rounded to milliseconds.
    """
    found: dict[int, list[Point]] = {}
    rows = zip(batches.starts, batches.passes, batches.times, batches.samples, strict=True)
    first_start = first_pass = -1
    first_time = first_samples = 0.0
    for start, place, moment, samples in rows:
        taken = moment - first_time
        if start == first_start and place == first_pass and taken < WINDOW_S:
            continue
        if start == first_start and place == first_pass:
            found.setdefault(start, []).append((moment, (samples - first_samples) / taken))
        first_start, first_pass, first_time, first_samples = start, place, moment, samples
    return list(found.values())


def _value(record: Record, key: str | None) -> float | None:
    if key is None:
        return number(record.get("cost"))
    values = record.get("evaluators")
    return number(values.get(key)) if isinstance(values, dict) else None
