"""A record of the pods of a job and of a service beside it over time, and a picture of the record.

    python tests/kubernetes/tasks/day_record.py EVENTS.json PICTURE.svg

E2E_RECORDS names a directory into which test_tasks_day.py writes the file EVENTS.json, named after the test.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import requests

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 300, 46, 34, 46, 40
INTERVAL_S = 0.5


class Moment(NamedTuple):
    """The state of the job and the service at one time.

    seconds: time since the beginning.  trainers: trainers that run.  waiting: trainers that wait for room.  service:
    pods of the service.  wanted: the Job's parallelism.  share: the share of the job's tasks that are done.
    """

    seconds: float
    trainers: int
    waiting: int
    service: int
    wanted: int
    share: float


class DayRecord:
    """A context manager whose thread records a Moment every INTERVAL_S. marks: the times of events, and their names."""

    def __init__(self, look: Callable[[], tuple[int, int, int, int, float]]) -> None:
        self.moments: list[Moment] = []
        self.marks: list[tuple[float, str]] = []
        self._look, self._over = look, threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def mark(self, what: str) -> None:
        self.marks.append((round(time.monotonic() - self._began, 1), what))

    def __enter__(self) -> DayRecord:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            began = round(time.monotonic() - self._began, 1)
            with contextlib.suppress(requests.RequestException):
                self.moments.append(Moment(began, *self._look()))
            self._over.wait(INTERVAL_S)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({"moments": self.moments, "marks": self.marks}))


def step_line(points: Iterable[tuple[float, float]], style: str) -> str:
    """Return a line of the SVG that keeps its height until the next point."""
    words, height = [], None
    for x, y in points:
        words.append(f"M{x:.1f} {y:.1f}" if height is None else f"H{x:.1f} V{y:.1f}")
        height = y
    return f'<path d="{" ".join(words)}" fill="none" {style}/>'


def draw(moments: list[Moment], marks: list[tuple[float, str]]) -> str:
    """Return an SVG with the numbers of pods over time, and the share of the job that is done."""
    end = max(one.seconds for one in moments)
    most = max(max(one.trainers, one.wanted, one.service) for one in moments) + 1
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(seconds: float) -> float:
        return LEFT + width * seconds / end

    def y(pods: float) -> float:
        return TOP + height * (1 - pods / most)

    lines = [
        ("share", "#bbb", "tasks done, of all", lambda one: one.share * most, ""),
        ("wanted", "#1f77b4", "parallelism", lambda one: one.wanted, 'stroke-dasharray="2 3"'),
        ("trainers", "#1f77b4", "trainers that run", lambda one: one.trainers, ""),
        ("service", "#d62728", "pods of the service", lambda one: one.service, ""),
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for pods in range(int(most) + 1):
        parts.append(f'<path d="M{LEFT} {y(pods):.1f}H{WIDTH - RIGHT}" stroke="#eee"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(pods) + 4:.1f}" text-anchor="end">{pods}</text>')
    for seconds in range(0, int(end) + 1, 30 if end < 400 else 60):
        parts.append(f'<text x="{x(seconds):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{seconds} s</text>')
    for seconds, what in marks:
        parts.append(f'<path d="M{x(seconds):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#888" stroke-dasharray="1 4"/>')
        parts.append(f'<text x="{x(seconds) + 3:.1f}" y="{TOP + 10}" fill="#555">{what}</text>')
    for number, (_, colour, text, value, style) in enumerate(lines):
        points = [(x(one.seconds), y(value(one))) for one in moments]
        parts.append(step_line(points, f'stroke="{colour}" stroke-width="1.6" {style}'))
        parts.append(f'<text x="{LEFT + 170 * number}" y="18" fill="{colour}">{text}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 6}">pods</text></svg>')
    return "\n".join(parts) + "\n"


def main(events: str, picture: str) -> None:
    content = json.loads(Path(events).read_text())
    moments = [Moment(*one) for one in content["moments"]]
    Path(picture).write_text(draw(moments, [(seconds, what) for seconds, what in content["marks"]]))


if __name__ == "__main__":
    main(*sys.argv[1:])
