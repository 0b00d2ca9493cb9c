"""`paddle plotcurve [-i LOG] [-o PICTURE] [key ...]` draws costs or evaluators of a training log over its passes.

Instead of a log, LOG may be the records of a job (records.jsonl), or the output directory that contains the records. If
several attempts have trained the same pass, this pass is drawn once.

Each key has two curves: a training curve from the log lines about passes, and a test curve from the log lines about
tests. A key is the name before `=` in such a line, or a regular expression for the end of this name, as in v0.10. The
cost has the name `AvgCost` in a line about a pass and `cost` in a line about a test; a key that matches `AvgCost` also
matches `cost`.

Source: python/paddle/utils/plotcurve.py of v0.10.
"""

from __future__ import annotations

import colorsys
import importlib
import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paddle.older_modules import member_of
from paddle.utils.log_lines import read_log
from paddle_base.runtime.durable_files import write_whole_file
from paddle_base.runtime.errors import ConfigError, NothingFoundError, UsageError, VolumeError
from trainer.command_line import CommandParser, command
from trainer.records.records import FILE, Record, drop_undone, parse_lines
from trainer.report.html.text import number as number_of

# the number of a pass, and then the value of each key: nan for a value that is not finite, None for a missing key
Row = list[Any]


class PassCurves(NamedTuple):
    """The points of all curves: a row for each pass, and a row for the test after each pass."""

    train: list[Row]
    test: list[Row]


NO_NUMBERS = ("Pass", "Batch", "samples")  # names of counters in a line; no curve is drawn for them
DOTS = 60  # a curve with more points than this is drawn without dots


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(prog="paddle plotcurve", description="Draw the curves of a training log.")
    parser.add_argument("-i", "--input", help="the log, a records.jsonl or an output directory; default: stdin")
    parser.add_argument("-o", "--output", help="the picture; default: stdout")
    parser.add_argument("--format", help="png, pdf, ps, eps or svg; default: the ending of the output's name, or png")
    parser.add_argument("key", nargs="*", help="what to draw, such as an evaluator's name; default: AvgCost")
    return parser


@command("paddle plotcurve")
def main(argv: Sequence[str]) -> None:
    """Draw the curves."""
    arguments = build_parser().parse_args(argv)
    plot(arguments.input, arguments.output, arguments.format, arguments.key or ["AvgCost"])


def plot(source: str | None, target: str | None, kind: str | None, keys: Sequence[str]) -> None:
    """Draw a log's curves.

    Args: source, target: paths; None: stdin, stdout.  kind: the format of the picture.
    Raises: MissingInputError: the log or the records do not exist.  NothingFoundError: the log has no pass, or lacks a
        key.  VolumeError: the picture cannot be written.  ConfigError: matplotlib is not installed.
        UsageError: a key or the format is invalid.
    """
    if source is None and sys.stdin.isatty():
        raise UsageError("no log is given: name a log with -i, or send it to standard input")
    if target is None and sys.stdout.isatty():
        raise UsageError("a terminal shows no picture: name a file with -o")
    folder = os.path.dirname(target or "") or "."  # noqa: PTH120 - as below
    # before the log is read, because it may be standard input, which lasts as long as the training
    if target and not os.path.isdir(folder):  # noqa: PTH112
        raise VolumeError(f"the picture cannot be written to {target}: there is no directory {folder}")
    lines = read_lines(source)
    curves = read_curves(lines, keys)
    missing = [key for place, key in enumerate(keys, 1) if not any(_has(rows, place) for rows in curves)]
    if not curves.train:
        raise NothingFoundError(
            f"{source or 'the input'} has no line of a pass, and therefore nothing to draw; give the train.log or "
            "the output directory of a run that has finished a pass"
        )
    if missing:
        known = list_keys(lines)
        raise NothingFoundError(f"{source or 'the input'} has no {', '.join(missing)}; it has {', '.join(known)}")
    write(target, draw(curves, keys, kind or Path(target or "").suffix[1:] or "png"))


def _has(rows: Sequence[Row], place: int) -> bool:
    return any(row[place] is not None for row in rows)


def write(target: str | None, picture: bytes) -> None:
    """Write the picture.

    Raises: VolumeError.
    """
    if target:
        write_whole_file(Path(target), [picture], "the picture")
        return
    try:
        sys.stdout.buffer.write(picture)
    except OSError as error:
        raise VolumeError(f"the picture cannot be written to stdout: {error.strerror}") from error


def read_lines(source: str | None) -> list[str]:
    """Return the lines of a log, or equivalent lines for the records of a job.

    Raises: MissingInputError: the log cannot be read.  DataError: the log is too large.
    """
    path = Path(source or "")
    if source and os.path.isdir(path):  # noqa: PTH112 - Path's fails where a directory above may not be looked into
        path /= FILE
    lines = read_log(path if source else None)
    if not lines or not lines[0].startswith("{"):
        return lines
    return [spell(one) for one in drop_undone(parse_lines(line.encode() for line in lines)) if one["kind"] in SPELLED]


