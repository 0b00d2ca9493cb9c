"""`paddle status OUTPUT_DIR` prints the state of the job with this output directory, without asking a cluster.

The state of a job with a master comes from the master's file tasks.json. The state of an all-reduce job comes from the
driver's file membership.json. The state of any other job comes from the files of its launchers and trainers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from paddle_base.runtime.directory_lock import is_abandoned
from paddle_base.runtime.errors import MissingInputError, NothingFoundError, reading_error
from paddle_base.runtime.terminal import format_lines
from paddle_cluster.elastic import membership_file
from paddle_cluster.launcher.status import describe_job, tabulate_pods
from paddle_cluster.launcher.text import JsonObject, as_row, number_of
from paddle_cluster.launcher.volume import read_json
from paddle_cluster.master import tasks_file
from paddle_cluster.master.tasks.records import Phase
from trainer.command_line import CommandParser, command
from trainer.storage.save_directory import LOCK

TRAINING = ("job.json", "progress.json", "records.jsonl", "node_*")  # files that trainers and launchers write
TELLING = (tasks_file.NAME, membership_file.NAME, *TRAINING)
UNWRITTEN_S = 6.0  # age in seconds from which progress.json of a local run is old; a trainer writes it every 5 s


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="paddle status", description="Print the progress of a job, from the files of its output."
    )
    parser.add_argument(
        "output",
        type=Path,
        help="the directory output/ of a job, the --save_dir of a local run, the --output of a master, or the "
        "--output-filename of an all-reduce job",
    )
    return parser


@command("paddle status")
def main(argv: Sequence[str]) -> None:
    """Print the state of a job."""
    output: Path = build_parser().parse_args(argv).output
    if not os.path.isdir(output):  # noqa: PTH112 - Path's fails where a directory above may not be looked into
        what = "is not a directory" if os.path.exists(output) else "does not exist"  # noqa: PTH110
        raise MissingInputError(f"{output} {what}: give the output/ of a job, or a --save_dir")
    check_access(output)
    if not any(any(output.glob(name)) for name in TELLING):
        hint = f"; did you mean {output / 'output'}?" if os.path.isdir(output / "output") else ""  # noqa: PTH112
        raise NothingFoundError(
            f"{output} has no {', '.join(TELLING)}: a pod always writes such files, and a run without launcher "
            f"writes them with --report{hint}"
        )
    shown = [as_row(line) for line in describe_output(output)]
    sys.stdout.write(format_lines(shown, find_fraction(output), sys.stdout, os.environ))


def check_access(output: Path) -> None:
    """Check that this user may list a directory, and look at its files.

    Raises: MissingInputError, VolumeError: the directory cannot be read.
    """
    try:
        any(output.iterdir())
        os.stat(f"{output}/.")  # noqa: PTH116 - a Path drops the dot, which checks that files can be looked at
    except OSError as exc:
        raise reading_error(MissingInputError, f"{output} cannot be read", exc) from exc


def find_fraction(output: Path) -> float | None:
    """Return the fraction of the job that is done, or None if it is not known."""
    tasks = read_json(output / tasks_file.NAME)
    if not tasks:
        return number_of(read_json(output / "progress.json").get("job_fraction"))
    counts = [number_of(tasks.get(name)) or 0.0 for name in ("todo", "pending", "done", "failed")]
    if tasks.get("phase") == Phase.DONE:
        return 1.0
    number, passes = number_of(tasks.get("pass")), number_of(tasks.get("num_passes"))
    if number is None or not passes:
        return None
    return (number + (counts[2] + counts[3]) / max(sum(counts), 1.0)) / passes


def describe_output(output: Path) -> list[str]:
    """Return the lines about a job of any kind.

    Raises: DamagedError, MissingInputError: a file with the job's state cannot be read.
    """
    if (output / tasks_file.NAME).exists():
        return describe_record(output / tasks_file.NAME, tasks_file.read_settled, tasks_file.describe)
    if not (output / membership_file.NAME).exists():
        return describe_alone(output)
    lines = describe_record(output / membership_file.NAME, membership_file.read_settled, membership_file.describe)
    if any(any(output.glob(name)) for name in TRAINING):  # `output` is also --save_dir of the trainers
        lines += describe_alone(output)
    return lines


def describe_record(
    path: Path,
    read: Callable[[Path], tuple[JsonObject, float, bool]],
    describe: Callable[..., Iterator[str]],
) -> list[str]:
    """Return the lines about a job whose state is in the file of a driver or a master.

    Args: read: function that returns the content of the file, its age in seconds, and whether a newer file should
        exist by now.  describe: function that returns the lines about this content.
    Raises: DamagedError, MissingInputError: the file cannot be read.
    """
    try:
        record, age, is_late = read(path)
    except OSError as exc:
        raise reading_error(MissingInputError, f"{path} cannot be read", exc) from exc
    return list(describe(record, age, is_late=is_late))


def describe_alone(output: Path) -> list[str]:
    """Return the lines about a job from the files of its launchers and trainers."""
    is_killed = seems_killed(output)
    lines = [*describe_job(output, is_killed=is_killed), *tabulate_pods([], output)]
    if is_killed:
        lines.insert(0, "the run seems to have been killed: no process holds its lock, and it has not recorded its end")
    return lines


def seems_killed(output: Path) -> bool:
    """Return whether a run without launcher no longer writes its progress, and no process locks its save directory.

    A time in the future shows that a clock is wrong; then only the lock decides.
    """
    progress = read_json(output / "progress.json")
    said = number_of(progress.get("time"))
    is_silent = said is not None and abs(time.time() - said) >= UNWRITTEN_S
    return progress.get("status") == "training" and is_silent and is_abandoned(output / LOCK)
