"""The command `paddle pserver` runs a parameter server, or a probe that waits until all servers are ready."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING

from paddle_base.runtime import glog
from paddle_base.runtime.command import run_program
from paddle_base.runtime.environment import JobEnvironment, read_environment
from paddle_base.runtime.errors import stopped_by
from paddle_base.runtime.network.addresses import list_hosts, list_services
from pserver import flags

if TYPE_CHECKING:
    from pserver.server.event_loop import Server


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments after `paddle pserver`, and return its exit status."""
    return run_program(argv, flags.format_help, _run)


def _run(arguments: list[str]) -> int:
    line = flags.parse(arguments)
    job = read_environment(os.environ)
    ports = line.number("ports_num") + line.number("ports_num_for_sparse")
    if line.values["probe"]:
        # a launcher waits for the server and for the probe (bench/launch.py measures the wait); each of them therefore
        # imports only the modules that it needs
        from pserver.client import probe

        hosts = list_hosts(line.text("pservers"), line.number("port"), ports)
        services = list_services(hosts, 0, ports)
        return probe.run(services, job, float(line.values["timeout"]))
    line.log_command("paddle pserver", arguments)
    return _serve(line, job, ports)


def _serve(line: flags.PserverFlags, job: JobEnvironment, ports: int) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    # a server never multiplies matrices; without this variable, importing numpy would start one thread for each core
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # these modules are imported only here, so that --help and the probe start fast; a signal that arrives during the
    # import is already handled
    if line.is_task_job:
        from pserver.life.task_server import run_task_server

        return run_task_server(line, job)
    from paddle_base.runtime.network.interfaces import resolve_nics
    from pserver.life.options import make_options
    from pserver.server.event_loop import Server

    first = line.number("port")
    endpoints = [(host, first + number) for number in range(ports) for host in resolve_nics(line.text("nics"))]
    if line.text("log_json"):
        host, port = endpoints[0]
        glog.to_json(line.text("log_json"), role="pserver", number=f"{host}:{port}", attempt=job.attempt)
    server = Server(endpoints, make_options(line, job, job.job, job.attempt))
    with _watched(server, line, job):
        glog.info(f"number of parameterServer instances: {len(endpoints)}", at="ParameterServerController.cpp:83")
        server.bind()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: server.stop(stopped_by(number)))
        server.run()
        glog.info("all trainers have said goodbye")
    return 0


def _watched(server: Server, line: flags.PserverFlags, job: JobEnvironment) -> AbstractContextManager[None]:
    """Serve /healthz, /readyz and /metrics while the caller's `with` block runs, if --metrics_port is set."""
    if not line.number("metrics_port"):
        return nullcontext()
    # only a server with --metrics_port needs these imports
    from paddle_base.runtime.health.metrics import Exposition
    from paddle_base.runtime.network.interfaces import resolve_nics
    from paddle_base.runtime.network.pages import Pages, watched
    from pserver.server.server_metrics import ServerMetrics

    metrics = ServerMetrics(server, job.stuck_timeout)
    pages = Pages(metrics.why_stuck, metrics.why_not_ready, Exposition(metrics.read))
    return watched(resolve_nics(line.text("nics")), line.number("metrics_port"), pages)


def _stop(number: int, frame: FrameType | None) -> None:
    raise stopped_by(number)


if __name__ == "__main__":
    sys.exit(main())
