"""`paddle follow OUTPUT` reports the progress of a program of any library, which prints it on lines of this form:

    Pass=0 Batch=10 AvgCost=0.25

The launcher of a pod runs it for a program of ENTRY, and hands it these lines. The text is that of a user's program:
lines have a limited length, and what is no such line is ignored.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from paddle_base.runtime.errors import UsageError
from trainer.command_line import CommandParser, command
from trainer.records.progress_files import read_job
from trainer.telemetry.reporter import OutputTarget, Reporter, find_target

LONGEST = 1000  # maximum bytes of a line; longer ones are ignored
MOST_MEASURES = 16  # maximum number of measures on a line; more of them are ignored
_PLACE = re.compile(r"Pass=([0-9]{1,9})[\s,;]+Batch=([0-9]{1,9})(?![\w.])")
_PAIR = re.compile(
    r"(?:^|[\s,;])([A-Za-z_][\w.-]{0,63})=([-+]?(?:\.?[0-9][0-9.]{0,30}(?:[eE][-+]?[0-9]{1,3})?|nan|inf))(?=[\s,;]|$)"
)
_COUNT = re.compile(r"[0-9]{1,15}")
_END = re.compile(r"Exit=([0-9]{1,3})$")
COST, SAMPLES, PASSES = "AvgCost", "samples", "Passes"


class Line(NamedTuple):
    """The numbers of a line.

    Attributes: number, batch: the pass, and its completed batches. cost: nan if the line has none. samples: the samples
        of the pass so far, and passes: the number of the job's passes; 0 if the line does not say it. measures: {name:
        number as printed}.
    """

    number: int
    batch: int
    cost: float
    samples: int
    passes: int
    measures: dict[str, str]

    def average_cost(self) -> float:
        """Return the cost per sample."""
        return self.cost

    def results(self) -> dict[str, str]:
        """Return the measures."""
        return self.measures


def parse_line(text: str) -> Line | None:
    """Return the numbers of a line, or None if it is no line of progress."""
    place = _PLACE.match(text)
    if place is None:
        return None
    pairs = dict(_PAIR.findall(text[place.end() :]))
    cost = _read_number(pairs.pop(COST, ""))
    samples, passes = (int(text) if _COUNT.fullmatch(text := pairs.pop(name, "")) else 0 for name in (SAMPLES, PASSES))
    measures = dict([*pairs.items()][:MOST_MEASURES])
    return Line(int(place[1]), int(place[2]), cost, samples, passes, measures)


def _read_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


class Follower:
    """Reports what the lines of a program say. A pass ends where the next one begins, or at the end of the program.

    Args: facts: fields of the start record.
    """

    def __init__(self, reporter: Reporter, facts: dict[str, Any]) -> None:
        self._reporter, self._facts = reporter, facts
        self._last: Line | None = None

    def take(self, line: Line) -> None:
        """Report a line."""
        last, reporter = self._last, self._reporter
        passes = max(line.passes, line.number + 1)
        reporter.extend(passes)
        if last is None:
            reporter.start(**{"pass": line.number, "batch": 0, "start_pass": 0, "passes": passes, **self._facts})
        elif line.number != last.number:
            self._finish_pass(last)
        if last is None or line.number != last.number:
            reporter.start_pass(line.number)
            before = 0
        else:
            before = last.samples
        line = line._replace(samples=max(line.samples, before))
        reporter.add(line.batch, line.samples - before)
        reporter.add_batch_line(line, line)
        self._last = line

    def end(self, status: int) -> None:
        """Report the end of the program, with its exit status."""
        if self._last is None:
            return
        if not status:
            self._finish_pass(self._last)
        self._reporter.end(status)

    def _finish_pass(self, last: Line) -> None:
        self._reporter.finish_pass(last)
        self._reporter.show()


def read_lines(file: BinaryIO) -> Iterator[str]:
    """Yield the lines that are not too long, without their line breaks."""
    is_inside = False  # whether the next piece continues a line that is too long
    while piece := file.readline(LONGEST):
        is_whole = piece.endswith(b"\n") or len(piece) < LONGEST
        if is_whole and not is_inside:
            yield piece.decode("utf-8", "replace").rstrip("\r\n")
        is_inside = not is_whole


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="paddle follow", description="Report the progress that a program prints: PROGRAM | paddle follow OUTPUT."
    )
    parser.add_argument("output", type=Path, help="directory for progress.json, records.jsonl and report.html")
    parser.add_argument("--trainer_id", type=int, default=0, metavar="N", help="rank of the program in its job")
    parser.add_argument("--trainers", type=int, default=1, metavar="N", help="number of programs of the job")
    parser.add_argument("--program", default="", metavar="TEXT", help="command of the program, for the report")
    return parser


@command("paddle follow")
def main(argv: Sequence[str]) -> None:
    """Report the lines of stdin."""
    arguments = build_parser().parse_args(argv)
    if not 0 <= arguments.trainer_id < arguments.trainers:
        raise UsageError(f"--trainer_id={arguments.trainer_id}: expected a rank below --trainers={arguments.trainers}")
    target = find_target(str(arguments.output), arguments.trainer_id, os.environ)
    if target is not None and not is_reported(target):
        facts = {"trainers": arguments.trainers, "config": arguments.program}
        follow(sys.stdin.buffer, Follower(Reporter(target), facts))
    for _ in iter(lambda: sys.stdin.buffer.read(1 << 16), b""):  # a program whose pipe is closed would end
        pass


def is_reported(target: OutputTarget) -> bool:
    """Return whether the program of this attempt writes its progress itself, as paddle.v2 and `paddle train` do."""
    return bool(target.attempt) and read_job(target.node or target.output).get("attempt") == target.attempt


def follow(file: BinaryIO, follower: Follower) -> None:
    """Report the lines of a file up to its end, or up to the line `Exit=<status>` of the launcher."""
    for text in read_lines(file):
        if line := parse_line(text):
            follower.take(line)
        elif found := _END.match(text):
            follower.end(int(found[1]))
            return
    follower.end(0)


if __name__ == "__main__":
    sys.exit(main())
