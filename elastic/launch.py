"""`paddle elastic run`: starts the workers of a job on this machine, and starts others as hosts come and go.

    paddle elastic run -np 2 --min-np 1 --max-np 4 --host-discovery-script ./discover.sh python train.py

Flags and the names of their attributes are those of Horovod 0.28's `horovodrun`.
"""

from __future__ import annotations

import argparse
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
from elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript, check_cooldown_range
from elastic.driver import ElasticDriver, FailurePolicy
from elastic.hosts import SlotInfo, parse_host_files, parse_hosts_and_slots
from elastic.http_server import RendezvousServer
from elastic.launching.durable import DriverLock, run_durable
from elastic.launching.judging import JobFailedError, judge
from elastic.launching.output import OutputWriter
from elastic.launching.processes import check_local, make_environment, run_process
from elastic.membership.journal import DriverJournal, DriverRecord
from elastic.membership.results import Results, WorkerEvents, WorkerExit
from elastic.rendezvous import create_rendezvous_handler
from elastic.settings import ElasticSettings
from registry.choice import open_registry
from runtime import glog
from runtime.environment import read_environment
from runtime.errors import HELD_PORT, PaddleError, PortInUseError, UsageError, stopped_by

LOOPBACK = "127.0.0.1"
LEASE_S = 5.0  # after which another driver may lead a job whose driver is silent


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; 'paddle elastic run --help' lists all flags")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(prog="paddle elastic run", allow_abbrev=False, description=(__doc__ or "").split("\n\n")[0])
    add = parser.add_argument
    add("-np", "--num-proc", dest="num_proc", type=int, help="workers that the job begins with, at least")
    add("--min-np", "--min-num-proc", dest="min_num_proc", type=int, help="workers that it goes on with (-np)")
    add("--max-np", "--max-num-proc", dest="max_num_proc", type=int, help="workers that it has at most (no bound)")
    add("--host-discovery-script", help="prints a host a line, name or name:slots, as often as it is asked")
    add("-H", "--hosts", help="hosts that do not change: name:slots,name:slots")
    add("-hostfile", "--hostfile", help="the same as a file with lines name slots=number")
    add("--slots-per-host", dest="slots", type=int, help="slots of a host for which the script prints none")
    add("--elastic-timeout", type=float, help="seconds to wait for slots (600, or HOROVOD_ELASTIC_TIMEOUT)")
    add("--reset-limit", type=int, help="how often workers may go on after a change (no bound)")
    add(
        "--blacklist-cooldown-range",
        dest="cooldown_range",
        nargs=2,
        type=float,
        metavar=("MIN", "MAX"),
        help="seconds after which a blacklisted host may come back (never)",
    )
    add("--failures-per-host", type=int, default=2, help="of its workers, after which a host is blacklisted (2)")
    add("--heartbeat-timeout", type=float, default=30.0, help="seconds after which a silent worker is ended (30)")
    add("--store-dir", default="", help="directory by which a driver that is started again goes on with the workers")
    add("--driver-grace", type=float, default=60.0, help="seconds for which workers of --store-dir wait for it (60)")
    add("--start-timeout", type=int, default=30, help="taken and not used: no interfaces are probed")
    add("--gloo-timeout-seconds", type=float, default=30.0, help="for workers to connect to each other (30)")
    add("--network-interface", "--network-interfaces", dest="nics", default="", help="of the workers' connections")
    add("--output-filename", default="", help="directory for the output of each rank: rank.0/stdout, rank.0/stderr")
    add("--prefix-output-with-timestamp", action="store_true", help="begins each line of output with the time")
    add("--log-level", default="INFO", help="taken and not used: the driver logs what it does")
    add("--verbose", action="store_true", help="logs more")
    add("command", nargs=argparse.REMAINDER, help="of a worker, with its arguments")
    return parser


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
    ):
        if value is not None and not lowest <= value < math.inf:
            raise UsageError(f"{name} is {value}; it has to be at least {lowest}")
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
    )


def is_elastic(args: argparse.Namespace) -> bool:
    """Return whether workers may come and go."""
    return args.host_discovery_script is not None or args.min_num_proc is not None or args.max_num_proc is not None


def make_discovery(args: argparse.Namespace) -> HostDiscovery:
    """Return what finds the hosts that a command line names.

    Raises: UsageError: it names them twice.  ValueError, OSError: hosts or their file are wrong.
    """
    if sum(one is not None for one in (args.host_discovery_script, args.hosts, args.hostfile)) > 1:
        raise UsageError("--host-discovery-script, --hosts and --hostfile exclude each other")
    if args.host_discovery_script is not None:
        return HostDiscoveryScript(args.host_discovery_script, args.slots)
    hosts = args.hosts if args.hostfile is None else parse_host_files(args.hostfile)
    return FixedHosts(parse_hosts_and_slots(hosts)[1] if hosts else {"localhost": args.max_num_proc or args.num_proc})


class LocalWorkers:
    """Starts the workers of a job as processes of this machine.

    Raises: UsageError: a job that outlives its driver has no secret.  VolumeError, DirectoryInUseError: its directory.
    """

    def __init__(self, settings: ElasticSettings, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._settings, self._command, self._environ = settings, command, environ
        self.secret = read_environment(environ).secret
        self._store = Path(settings.store_dir).resolve() if settings.store_dir else None
        self._journal, self._record = self._open_journal()
        self.secret = self.secret or secrets.token_hex(32)
        directory = Path(settings.output_filename) if settings.output_filename else None
        width = len(str(max(settings.num_proc, settings.max_num_proc or 0) - 1))
        self._writer = OutputWriter(
            directory, width, settings.prefix_output_with_timestamp, is_continued=self._record is not None
        )
        rendezvous = RendezvousServer(settings.verbose, self.secret)
        self.driver = ElasticDriver(
            rendezvous,
            settings.discovery,
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
        port = 0 if self._record is None else self._record.port
        try:
            self.driver.port = rendezvous.start(create_rendezvous_handler(self.driver), port, LOOPBACK)
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
                self._lock.close()
                self._journal.close()

    def _run_worker(self, slot: SlotInfo, events: WorkerEvents) -> WorkerExit:
        try:
            check_local(slot.hostname)
        except PaddleError as exc:
            glog.error(str(exc))
            raise
        environ = make_environment(self._environ, slot, events.incarnation, events.generation, self._list_variables())
        if self._store is None:
            end = run_process(self._command, environ, slot.rank, self._writer, events)
        else:
            place, grace = self._store / "workers" / events.incarnation, self._settings.driver_grace
            end = run_durable(self._command, environ, place, slot.rank, self._writer, events, grace)
        if not self._settings.is_elastic:
            end = end._replace(needs_done=False)
            if end.exit_code and not end.was_stopped:
                threading.Thread(target=self.driver.stop, daemon=True).start()
        return end

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
def stopping_on_signals(workers: LocalWorkers) -> Iterator[list[int]]:
    """End the workers of a job when SIGINT or SIGTERM comes; yield which have come."""
    came: list[int] = []

    def stop(number: int, _frame: Any) -> None:
        came.append(number)
        if len(came) == 1:
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
    with stopping_on_signals(workers) as came:
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
        if list(argv[:1]) != ["run"]:
            if list(argv[:1]) in (["--help"], ["-h"], []):
                make_parser().print_help()
                return 0
            raise UsageError(f"there is no command 'paddle elastic {glog.clean(argv[0], 40)}'; there is 'run'")
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
