"""`paddle tensorboard OUTPUT_DIR [--logdir DIR]` writes the records of a job as event files for TensorBoard.

TensorBoard shows three runs: `batches` (averages over --log_period batches, as in the log lines about batches),
`passes` (averages over a pass) and `tests`. The tags are `cost` and the names of the evaluators. A step is the number
of batches since the beginning of the first pass.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paddle_base.runtime.durable_files import remove_if_possible
from paddle_base.runtime.errors import ConfigError, MissingInputError, VolumeError
from trainer.command_line import CommandParser, command
from trainer.records.records import FILE, Record, read_records
from trainer.report.html.text import number as number_of

RUNS = {"batch": "batches", "pass": "passes", "test": "tests"}  # kind of record -> its run in TensorBoard
PREFIX = {"batch": "window_"}  # kind of record -> prefix of the names of its fields; other kinds have no prefix
SUFFIX = ".paddle"  # of this program's event files, because a directory may also have event files of the user
EVENT_FILES = f"events.out.tfevents.*{SUFFIX}"


class Scalar(NamedTuple):
    """One point of a curve; time is in seconds since the epoch."""

    run: str
    tag: str
    step: int
    value: float
    time: float


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    description = "Write a job's records as event files of TensorBoard."
    parser = CommandParser(prog="paddle tensorboard", description=description)
    parser.add_argument("output", type=Path, help=f"the output directory of a job, with its {FILE}")
    parser.add_argument("--logdir", type=Path, help="directory for the event files; default: OUTPUT/tensorboard")
    return parser


@command("paddle tensorboard")
def main(argv: Sequence[str]) -> None:
    """Write the event files."""
    arguments = build_parser().parse_args(argv)
    logdir = arguments.logdir or arguments.output / "tensorboard"
    count = write_events(arguments.output, logdir)
    sys.stdout.write(f"{count} numbers were written to {logdir}; show them with: tensorboard --logdir {logdir}\n")


def write_events(output: Path, logdir: Path) -> int:
    """Replace the event files by new ones from the records of a job; return the number of points.

    Raises: MissingInputError: there are no records.  ConfigError: tensorboardX is not installed.  VolumeError.
    """
    scalars = list(list_scalars(read_records(output)))
    if not scalars:
        raise MissingInputError(
            f"{output} has no {FILE} with a batch, pass or test in it; give the output directory of a job, or train "
            "with --report"
        )
    try:
        library: Any = importlib.import_module("tensorboardX")
    except ModuleNotFoundError as error:
        raise ConfigError("event files need tensorboardX; install it with: pip install tensorboardX") from error
    earlier = _find_events(logdir)
    unique = f".{time.time_ns()}{SUFFIX}"  # the library's names differ only from second to second
    try:
        writers = {
            run: library.SummaryWriter(str(logdir / run), filename_suffix=unique)
            for run in {one.run for one in scalars}
        }
        for one in scalars:
            writers[one.run].add_scalar(one.tag, one.value, one.step, walltime=one.time)
        for writer in writers.values():
            writer.close()
        # last, so that an error above leaves the earlier files
        for old in earlier:
            old.unlink()
    except OSError as error:
        for new in _find_events(logdir) - earlier:
            remove_if_possible(new)
        raise VolumeError(
            f"the event files cannot be written to {logdir}: {error.strerror}; give another place with --logdir"
        ) from error
    return len(scalars)


def _find_events(logdir: Path) -> set[Path]:
    return {file for run in RUNS.values() for file in (logdir / run).glob(EVENT_FILES)}


def list_scalars(records: Iterable[Record]) -> Iterator[Scalar]:
    """Yield the points of all curves, without values that are not finite."""
    lengths: dict[int, int] = {}  # pass -> its number of batches, for the passes that have ended
    for record in records:
        kind = record["kind"]
        if kind not in RUNS:
            continue
        number = record["pass"]
        if kind == "pass":
            lengths[number] = record["batch"]
        step = record["batch"] + sum(length for before, length in lengths.items() if before < number)
        prefix = PREFIX.get(kind, "")
        evaluators = record.get(f"{prefix}evaluators")
        numbers = {"cost": record.get(f"{prefix}cost"), **(evaluators if isinstance(evaluators, dict) else {})}
        for tag, value in numbers.items():
            found = number_of(value)
            if found is not None:
                yield Scalar(RUNS[kind], tag, step, found, record["time"])


if __name__ == "__main__":
    sys.exit(main())
