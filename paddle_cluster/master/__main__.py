"""The command `paddle master` reads flags and environment variables, runs a master, and returns an exit status."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from paddle_base.registry.choice import name_job, open_registry
from paddle_base.registry.etcd_flags import set_variables
from paddle_base.runtime import glog
from paddle_base.runtime.command import run_program
from paddle_base.runtime.environment import JobEnvironment, read_environment
from paddle_base.runtime.errors import StoppedError, stopped_by
from paddle_base.runtime.health.metrics import Exposition
from paddle_base.runtime.network.interfaces import ANY_ADDRESS, find_address, list_nics, resolve_nic, resolve_nics
from paddle_base.runtime.network.pages import Pages, watch
from paddle_cluster.master import flags
from paddle_cluster.master.flags import MasterFlags
from paddle_cluster.master.metrics import MasterMetrics
from paddle_cluster.master.server import SILENCE, Master, MasterOptions
from paddle_cluster.master.store.choice import open_store
from paddle_cluster.master.tasks.state import TaskSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments after `paddle master`, and return its exit status."""
    return run_program(argv, flags.format_help, _run)


def _run(arguments: list[str]) -> int:
    line = flags.parse(arguments)
    job = read_environment(os.environ)
    name = name_job(line.text("job"), job.job)
    if line.text("log_json"):
        glog.to_json(line.text("log_json"), role="master", number=name, attempt=job.attempt)
    line.log_command("paddle master", arguments)
    if not job.secret:
        glog.warning(
            "there is no secret (PADDLE_SECRET, PADDLE_SECRET_FILE): every program that reaches the port may take part"
        )
    set_variables(line.text, os.environ)
    store = open_store(line.endpoints, line.store_dir, name, line.seconds("ttl"))
    master = Master(
        store,
        open_registry(line.endpoints, line.store_dir, name),
        _make_options(line, name, job),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: master.stop(stopped_by(number)))
    _watch(master, line, job)
    try:
        master.run()
    except StoppedError:
        glog.info(f"to continue job '{name}', start `paddle master` again with the same store, {store.place}")
        raise
    return 0


def _make_options(line: MasterFlags, name: str, job: JobEnvironment) -> MasterOptions:
    nic = line.text("nics").strip()
    host = resolve_nic(nic) if nic else ANY_ADDRESS
    lease = line.seconds("member_ttl")
    settings = TaskSettings(
        num_passes=line.number("num_passes"),
        failures_max=line.number("task_timeout_max"),
        time_least=line.seconds("task_timeout_min"),
        time_most=line.seconds("task_timeout_dur"),
        member_lease=lease * (1 - SILENCE),  # the rest has passed when the server notices the silence
        speculate=bool(line.values["speculate"]),
        ranks=line.number("deterministic_tasks"),
    )
    return MasterOptions(
        job=name,
        secret=job.secret,
        host=host,
        address=host if nic else find_address(list_nics()),
        port=line.number("port"),
        lease=lease,
        linger=line.seconds("linger"),
        files_per_task=line.number("chunk_per_task"),
        output=Path(line.text("output")) if line.text("output") else None,
        tasks=settings,
    )


def _watch(master: Master, line: MasterFlags, job: JobEnvironment) -> None:
    if not line.number("metrics_port"):
        return
    metrics = MasterMetrics(master, job)
    pages = Pages(metrics.why_stuck, lambda: master.why_not_ready, Exposition(metrics.read))
    watch(resolve_nics(line.text("nics")), line.number("metrics_port"), pages)


if __name__ == "__main__":
    sys.exit(main())
