"""`paddle plotcurve [-i LOG] [-o PICTURE] [key ...]`: draw costs or evaluators of a training log over its passes.

In place of a log it takes the records of a job (records.jsonl), or the output directory that they are in: then what a
later attempt has trained again is drawn once.

The lines of passes give a training curve for each key, those of tests a test curve. A key is what stands before the
`=` in the log (a regular expression, as it was); AvgCost stands in no test line, so it has no test curve.

Source: python/paddle/utils/plotcurve.py of v0.10; spec/trainer.md section 8.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pserver.errors import ConfigError, MissingInputError, PaddleError, UsageError, VolumeError
from trainer.command_line import CommandParser
from trainer.records import FILE, Record, drop_undone, parse_lines
from trainer.report.text import number as number_of

Row = list[float]  # a pass number and the value of each key


class Curves(NamedTuple):
    """The rows of the passes, and of the test that follows each of them."""

    train: list[Row]
    test: list[Row]


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the curves and return the exit status."""
    parser = CommandParser(prog="paddle plotcurve", description="Draw the curves of a training log.")
    parser.add_argument("-i", "--input", help="the log, a records.jsonl or an output directory; stdin without it")
    parser.add_argument("-o", "--output", help="the picture; stdout without it")
    parser.add_argument(
        "--format", help="png, pdf, ps, eps or svg; by default what the output's name ends with, or png"
    )
    parser.add_argument("key", nargs="*", help="what to draw, in the order of a log line; AvgCost without any")
    try:
        arguments = parser.parse_args(argv)
        plot(arguments.input, arguments.output, arguments.format, arguments.key or ["AvgCost"])
    except PaddleError as error:
        sys.stderr.write(f"paddle plotcurve: {error}\n")
        return error.exit_code
    return 0


def plot(source: str | None, target: str | None, kind: str | None, keys: Sequence[str]) -> None:
    """Draw a log's curves.

    Args: source, target: paths; None: stdin, stdout.  kind: the format of the picture.
    Raises: MissingInputError: there is no such log, or no such records.  VolumeError: the picture cannot be written.
        ConfigError: matplotlib is not installed.  UsageError: a key or the format is impossible.
    """
    curves = read_curves(read_lines(source), keys)
    if curves.train or curves.test:
        picture = draw(curves, keys, kind or Path(target or "").suffix[1:] or "png")
    else:
        sys.stderr.write("No data to plot. Exiting!\n")
        picture = b""
    try:
        if target:
            Path(target).write_bytes(picture)
        else:
            sys.stdout.buffer.write(picture)
    except OSError as error:
        raise VolumeError(f"the picture cannot be written to {target or 'stdout'}: {error.strerror}") from error


def read_lines(source: str | None) -> list[str]:
    """Return the lines of a log, or those that the records of a job stand for.

    Raises: MissingInputError: it cannot be read.
    """
    path = Path(source or "")
    if source and os.path.isdir(path):  # noqa: PTH112 - Path's fails where a directory above may not be looked into
        path /= FILE
    try:
        lines = path.read_text(errors="replace").splitlines() if source else sys.stdin.readlines()
    except OSError as error:
        raise MissingInputError(f"the log {path} cannot be read: {error.strerror}") from error
    if not lines or not lines[0].startswith("{"):
        return lines
    return [spell(one) for one in drop_undone(parse_lines(line.encode() for line in lines)) if one["kind"] in SPELLED]


SPELLED = {"pass": "Pass={pass} Batch={batch} AvgCost=", "test": "Test samples={samples} cost="}  # as the log has them


def spell(record: Record) -> str:
    """Return what matters to a curve of the line that the log has for a record."""
    evaluators = record.get("evaluators")
    numbers = evaluators.items() if isinstance(evaluators, dict) else ()
    shown = [f" {name}={_spell_number(value)}" for name, value in numbers]
    beginning = SPELLED[record["kind"]].format_map({"samples": 0, **record})
    return f"{beginning}{_spell_number(record.get('cost'))}{''.join(shown)}"


def _spell_number(value: object) -> str:
    found = number_of(value)
    return "nan" if found is None else f"{found:g}"


def read_curves(lines: Iterable[str], keys: Sequence[str]) -> Curves:
    """Return the values of the keys in the lines of passes and of tests.

    A test belongs to the pass whose line comes before it; of several the first counts, the one at the end of the pass.

    Raises: UsageError: a key is no regular expression.
    """
    tail = "".join(rf".*?{key}=([0-9e\-\.]*)" for key in keys)
    try:
        of_pass, of_test = re.compile(f"Pass=([0-9]*){tail}"), re.compile(f"Test samples=([0-9]*){tail}")
    except re.error as error:
        raise UsageError(f"the keys {' '.join(keys)} are no regular expressions: {error}") from error
    curves = Curves([], [])
    for line in lines:
        passed, tested = of_pass.search(line), of_test.search(line)
        if passed:
            curves.train.append([_number(text) for text in passed.groups()])
        elif tested and len(curves.test) < len(curves.train):
            curves.test.append([curves.train[-1][0], *(_number(text) for text in tested.groups()[1:])])
    return curves


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # the value was nan or inf
        return float("nan")


def draw(curves: Curves, keys: Sequence[str], kind: str) -> bytes:
    """Return the picture.

    Raises: ConfigError: matplotlib is not installed.  UsageError: it does not know the format.
    """
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
    except ModuleNotFoundError as error:
        raise ConfigError("drawing needs matplotlib; install it with: pip install matplotlib") from error
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    jet = matplotlib.colormaps["jet"]
    figure, axes = pyplot.subplots()
    for i, key in enumerate(keys):
        shade = i / (2 * (len(keys) + 1))
        for rows, colour, label in ((curves.train, jet(shade), key), (curves.test, jet(1 - shade), f"Test {key}")):
            if rows:
                axes.plot([row[0] for row in rows], [row[i + 1] for row in rows], color=colour, label=label)
    axes.set_xlabel("number of epoch")
    axes.legend(loc="best")
    picture = io.BytesIO()
    try:
        figure.savefig(picture, format=kind, bbox_inches="tight")
    except ValueError as error:
        raise UsageError(f"--format {kind}: {error}") from error
    finally:
        pyplot.close(figure)
    return picture.getvalue()


if __name__ == "__main__":
    sys.exit(main())
