"""`paddle report OUTPUT_DIR [-o FILE]`: write the report of a job from the files of its output."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pserver.errors import MissingInputError, PaddleError, VolumeError
from trainer.command_line import CommandParser
from trainer.report.writing import write_report


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report and return the exit status."""
    parser = CommandParser(prog="paddle report", description="Write the report of a job: one page that needs no other.")
    parser.add_argument("output", type=Path, help="output/ of the job, or the --save_dir of a local run")
    parser.add_argument("-o", "--output-file", type=Path, metavar="FILE", help="by default report.html in the output")
    try:
        arguments = parser.parse_args(argv)
        sys.stdout.write(f"{report(arguments.output, arguments.output_file)}\n")
    except PaddleError as error:
        sys.stderr.write(f"paddle report: {error}\n")
        return error.exit_code
    return 0


def report(output: Path, target: Path | None) -> Path:
    """Write the report and return its path.

    Raises: MissingInputError: there is no such directory.  VolumeError: the report cannot be written.
    """
    if not os.path.isdir(output):  # noqa: PTH112 - Path's fails where a directory above may not be looked into
        raise MissingInputError(f"there is no directory {output}: give the output/ of a job, or a --save_dir")
    try:
        return write_report(output, target)
    except OSError as error:
        place = error.filename or target or output
        raise VolumeError(
            f"the report cannot be written to {place}: {error.strerror}; -o writes it elsewhere"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
