"""The table of the flags of `paddle master`; `paddle_base.runtime.gflags` parses a command line by this table.

The flags of the master of 2017 keep their names. `-task-timeout-dur` and `-task_timeout_dur` are equivalent. A time is
a number of seconds, or a text in the notation of Go, such as 20m, 1h30m or 16s.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paddle_base.registry.etcd_flags import ETCD_FLAGS
from paddle_base.runtime.command import FlagValues, format_flags
from paddle_base.runtime.errors import UsageError
from paddle_base.runtime.gflags import Flag, Status, index_flags

_S, _Q = Status.SUPPORTED, Status.QUIET

FLAGS = index_flags(
    Flag("help", False, _S, "print this help and exit"),
    Flag("port", 8080, _S, "port for trainers; 0: any free port, which trainers find in the store", 0, 65535),
    Flag("nics", "", _S, "interface name, label or IPv4 address to listen on and to publish; empty: listen on all "
         "addresses, and publish the first that is not a loopback address"),
    Flag("etcd_endpoints", "", _S, "endpoints of an etcd 3.4 or newer that keeps the state: http://host:port,..."),
    Flag("endpoints", "", _S, "the 2017 name of --etcd_endpoints"),
    *ETCD_FLAGS,
    Flag("store_dir", "", _S, "local directory that keeps the state, instead of etcd"),
    Flag("job", "", _S, "name of the job in the store; empty: PADDLE_JOB_NAME, or 'job'"),
    Flag("ttl", "10s", _S, "time after which a silent leader loses the lead; the default was 60s in 2017"),
    Flag("member_ttl", "6s", _S, "time after which the tasks of a silent trainer are assigned again"),
    Flag("num_passes", 1, _S, "number of passes of the job", 1),
    Flag("chunk_per_task", 1, _S, "number of files of a task, or of chunks of RecordIO files; the default was 10 in "
         "2017", 1, 1 << 16),
    Flag("task_timeout_dur", "20m", _S, "maximum time limit of a task, and the limit before any task is finished"),
    Flag("task_timeout_min", "10s", _S, "minimum time limit of a task"),
    Flag("task_timeout_max", 3, _S, "maximum failures of a task in a pass; after one more the task is "
         "discarded", 0),
    Flag("speculate", False, _S, "in the last tenth of a pass, idle trainers get copies of the slowest tasks"),
    Flag("deterministic_tasks", 0, _S, "task i of a pass goes only to trainer i modulo this number, and a pass waits "
         "for all these trainers; 0: a task goes to the first trainer that asks", 0, 4096),
    Flag("linger", "30s", _S, "maximum time that the master waits at the end of the job for its trainers"),
    Flag("output", "", _S, "directory of tasks.json, the state of the job for `paddle status`; empty: none"),
    Flag("metrics_port", 0, _S, "port of /healthz, /readyz and /metrics; 0: none", 0, 65535),
    Flag("log_json", "", _S, "file to which log lines are also appended as JSON; empty = no such file"),
    Flag("comment", "", _S, "free text; scripts use it to find processes"),
    Flag("log_level", "info", _Q, "every line is written"),
)  # fmt: skip

# the misspelled names of 2017
_OLD_NAMES = {"task_timout_dur": "task_timeout_dur", "task_timout_max": "task_timeout_max"}


class MasterFlags(FlagValues):
    """The values of the flags of a master."""

    @property
    def endpoints(self) -> list[str]:
        """The endpoints of etcd, or [] if a directory is used."""
        return self.items("etcd_endpoints", "endpoints")

    @property
    def store_dir(self) -> Path | None:
        """The directory, or None if etcd is used."""
        return Path(self.text("store_dir")) if self.text("store_dir") else None


def parse(argv: Sequence[str]) -> MasterFlags:
    """Return the values of the flags.

    Raises: UsageError: a flag is malformed, out of bounds, or unknown; the message then names the closest known flag.
    """
    flags = MasterFlags.read([_plain(argument) for argument in argv], FLAGS)
    if bool(flags.endpoints) == bool(flags.store_dir):
        raise UsageError(
            "a master needs one store for its state: --etcd_endpoints=http://host:2379,... on a cluster, or "
            "--store_dir=DIRECTORY on one machine"
        )
    for name in ("ttl", "member_ttl", "task_timeout_dur", "task_timeout_min", "linger"):
        flags.seconds(name)
    if flags.number("deterministic_tasks") and flags.values["speculate"]:
        raise UsageError("--speculate and --deterministic_tasks exclude each other; leave one out")
    for name in ("ttl", "member_ttl"):
        if flags.seconds(name) < 1:
            raise UsageError(f"--{name} is '{flags.text(name)}'; it must be at least 1s")
    return flags


def format_help() -> str:
    """Return the manual of the command."""
    lines = [
        "usage: paddle master --store_dir=DIR | --etcd_endpoints=http://host:2379 [--flag=value ...]",
        "",
        "Environment: PADDLE_JOB_NAME (see --job), PADDLE_SECRET or PADDLE_SECRET_FILE (the secret that trainers",
        "have to prove; empty: anyone may take part).",
        "",
        *format_flags(FLAGS),
    ]
    return "\n".join(lines) + "\n"


def _plain(argument: str) -> str:
    """Return an argument with underscores in the name of the flag, in place of the hyphens of 2017."""
    if not argument.startswith("-"):
        return argument
    name, equals, text = argument.lstrip("-").partition("=")
    name = name.replace("-", "_")
    return f"--{_OLD_NAMES.get(name, name)}{equals}{text}"