# kind of record -> the beginning of its line in the log
SPELLED = {"pass": "Pass={pass} Batch={batch} AvgCost=", "test": "Test samples={samples} cost="}


def spell(record: Record) -> str:
    """Return the part of a record's log line that `read_curves` uses."""
    evaluators = record.get("evaluators")
    numbers = evaluators.items() if isinstance(evaluators, dict) else ()
    shown = [f" {name}={_spell_number(value)}" for name, value in numbers]
    beginning = SPELLED[record["kind"]].format_map({"samples": 0, **record})
    return f"{beginning}{_spell_number(record.get('cost'))}{''.join(shown)}"


def _spell_number(value: object) -> str:
    found = number_of(value)
    return "nan" if found is None else f"{found:g}"


def list_keys(lines: Iterable[str]) -> list[str]:
    """Return all names that keys can match, in the order of the lines."""
    found: dict[str, None] = {}
    for line in lines:
        for part in re.findall(r"(?:Pass=[0-9]|Test samples=).*", line):
            names = re.findall(r"(\S+?)=\S", part)
            found.update(dict.fromkeys(name for name in names if name not in NO_NUMBERS))
    return list(found)


def read_curves(lines: Iterable[str], keys: Sequence[str]) -> PassCurves:
    """Return the values of the keys in the lines about passes and about tests.

    A test belongs to the pass whose line precedes it; after the end of a pass, only the first test counts.

    Raises: UsageError: a key is not a regular expression.
    """
    curves = PassCurves([], [])
    try:
        of_pass = [re.compile(rf"Pass=[0-9]+ .*?(?:{key})=(\S*)") for key in keys]
        of_test = [re.compile(rf"Test samples=.*?(?:{key}{'|cost' if _is_cost(key) else ''})=(\S*)") for key in keys]
    except re.error as error:
        raise UsageError(f"the keys {' '.join(keys)} are no regular expressions: {error}") from error
    for line in lines:
        passed = re.search("Pass=([0-9]+) ", line)
        if passed:
            curves.train.append([float(passed[1]), *_find(of_pass, line)])
        elif "Test samples=" in line and len(curves.test) < len(curves.train):
            curves.test.append([curves.train[-1][0], *_find(of_test, line)])
    return curves


def _is_cost(key: str) -> bool:
    return re.search(f"(?:{key})$", "AvgCost") is not None


def _find(patterns: Sequence[re.Pattern[str]], line: str) -> list[float | None]:
    found = [pattern.search(line) for pattern in patterns]
    return [None if one is None else _number(one[1]) for one in found]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def draw(curves: PassCurves, keys: Sequence[str], kind: str) -> bytes:
    """Return the picture.

    Raises: ConfigError: matplotlib is not installed.  UsageError: matplotlib does not support the format.
    """
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
    except ModuleNotFoundError as error:
        raise ConfigError("drawing needs matplotlib; install it with: pip install matplotlib") from error
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots()
    fill(axes, curves, keys)
    picture = io.BytesIO()
    try:
        figure.savefig(picture, format=kind, bbox_inches="tight")
    except ValueError as error:
        raise UsageError(f"--format {kind}: {error}") from error
    finally:
        pyplot.close(figure)
    return picture.getvalue()


def fill(axes: Any, curves: PassCurves, keys: Sequence[str]) -> None:
    """Draw the curves into the axes of matplotlib, each in its own colour, with the pass as x."""
    drawn = [
        (f"Test {'cost' if is_test and _is_cost(key) else key}" if is_test else key, rows, place, is_test)
        for place, key in enumerate(keys, 1)
        for is_test, rows in enumerate(curves)
        if _has(rows, place)
    ]
    colours = choose_colours(len(drawn))
    for colour, (label, rows, place, is_test) in zip(colours, drawn, strict=True):
        points = [(row[0], row[place]) for row in rows if row[place] is not None]
        style = {"linestyle": "--" if is_test else "-", "marker": "o" if len(points) <= DOTS else None}
        axes.plot([x for x, _ in points], [y for _, y in points], color=colour, label=label, markersize=3, **style)
    axes.set_xlabel("pass")
    axes.set_ylabel(keys[0] if len(keys) == 1 else "value")
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    passes = [row[0] for rows in curves for row in rows]
    if min(passes) == max(passes):  # otherwise the x axis would have no whole number
        axes.set_xlim(passes[0] - 1, passes[0] + 1)
    axes.legend(loc="best", ncols=1 + len(drawn) // 16, fontsize="small" if len(drawn) > 8 else None)


def choose_colours(count: int) -> list[tuple[float, float, float]]:
    """Return `count` different colours, each as (red, green, blue) from 0 to 1.

    Up to eight colours have different hues. More colours have each hue in three shades.
    """
    shades = ((0.9, 0.75), (0.55, 0.55), (0.45, 0.95)) if count > 8 else ((0.9, 0.75),)
    hues = -(-count // len(shades))
    return [
        colorsys.hsv_to_rgb((number // len(shades)) / hues, *shades[number % len(shades)]) for number in range(count)
    ]


__getattr__ = member_of("paddle.utils.plotcurve")


if __name__ == "__main__":
    sys.exit(main())
