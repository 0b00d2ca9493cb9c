"""The command `paddle autoscaler` reads flags and environment variables, and runs an autoscaler."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence

from paddle_base.runtime import glog
from paddle_base.runtime.command import FlagValues, run_program
from paddle_base.runtime.errors import stopped_by
from paddle_base.runtime.health.metrics import Exposition
from paddle_base.runtime.kubernetes.client import ApiPlace, find_place
from paddle_base.runtime.network.interfaces import resolve_nics
from paddle_base.runtime.network.pages import Pages, watch
from paddle_cluster.master.autoscaler import flags
from paddle_cluster.master.autoscaler.amounts import parse_caps
from paddle_cluster.master.autoscaler.loop import Autoscaler, AutoscalerOptions
from paddle_cluster.master.autoscaler.metrics import AutoscalerMetrics
from paddle_cluster.master.autoscaler.mirror import EVERYWHERE


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments after `paddle autoscaler`, and return its exit status."""
    return run_program(argv, flags.format_help, _run)


def _run(arguments: list[str]) -> int:
    line = flags.parse(arguments)
    if line.text("log_json"):
        glog.to_json(line.text("log_json"), role="autoscaler", number=line.text("lease"), attempt="")
    line.log_command("paddle autoscaler", arguments)
    place = find_place(os.environ)
    autoscaler = Autoscaler(place, _make_options(line, place))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: autoscaler.stop(stopped_by(number)))
    _watch(autoscaler, line)
    autoscaler.run()
    return 0


def _make_options(line: FlagValues, place: ApiPlace) -> AutoscalerOptions:
    home = line.text("namespace") or place.namespace or "default"
    listed = tuple(dict.fromkeys(line.items("namespaces")))
    name = os.environ.get("POD_NAME") or socket.gethostname()
    return AutoscalerOptions(
        namespaces=(EVERYWHERE,) if line.values["all_namespaces"] else listed or (home,),
        caps=parse_caps(line.text("namespace_caps")),
        home=home,
        lease=line.text("lease"),
        identity=f"{name}_{secrets.token_hex(4)}",  # the random part gives a restarted container a new identity
        interval=line.seconds("interval"),
        resync=line.seconds("resync"),
        start_timeout=line.seconds("start_timeout"),
        dry_run=bool(line.values["dry_run"] or line.values["once"]),
        once=bool(line.values["once"]),
    )


def _watch(autoscaler: Autoscaler, line: FlagValues) -> None:
    if not line.number("metrics_port"):
        return
    metrics = AutoscalerMetrics(autoscaler)
    pages = Pages(metrics.why_stuck, lambda: autoscaler.why_not_ready, Exposition(metrics.read))
    watch(resolve_nics(line.text("nics")), line.number("metrics_port"), pages)


if __name__ == "__main__":
    sys.exit(main())
