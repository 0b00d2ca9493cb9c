"""The table of the flags of `paddle autoscaler`; `paddle_base.runtime.gflags` parses a command line by this table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from paddle_base.runtime.command import FlagValues, format_flags
from paddle_base.runtime.errors import UsageError
from paddle_base.runtime.gflags import Flag, Status, index_flags
from paddle_cluster.master.autoscaler.amounts import parse_caps

_S = Status.SUPPORTED

FLAGS = index_flags(
    Flag("help", False, _S, "print this help and exit"),
    Flag("namespace", "", _S, "namespace of the lease, and of the task jobs; empty: the namespace of this pod"),
    Flag("namespaces", "", _S, "namespaces of the task jobs, such as a,b; empty: that of --namespace"),
    Flag("all_namespaces", False, _S, "manage the task jobs of every namespace"),
    Flag("namespace_caps", "", _S, "most that all trainers of a namespace may request: 'a:cpu=8,memory=32Gi;*:cpu=4'"),
    Flag("dry_run", False, _S, "log the changes without making them; the lease is not needed"),
    Flag("once", False, _S, "log the changes of one decision without making them, and end"),
    Flag("interval", "1s", _S, "minimum time between two decisions; the default was 5s in 2017"),
    Flag("resync", "10m", _S, "time after which nodes, pods and Jobs are listed again, independent of the watches"),
    Flag("start_timeout", "60s", _S, "maximum time to wait for the API server at the start, and for missing rights"),
    Flag("lease", "paddle-autoscaler", _S, "name of the Lease that selects the leading autoscaler"),
    Flag("nics", "", _S, "interface name, label or IPv4 address that serves the health pages; empty: all addresses"),
    Flag("metrics_port", 0, _S, "port of /healthz, /readyz and /metrics; 0: none", 0, 65535),
    Flag("log_json", "", _S, "file to which log lines are also appended as JSON; empty = no such file"),
)  # fmt: skip

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


def parse(argv: Sequence[str]) -> FlagValues:
    """Return the values of the flags.

    Raises: UsageError: a flag is malformed, out of bounds, or unknown; the message then names the closest known flag.
    """
    flags = FlagValues.read(argv, FLAGS)
    for name, least in (("interval", 0.1), ("resync", 10), ("start_timeout", 1)):
        if flags.seconds(name) < least:
            raise UsageError(f"--{name} is '{flags.text(name)}'; it must be at least {least}s")
    for name in ("namespace", "lease"):
        if (name == "lease" or flags.text(name)) and not _NAME.fullmatch(flags.text(name)):
            raise UsageError(
                f"--{name} is '{flags.text(name)}'; it must be a Kubernetes name, made of a-z, 0-9, '-' and '.'"
            )
    for name in flags.items("namespaces"):
        if not _NAME.fullmatch(name):
            raise UsageError(f"--namespaces has '{name}'; each item must be the name of a namespace")
    if flags.items("namespaces") and flags.values["all_namespaces"]:
        raise UsageError("--namespaces and --all_namespaces contradict each other; give one of them")
    try:
        parse_caps(flags.text("namespace_caps"))
    except ValueError as problem:
        raise UsageError(f"--namespace_caps: {problem}; write for example 'a:cpu=8,memory=32Gi;b:cpu=4'") from problem
    return flags


def format_help() -> str:
    """Return the manual of the command."""
    lines = [
        "usage: paddle autoscaler [--flag=value ...]",
        "",
        "Gives each task job of a Kubernetes cluster its fair share of trainers. A Job is elastic if it has the",
        "annotations paddle/trainers-min and paddle/trainers-max. The autoscaler runs as a pod (kubectl apply -k",
        "k8s/tasks/autoscaler).",
        "Environment: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT_HTTPS, which every pod has;",
        "SERVICE_ACCOUNT_DIR, if token, ca.crt and namespace are not in the usual directory; POD_NAME, for the lease.",
        "",
        *format_flags(FLAGS),
    ]
    return "\n".join(lines) + "\n"
