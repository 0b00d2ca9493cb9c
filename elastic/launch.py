"""`paddle elastic run`: starts the workers of a job on this machine, and starts others as hosts come and go.

    paddle elastic run -np 2 --min-np 1 --max-np 4 --host-discovery-script ./discover.sh python train.py

Flags and the names of their attributes are those of Horovod 0.28's `horovodrun`.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import secrets
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from elastic import constants as names
from elastic.agent.client import AgentClient
from elastic.agent.hosts import AgentHosts, AgentPolicy, find_way
from elastic.agent.remote import RemoteWorker, describe_launch
from elastic.agent.service import run_agent
from elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript, check_cooldown_range
from elastic.driver import ElasticDriver, FailurePolicy
from elastic.hosts import SlotInfo, parse_host_files, parse_hosts_and_slots
from elastic.http_server import RendezvousServer
from elastic.launching.durable import DriverLock, run_durable
from elastic.launching.flags import make_parser
from elastic.launching.judging import JobFailedError, judge
from elastic.launching.output import OutputWriter
from elastic.launching.processes import make_environment, run_process
from elastic.membership.journal import DriverJournal, DriverRecord
from elastic.membership.results import Results, WorkerEvents, WorkerExit
from elastic.rendezvous import create_rendezvous_handler
from elastic.settings import ElasticSettings
from registry.choice import open_registry
from runtime import glog
from runtime.environment import read_environment
from runtime.errors import HELD_PORT, PaddleError, PortInUseError, StoppedError, UsageError, stopped_by
from runtime.interfaces import ANY_ADDRESS

LOOPBACK = "127.0.0.1"
LEASE_S = 5.0  # after which another driver may lead a job whose driver is silent


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what a command line says; by default the one of this process.

    Raises: UsageError: it is wrong.
    """
    args = make_parser().parse_args(argv)
    if args.command[:1] == ["--"]:
        del args.command[0]
    return args


def make_settings(args: argparse.Namespace) -> ElasticSettings:
    """Return the job that a command line describes.

    Raises: UsageError: a value is wrong, or two contradict each other.
    """
    if args.num_proc is None:
        raise UsageError("-np is missing: how many workers does the job begin with?")
    least = args.num_proc if args.min_num_proc is None else args.min_num_proc
    most = math.inf if args.max_num_proc is None else args.max_num_proc
    if not 1 <= least <= args.num_proc <= most:
        raise UsageError(
            f"1 <= --min-np <= -np <= --max-np does not hold: {least}, {args.num_proc}, {args.max_num_proc}"
        )
    for name, value, lowest in (
        ("--slots-per-host", args.slots, 1),
        ("--elastic-timeout", args.elastic_timeout, 0),
        ("--reset-limit", args.reset_limit, 0),
        ("--failures-per-host", args.failures_per_host, 1),
        ("--heartbeat-timeout", args.heartbeat_timeout, 0),
        ("--gloo-timeout-seconds", args.gloo_timeout_seconds, 0.1),
        ("--driver-grace", args.driver_grace, 1),
        ("--agent-timeout", args.agent_timeout, 0.1),
    ):
        if value is not None and not lowest <= value < math.inf:
            raise UsageError(f"{name} is {value}; it has to be at least {lowest}")
    if not 0 <= args.port <= 65535 or not 1 <= args.agent_port <= 65535:
        raise UsageError(f"--port is {args.port} and --agent-port is {args.agent_port}; a port is at most 65535")
    if args.hand_over and not args.store_dir:
        raise UsageError("--hand-over needs --store-dir, by which the next driver finds the workers")
    try:
        cooldown_range = check_cooldown_range(args.cooldown_range)
        discovery = make_discovery(args)
    except (ValueError, OSError) as exc:
        raise UsageError(str(exc)) from exc
    return ElasticSettings(
        discovery,
        args.num_proc,
        least,
        args.max_num_proc,
        args.elastic_timeout,
        args.reset_limit,
        cooldown_range,
        is_elastic(args),
        args.failures_per_host,
        args.heartbeat_timeout,
        args.gloo_timeout_seconds,
        args.nics,
        args.output_filename,
        args.prefix_output_with_timestamp,
        int(args.verbose),
        args.store_dir,
        args.driver_grace,
        args.hand_over,
        args.agent_port,
        args.agent_timeout,
        args.has_agents or args.discovery is not None,
        args.address,
        args.port,
    )


def is_elastic(args: argparse.Namespace) -> bool:
    """Return whether workers may come and go."""
    given = (args.host_discovery_script, args.min_num_proc, args.max_num_proc, args.discovery)
    return any(one is not None for one in given)


