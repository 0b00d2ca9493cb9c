"""`paddle status OUTPUT_DIR`: how the job is whose output that is, without asking a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from launcher.status import describe_job, tabulate_pods
from launcher.text import as_row
from runtime.errors import MissingInputError, NothingFoundError, PaddleError
from trainer.command_line import CommandParser

TELLING = ("job.json", "progress.json", "records.jsonl", "node_*")  # what says how a run is


def main(argv: Sequence[str] | None = None) -> int:
    """Print what the files of the output say, and return the exit status."""
    parser = CommandParser(prog="paddle status", description="Say how far a job is, from the files of its output.")
    parser.add_argument("output", type=Path, help="output/ of the job, or the --save_dir of a local run")
    try:
        output: Path = parser.parse_args(argv).output
        if not os.path.isdir(output):  # noqa: PTH112 - Path's fails where a directory above may not be looked into
            raise MissingInputError(f"there is no directory {output}: give the output/ of a job, or a --save_dir")
        if not any(any(output.glob(name)) for name in TELLING):
            hint = f"; did you mean {output / 'output'}?" if os.path.isdir(output / "output") else ""  # noqa: PTH112
            raise NothingFoundError(
                f"{output} has no {', '.join(TELLING)}: a pod writes them always, a run without launcher with "
                f"--report{hint}"
            )
    except PaddleError as error:
        sys.stderr.write(f"paddle status: {error}\n")
        return error.exit_code
    lines = [*describe_job(output), *tabulate_pods([], output)]
    sys.stdout.write("".join(f"{as_row(line)}\n" for line in lines))
    return 0
