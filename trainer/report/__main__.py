"""`paddle report OUTPUT_DIR [OTHER] [-o FILE]` writes the report of one job, or the comparison of two jobs."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from paddle_base.remote.addresses import Address
from paddle_base.remote.places import read_place
from paddle_base.runtime.errors import MissingInputError, NothingFoundError, VolumeError, reading_error
from trainer.command_line import CommandParser, command
from trainer.report.facts import Reader
from trainer.report.remote import fetch_output
from trainer.report.writing import COMPARISON, NAME, write_comparison, write_report


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(prog="paddle report", description="Write the report of a job as one HTML page.")
    parser.add_argument(
        "output",
        type=read_place,
        help="directory output/ of the job, or --save_dir of a local run, or its copy in a bucket (s3://BUCKET/KEY)",
    )
    parser.add_argument(
        "other", type=read_place, nargs="?", help="output of another run; the page then compares both runs"
    )
    parser.add_argument(
        "-o",
        "--output-file",
        type=Path,
        metavar="FILE",
        help="file to write; default: report.html in the output, or for two runs comparison.html in the first output; "
        "for an output in a bucket, in the working directory",
    )
    return parser


@command("paddle report")
def main(argv: Sequence[str]) -> None:
    """Write the report."""
    arguments = build_parser().parse_args(argv)
    places = [one for one in (arguments.output, arguments.other) if one is not None]
    with tempfile.TemporaryDirectory(prefix="paddle-report-") as scratch:
        outputs = [
            fetch_output(one, Path(scratch, str(number))) if isinstance(one, Address) else one
            for number, one in enumerate(places)
        ]
        target = arguments.output_file
        if target is None and isinstance(places[0], Address):
            target = Path(COMPARISON if len(places) > 1 else NAME)
        sys.stdout.write(f"{report(outputs, target)}\n")


def report(outputs: Sequence[Path], target: Path | None) -> Path:
    """Write the report of one output, or the comparison of two outputs. Return the path of the page.

    Raises: MissingInputError: an output is not a directory, or cannot be read. NothingFoundError: an output has no
    records of a run. VolumeError: the page cannot be written.
    """
    for output in outputs:
        if not os.path.isdir(output):  # noqa: PTH112 - Path.is_dir raises an error in an unreadable directory
            raise MissingInputError(f"there is no directory {output}: give the output/ of a job, or a --save_dir")
        try:
            is_known = Reader(output).read().is_known
        except OSError as error:
            raise reading_error(MissingInputError, f"{error.filename or output} cannot be read", error) from error
        if not is_known:
            raise NothingFoundError(
                f"there are no records in {output}, so there is nothing to report; a job in pods always keeps records, "
                "and `paddle train` keeps them with --report"
            )
    try:
        return write_comparison(outputs, target) if len(outputs) > 1 else write_report(outputs[0], target)
    except OSError as error:
        place = error.filename or target or outputs[0]
        raise VolumeError(
            f"the report cannot be written to {place}: {error.strerror}; name another file with -o"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