def make_discovery(args: argparse.Namespace) -> HostDiscovery:
    """Return what finds the hosts that a command line names.

    Raises: UsageError: it names them twice.  ValueError, OSError: hosts or their file are wrong.
    """
    if sum(one is not None for one in (args.host_discovery_script, args.hosts, args.hostfile, args.discovery)) > 1:
        raise UsageError("--host-discovery-script, --hosts, --hostfile and --discovery exclude each other")
    if args.discovery is not None:
        kubernetes = importlib.import_module("elastic.membership.kubernetes")  # and requests, which no other job needs
        found: HostDiscovery = kubernetes.PodDiscovery(os.environ, args.namespace, args.pod_selector, args.slots or 1)
        return found
    if args.host_discovery_script is not None:
        return HostDiscoveryScript(args.host_discovery_script, args.slots)
    hosts = args.hosts if args.hostfile is None else parse_host_files(args.hostfile)
    return FixedHosts(parse_hosts_and_slots(hosts)[1] if hosts else {"localhost": args.max_num_proc or args.num_proc})


class LocalWorkers:
    """Starts the workers of a job as processes of this machine, and by agents on others.

    Raises: UsageError: a job that outlives its driver has no secret.  VolumeError, DirectoryInUseError: its directory.
    """

    def __init__(self, settings: ElasticSettings, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._settings, self._command, self._environ = settings, command, environ
        self.secret = read_environment(environ).secret
        self._store = Path(settings.store_dir).resolve() if settings.store_dir else None
        self._lock: DriverLock | None = None
        self._journal, self._record = self._open_journal()
        policy = AgentPolicy(settings.agent_port, settings.agent_timeout, settings.has_agents)
        if policy.is_everywhere and not self.secret:
            raise UsageError("agents need PADDLE_SECRET, or a PADDLE_SECRET_FILE, the same as the driver")
        settle_s = 0.0 if self._record is None else settings.agent_timeout
        self._hosts = AgentHosts(settings.discovery, self.secret, policy, settle_s)
        listening = ANY_ADDRESS if self.secret else LOOPBACK  # without a secret there are no agents
        self.secret = self.secret or secrets.token_hex(32)
        directory = Path(settings.output_filename) if settings.output_filename else None
        width = len(str(max(settings.num_proc, settings.max_num_proc or 0) - 1))
        self._writer = OutputWriter(
            directory, width, settings.prefix_output_with_timestamp, is_continued=self._record is not None
        )
        rendezvous = RendezvousServer(settings.verbose, self.secret)
        self.driver = ElasticDriver(
            rendezvous,
            self._hosts,
            settings.min_num_proc,
            settings.max_num_proc,
            settings.elastic_timeout,
            settings.reset_limit if settings.is_elastic else 0,
            settings.cooldown_range,
            settings.verbose,
            FailurePolicy(settings.failures_per_host, settings.heartbeat_timeout),
            self.secret,
            self._journal,
        )
        self.driver.is_open = self._record is None
        port = settings.port if self._record is None else self._record.port
        try:
            self.driver.port = rendezvous.start(create_rendezvous_handler(self.driver), port, listening)
        except OSError as exc:
            raise PortInUseError(f"port {port}, which the workers call: {HELD_PORT} ({exc.strerror})") from exc

    def _open_journal(self) -> tuple[DriverJournal | None, DriverRecord | None]:
        """Lead the job; return its journal, and what an earlier driver has left."""
        if self._store is None:
            return None, None
        if not self.secret:
            raise UsageError("--store-dir needs PADDLE_SECRET, which a driver that is started again has, too")
        journal = DriverJournal(open_registry([], self._store, "elastic", LEASE_S), LEASE_S, _end_at_once)
        record = journal.lead()
        if not self._settings.has_agents:  # agents see by themselves whether a driver lives
            self._lock = DriverLock(self._store / "workers")
        return journal, record

    def run(self) -> Results:
        """Run the job to its end.

        Raises: TimeoutException, RuntimeError: it could not begin.
        """
        try:
            if self._record is None:
                self.driver.start(self._settings.num_proc, self._run_worker)
            else:
                self.driver.adopt(self._record, self._run_worker)
            return self.driver.get_results()
        finally:
            self.driver.stop()
            self.driver.get_results()
            if self._journal is not None and self._store is not None:
                self._journal.save(None)
                shutil.rmtree(self._store / "workers", ignore_errors=True)
                if self._lock is not None:
                    self._lock.close()
                self._journal.close()

    def hand_over(self) -> NoReturn:
        """End this driver, and let the next one have the workers at once."""
        self.driver.freeze()
        if self._journal is not None:
            self._journal.close()
        glog.info("this driver ends by SIGTERM, and leaves the workers to the next one")
        os._exit(StoppedError.exit_code)

    def _run_worker(self, slot: SlotInfo, events: WorkerEvents) -> WorkerExit:
        client = self._hosts.find(slot.hostname, self._settings.agent_timeout)
        end = self._run_locally(slot, events) if client is None else self._run_remotely(client, slot, events)
        if not self._settings.is_elastic:
            end = end._replace(needs_done=False)
            if end.exit_code and not end.was_stopped:
                threading.Thread(target=self.driver.stop, daemon=True).start()
        return end

    def _run_locally(self, slot: SlotInfo, events: WorkerEvents) -> WorkerExit:
        environ = make_environment(self._environ, slot, events.incarnation, events.generation, self._list_variables())
        if self._store is None:
            return run_process(self._command, environ, slot.rank, self._writer, events)
        place, grace = self._store / "workers" / events.incarnation, self._settings.driver_grace
        return run_durable(self._command, environ, place, slot.rank, self._writer, events, grace)

    def _run_remotely(self, client: AgentClient, slot: SlotInfo, events: WorkerEvents) -> WorkerExit:
        variables = {
            **self._list_variables(),
            names.HOROVOD_GLOO_RENDEZVOUS_ADDR: self._settings.address or find_way(client.address),
            names.PADDLE_ELASTIC_ADDRESS: client.address,
        }
        launch = describe_launch(self._command, slot, events, variables)
        worker = RemoteWorker(client, events.host_uid, events.incarnation, launch, self._settings.agent_timeout)
        return worker.run(self._writer, events)

    def _list_variables(self) -> dict[str, str]:
        """Return what all workers are told."""
        return {
            names.HOROVOD_GLOO_RENDEZVOUS_ADDR: LOOPBACK,
            names.HOROVOD_GLOO_RENDEZVOUS_PORT: str(self.driver.port),
            names.HOROVOD_GLOO_TIMEOUT_SECONDS: f"{self._settings.gloo_timeout_seconds:g}",
            "PADDLE_SECRET": self.secret,
            **({names.HOROVOD_GLOO_IFACE: self._settings.nics} if self._settings.nics else {}),
            **({names.HOROVOD_ELASTIC: "1"} if self._settings.is_elastic else {}),
        }


def _end_at_once(error: PaddleError) -> None:
    """End this driver, and none of its workers: another driver has them, or will have."""
    glog.fatal(str(error))
    os._exit(error.exit_code)


@contextmanager
def stopping_on_signals(workers: LocalWorkers, hands_over: bool = False) -> Iterator[list[int]]:
    """End the workers of a job when SIGINT or SIGTERM comes; yield which have come.

    Args: hands_over: SIGTERM ends the driver alone.
    """
    came: list[int] = []

    def stop(number: int, _frame: Any) -> None:
        came.append(number)
        if hands_over and number == signal.SIGTERM:
            threading.Thread(target=workers.hand_over, daemon=True).start()
        elif len(came) == 1:
            threading.Thread(target=workers.driver.stop, daemon=True).start()

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_job(settings: ElasticSettings, command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Run a job to its end.

    Raises: JobFailedError: see `judge`.  TimeoutException, RuntimeError: it could not begin.  StoppedError: a signal.
    """
    workers = LocalWorkers(settings, command, environ)
    with stopping_on_signals(workers, settings.hands_over) as came:
        try:
            results = workers.run()
        except RuntimeError:
            if came:
                raise stopped_by(came[0]) from None
            raise
    if came:
        raise stopped_by(came[0])
    judge(results)


def _run_elastic(args: argparse.Namespace) -> None:
    """Run the job of a command line; see `run_job`."""
    run_job(make_settings(args), args.command, os.environ)


def run(
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[float] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
    host_discovery_script: str | None = None,
) -> list[Any]:
    """Run a function on the workers of a job, and return what it returns by rank; as `horovod.run`.

    Args: func: of a module; it travels by its name.  args, kwargs: data and arrays.  disable_cache, use_gloo: without
        effect.  np, min_np, max_np: older names of the number of workers.
    Raises: UsageError: an argument is wrong.  JobFailedError: a worker has failed.  TimeoutException, RuntimeError: the
        job could not begin.
    """
    options = {**locals(), "verbose": bool(verbose)}
    from elastic.launching import function

    settings = make_settings(parse_args(function.make_arguments(options)))
    return function.run_function(
        func, tuple(args), kwargs, executable, lambda command, environ: run_job(settings, command, environ)
    )


def main(argv: Sequence[str]) -> int:
    """Run `paddle elastic` with these arguments; return the exit status."""
    try:
        if list(argv[:1]) == ["agent"]:
            run_agent(argv[1:])
            return 0
        if list(argv[:1]) != ["run"]:
            if list(argv[:1]) in (["--help"], ["-h"], []):
                make_parser().print_help()
                return 0
            raise UsageError(
                f"there is no command 'paddle elastic {glog.clean(argv[0], 40)}'; there are 'run' and 'agent'"
            )
        args = parse_args(argv[1:])
        if not args.command:
            raise UsageError("the command of a worker is missing, e.g. python train.py")
        _run_elastic(args)
    except (PaddleError, JobFailedError) as exc:
        glog.fatal(str(exc))
        return exc.exit_code
    except RuntimeError as exc:
        glog.fatal(str(exc))
        return 69
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
