"""From the records of `make e2e-autoscale` to what docs/autoscaler.md shows: the table, and the logs of its pictures.

PYTHONPATH=tests python -m autoscale.published RECORDS THEIRS [PACED] keeps of the latest run of each series in RECORDS
the columns, the changes and the figures in autoscale/kwok, and draws both pictures. THEIRS: the directory of the
published logs. PACED: records of a run in which the steps of nginx came sooner. `make docs` writes the table.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from autoscale.figures import Record, summarise

KEPT = Path(__file__).with_name("kwok")
DOCS = Path(__file__).parents[2] / "docs"
SERIES = ("case1_OFF", "case1_ON", "case2_OFF", "case2_ON")


class Row(NamedTuple):
    """A row of the table. `names`: of the figures of one series, joined by "; "."""

    title: str
    case: int
    until: int  # seconds: a shorter run has no such figures
    names: tuple[str, ...]
    unit: str
    theirs: str
    goal: str


UTILISED = ("utilisation, 0 to 700 s, %", "utilisation off-peak, 300 to 370 s, %")
ROWS = [
    Row("pending time of a job", 1, 500, ("pending time of a job, s",), " s", "280 s / 43 s", "8 s"),
    Row("jobs running, 300 to 500 s", 1, 500, ("jobs running, 300 to 500 s",), "", "6 / 19 of 20", "20"),
    Row("utilisation, 300 to 500 s", 1, 500, ("utilisation, 300 to 500 s, %",), " %", "89 % / 86 %", "not below OFF"),
    Row("time without room for another one, 300 to 500 s; in all", 1, 500,
        ("the same, 300 to 500 s", "no room for a trainer, % of the time"), " %", "-", "95 %"),
    Row("pending time of a job", 2, 60, ("pending time of a job, s",), " s", "1.5 s / 54 s", "8 s"),
    Row("service whole after a step up", 2, 700, ("service whole after each step up, s",), " s",
        "10 s / never in 115 s", "10 s"),
    Row("pod-seconds missing", 2, 700, ("pod-seconds missing",), "", "3,200 / 21,900", "3,500"),
    Row("utilisation, 0 to 700 s", 2, 700, UTILISED[:1], " %", "67 % / 85 %", "90 %"),
    Row("utilisation off-peak, 300 to 370 s", 2, 370, UTILISED[1:], " %", "45 % / 79 %", "90 %"),
]  # fmt: skip


def keep(records: Path, theirs: Path, paced: Path | None = None) -> None:
    """Keep the latest run of each series, and draw the pictures.

    Args: paced: records of a run of case 2 in which the steps of nginx came sooner.
    """
    from autoscale.pictures import draw  # needs matplotlib, the table does not

    KEPT.mkdir(exist_ok=True)
    kept = read_kept()
    places = [(series, records, series) for series in SERIES]
    places += [("case2_ON_paced", paced, "case2_ON")] if paced else []
    for name, directory, series in places:
        found = sorted(directory.glob(f"{series}-*.json"), key=lambda path: path.stat().st_mtime)
        made = [path for path in found if ".autoscaler" not in path.name]
        if made:
            kept[name] = keep_one(Record.from_json(json.loads(made[-1].read_text())), name)
    (KEPT / "figures.json").write_text(json.dumps(kept, indent=1) + "\n")
    for case in (1, 2):
        ours = KEPT / f"case{case}_ON.log"
        if ours.exists():
            draw(theirs / f"case{case}_ON.log", ours, DOCS / f"autoscaler-case{case}.png", "KWOK")


def keep_one(record: Record, name: str) -> dict[str, Any]:
    """Keep the columns and the changes of a run; return what figures.json has of it."""
    (KEPT / f"{name}.log").write_text("".join(f"{line}\n" for line in record.columns()))
    if record.elastic:
        lines = [f"{at:g} {job}: {old} -> {new} trainers: {why}\n" for at, job, old, new, why in record.changes]
        (KEPT / f"{name}.changes").write_text("".join(lines))
    return {
        "begun": time.strftime("%Y-%m-%d %H:%M", time.gmtime(record.begin)),
        "seconds": round(record.end),
        "figures": summarise(record),
        "machine": record.machine,
        "load": record.load[::6],
    }


def read_kept() -> dict[str, Any]:
    """What was kept of each series."""
    path = KEPT / "figures.json"
    return json.loads(path.read_text()) if path.exists() else {}


def make_table() -> str:
    """The table of docs/autoscaler.md."""
    kept = read_kept()
    lines = ["| | 2017, OFF / ON | goal, ON | KWOK, OFF / ON |", "|---|---|---|---|"]
    for row in ROWS:
        ours = [_show(kept, f"case{row.case}_{onoff}", row) for onoff in ("OFF", "ON")]
        lines.append(f"| case {row.case}: {row.title} | {row.theirs} | {row.goal} | {' / '.join(ours)} |")
    for case in (1, 2):
        loads = " / ".join(_show_load(kept, f"case{case}_{onoff}") for onoff in ("OFF", "ON"))
        lines.append(f"| case {case}: load of the machine, mean | - | - | {loads} |")
    return "\n".join(lines)


def _show(kept: dict[str, Any], series: str, row: Row) -> str:
    if (
        series not in kept
        or kept[series]["seconds"] < row.until - 1
        or (series.endswith("OFF") and "room" in row.title)
    ):
        return "-"
    return "; ".join(_show_figure(kept[series]["figures"][name], row.unit) for name in row.names)


def _show_figure(figure: Any, unit: str) -> str:
    if isinstance(figure, list):
        return ", ".join("never" if one is None else f"{one:g}" for one in figure) + unit
    return "-" if figure is None else f"{figure:,}{unit}"


def _show_load(kept: dict[str, Any], series: str) -> str:
    return str(kept[series]["machine"]["load, mean"]) if series in kept else "-"


if __name__ == "__main__":
    keep(*map(Path, sys.argv[1:4]))
