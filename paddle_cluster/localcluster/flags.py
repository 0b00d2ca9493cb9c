"""The flags of `paddle localcluster run`. No package of the extra `localcluster` is imported here."""

from __future__ import annotations

import argparse
import difflib
import re

from paddle_cluster.localcluster.errors import OptionError

DESCRIPTION = "`paddle localcluster run MANIFEST`: runs the Job of a manifest on this machine."
USAGE_EXAMPLES = """
examples:
  paddle localcluster run k8s/data-job.yaml --volume mfs=./jobpath
  paddle localcluster run k8s/job.yaml --volume mfs=./jobpath --follow '0@Pass=\\d+ Batch'
  paddle localcluster run k8s/job.yaml --volume mfs=./jobpath --kill '1@Pass=2' --backoff-seconds 10
  kubectl kustomize k8s | paddle localcluster run - --job paddle-cluster-job --volume mfs=./jobpath

POD is a completion index, or a pattern for the pod's name (*-0-*). WHEN is a number of seconds after the pod's start,
or a regular expression for a line of its output. For --delay, WHEN is a number of seconds after the pod's creation, or
POD:REGEX for a line in the output of another pod. A fault applies once per index, so it does not affect the replacement
pod; give the fault twice to affect the replacement too.

The exit status is 0 if the Job is Complete. After a failure, the status is the exit code of the pod that the Job's
message names (PodFailurePolicy). If the message names no pod, the status is the first exit code of a failed pod that is
one of this project's codes (64-78). If there is no such code, or after --timeout, the status is 75. The status is 143
after SIGTERM, and 130 after Ctrl-C. If the Job cannot start, the status is 64 (a flag or volume does not match the
manifest), 65 (the manifest contains no valid Job), 66 (a file is missing) or 78 (this machine's loopback cannot be
used).
"""


class _CommandParser(argparse.ArgumentParser):
    commands: tuple[argparse.ArgumentParser, ...] = ()  # the parsers of the subcommands

    def error(self, message: str) -> None:  # type: ignore[override]
        """Raise OptionError instead of exiting with argparse's status."""
        unknown = re.search(r"unrecognized arguments: (-[^\s=]+)", message)
        flags = [flag for one in self.commands for flag in re.findall(r"--[a-z][\w-]*", one.format_help())]
        close = difflib.get_close_matches(unknown[1], flags, 1) if unknown else []
        hint = f"; did you mean {close[0]}?" if close else ""
        raise OptionError(f"{message}{hint} (see --help)")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _CommandParser(prog="paddle localcluster", description=DESCRIPTION)
    run = parser.add_subparsers(dest="command", required=True, parser_class=_CommandParser).add_parser(
        "run",
        help="run the Job of a manifest",
        epilog=USAGE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.commands = (run,)
    add = run.add_argument
    add("manifest", help="the YAML file (- for standard input)")
    add("--job", metavar="NAME", help="the Job's name, if the manifest has several Jobs")
    add("--volume", action="append", default=[], metavar="NAME=DIR", help="directory for a volume or claim")
    add("--env", action="append", default=[], metavar="NAME=VALUE", help="variable for all pods, with paths in the pod")
    add(
        "--entrypoint",
        metavar="FILE",
        help="replaces the image's /root/start.sh (default: a start.sh near MANIFEST, or this project's)",
    )
    add(
        "--follow",
        action="append",
        default=[],
        metavar="[POD@]REGEX",
        help="print each line of a pod's output that matches (default: the passes and tests of trainer 0)",
    )
    add(
        "--logs",
        metavar="DIR",
        help="directory for the pods' outputs (default: a new directory, which is kept if the Job fails)",
    )
    add("--kill", action="append", default=[], metavar="POD@WHEN", help="send SIGKILL to all processes of a pod")
    add("--term", action="append", default=[], metavar="POD@WHEN", help="delete the pod as kubectl delete pod does")
    add("--delay", action="append", default=[], metavar="POD@WHEN", help="keep the pod Pending until WHEN")
    add(
        "--backoff-seconds",
        type=_seconds,
        default=0.5,
        metavar="S",
        help="seconds from a failure to the replacement, doubled each time (default 0.5; a real cluster: 10)",
    )
    add(
        "--grace",
        type=_seconds,
        default=10.0,
        metavar="S",
        help="seconds from SIGTERM to SIGKILL after Ctrl-C, SIGTERM or --timeout (default 10)",
    )
    add("--timeout", type=_seconds, metavar="S", help="end the Job as failed after this number of seconds")
    add("--quiet", action="store_true", help="do not print the table of pods, replaced paths and news of launchers")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value
