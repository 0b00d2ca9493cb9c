"""`paddle status OUTPUT_DIR`: how the job is whose output that is, without asking a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import start_paddle
from pserver.errors import MissingInputError, PaddleError
from trainer.command_line import CommandParser


def main(argv: Sequence[str] | None = None) -> int:
    """Print what the files of the output say, and return the exit status."""
    parser = CommandParser(prog="paddle status", description="Say how far a job is, from the files of its output.")
    parser.add_argument("output", type=Path, help="output/ of the job, or the --save_dir of a local run")
    try:
        output: Path = parser.parse_args(argv).output
        if not os.path.isdir(output):  # noqa: PTH112 - Path's fails where a directory above may not be looked into
            raise MissingInputError(f"there is no directory {output}: give the output/ of a job, or a --save_dir")
    except PaddleError as error:
        sys.stderr.write(f"paddle status: {error}\n")
        return error.exit_code
    lines = [*start_paddle.describe_job(output), *start_paddle.tabulate_pods([], output), ""]
    sys.stdout.write(start_paddle.printable("\n".join(lines)))
    return 0
