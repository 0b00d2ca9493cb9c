"""The command line of `paddle doctor`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from paddle.doctor.findings import choose_exit_status, render
from paddle.doctor.probing import DoctorCase, run_all
from paddle_base.runtime.errors import UsageError
from trainer.command_line import CommandParser, command

ROLES = ("launcher", "master", "driver", "autoscaler")
LIMIT_S = 10.0  # maximum seconds for all checks together; the checks run at the same time


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="paddle doctor",
        description="Check whether a job could run on this machine or in this pod; print each problem, its cost and "
        "what to do. The exit status is 0 if a job could run, else that of the first problem: 66, 69, 74, 77 or 78.",
    )
    parser.add_argument(
        "volume", nargs="?", default="", help="directory to check; default: in a pod, the job's directory on JOB_PATH"
    )
    parser.add_argument(
        "--role",
        action="append",
        choices=ROLES,
        default=[],
        help="program whose rights at the API server are checked; may be repeated; default: the program of this pod",
    )
    parser.add_argument(
        "--timeout", type=float, default=LIMIT_S, metavar="SECONDS", help=f"limit of all checks (default: {LIMIT_S:g})"
    )
    return parser


@command("paddle doctor")
def main(argv: Sequence[str]) -> int:
    """Print what the checks find, and return the exit status."""
    given = build_parser().parse_args(argv)
    if not 0 < given.timeout <= 600:
        raise UsageError(f"--timeout is {given.timeout:g}; it must be above 0 and at most 600 seconds")
    case = DoctorCase(dict(os.environ), given.volume, tuple(given.role))
    found = run_all(case, given.timeout)
    sys.stdout.write("".join(f"{case.secrets.redact(line)}\n" for line in render(found)))
    return choose_exit_status(found)


if __name__ == "__main__":
    sys.exit(main())
