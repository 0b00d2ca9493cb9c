"""Draws the experiment of 2017 and a run of ours over one another: trainers, jobs, the service and utilisation.

PYTHONPATH=tests python -m autoscale.pictures THEIRS OURS OUT.png NAME, a log with the columns of 2017 each: theirs from
the published experiment, ours from a run on KWOK or from `python -m autoscale --columns DIRECTORY`; NAME says which.
Needs matplotlib. A line holds until the next one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure


class Columns(NamedTuple):
    """One line of a log."""

    seconds: float
    utilisation: float
    trainers: int
    running: int
    service: int


def read_columns(path: Path) -> list[Columns]:
    found = []
    for line in path.read_text().splitlines():
        fields = line.split(",")
        found.append(Columns(float(fields[0]), float(fields[1]), int(fields[2]), int(fields[5]), int(fields[7])))
    return found


def draw(theirs: Path, ours: Path, out: Path, name: str) -> None:
    """Write a picture of two logs; `name`: what ours was measured on."""
    logs = {"2017": (read_columns(theirs), "0.6"), name: (read_columns(ours), "tab:blue")}
    has_service = any(row.service for rows, _ in logs.values() for row in rows)
    titles = {"trainers": "trainers Running", "utilisation": "CPU utilisation, %"}
    titles |= {"service": "pods of nginx Running"} if has_service else {"running": "jobs that have a trainer"}
    figure = Figure(figsize=(8, 7), layout="constrained")
    axes = figure.subplots(len(titles), sharex=True)
    for place, (column, title) in zip(axes, titles.items(), strict=True):
        for label, (rows, colour) in logs.items():
            seconds, values = [row.seconds for row in rows], [getattr(row, column) for row in rows]
            place.step(seconds, values, where="post", color=colour, label=label)
        place.set_ylabel(title)
        place.set_ylim(bottom=0)
        place.grid(visible=True, alpha=0.3)
    axes[0].legend(loc="lower right")
    axes[-1].set_xlabel("seconds")
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    draw(*map(Path, sys.argv[1:4]), sys.argv[4])
