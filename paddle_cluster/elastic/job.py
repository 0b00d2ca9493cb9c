"""Runs a job: the driver, workers on this machine, and workers that agents start on other machines."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from paddle_base.registry.choice import open_registry
from paddle_base.runtime import glog
from paddle_base.runtime.environment import HandedSecret, read_environment
from paddle_base.runtime.errors import HELD_PORT, PaddleError, PortInUseError, StoppedError, UsageError, stopped_by
from paddle_base.runtime.network.interfaces import ANY_ADDRESS, find_way
from paddle_cluster.elastic import constants as names
from paddle_cluster.elastic.agent.client import AgentClient
from paddle_cluster.elastic.agent.hosts import AgentHosts, AgentPolicy
from paddle_cluster.elastic.agent.remote import RemoteWorker, describe_launch
from paddle_cluster.elastic.driver import ElasticDriver, FailurePolicy
from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.http_server import RendezvousServer
from paddle_cluster.elastic.launching.durable import DriverLock, run_durable
from paddle_cluster.elastic.launching.output import OutputWriter
from paddle_cluster.elastic.launching.processes import WorkerProgram, make_environment, run_process
from paddle_cluster.elastic.membership.journal import DriverJournal, DriverRecord
from paddle_cluster.elastic.membership.results import Results, WorkerEvents, WorkerExit, judge
from paddle_cluster.elastic.membership_file import MembershipRecorder
from paddle_cluster.elastic.rendezvous import create_rendezvous_handler
from paddle_cluster.elastic.settings import ElasticSettings

LOOPBACK = "127.0.0.1"
NOT_BEGUN = 69  # exit code of a job that could not begin
LEASE_S = 5.0  # seconds of silence of a driver after which another driver may lead the job


class JobServer(RendezvousServer):
    """The server of a job, which stays open when the driver stops: its workers ask whether their SIGTERM is the end."""

    def stop(self) -> None:
        """Do nothing; `JobWorkers` closes the server when all workers have ended."""


class JobWorkers:
    """Starts the workers of a job as processes of this machine, and through agents on other machines.

    Raises: UsageError: there is no secret, although an agent runs the workers of this machine, or workers outlive the
        driver.  VolumeError: the store directory cannot be used.  DirectoryInUseError: another driver uses the store
        directory.  PortInUseError: the driver cannot listen on its port.
    """

    def __init__(self, settings: ElasticSettings, program: WorkerProgram) -> None:
        self._settings, self._program = settings, program
        self.secret = read_environment(program.environ).secret
        self._store = Path(settings.store_dir).resolve() if settings.store_dir else None
        self._closing = ExitStack()  # what ends after all workers
        self._journal, self._record = self._open_journal()
        policy = AgentPolicy(settings.agent_port, settings.agent_timeout, settings.has_agents)
        if policy.is_everywhere and not self.secret:
            raise UsageError("agents and driver need the same secret; set PADDLE_SECRET or PADDLE_SECRET_FILE")
        settle_s = 0.0 if self._record is None else settings.agent_timeout
        self._hosts = AgentHosts(settings.discovery, self.secret, policy, settle_s)
        listening = ANY_ADDRESS if self.secret else LOOPBACK  # without a secret all workers run here
        self._handed: HandedSecret | None = None  # workers inherit the variables of a secret that the user has set
        if not self.secret:
            self.secret = program.secret or secrets.token_hex(32)
            self._handed = HandedSecret(self.secret)
        directory = Path(settings.output_filename) if settings.output_filename else None
        width = len(str(max(settings.num_proc, settings.max_num_proc or 0) - 1))
        self._writer = OutputWriter(
            directory, width, settings.prefix_output_with_timestamp, is_continued=self._record is not None
        )
        rendezvous = JobServer(settings.verbose, self.secret)
        self._closing.callback(rendezvous.shutdown_server)
        self.driver = ElasticDriver(
            rendezvous,
            self._hosts,
            settings.min_num_proc,
            settings.max_num_proc,
            settings.elastic_timeout,
            settings.reset_limit if settings.elastic else 0,
            settings.cooldown_range,
            settings.verbose,
            FailurePolicy(settings.failures_per_host, settings.heartbeat_timeout, settings.wait_for_replacement),
            self.secret,
            self._journal,
        )
        # before `start`: the first worker may ask at once
        self.driver.is_open = self._record is None
        self.recorder: MembershipRecorder | None = None
        # workers of an earlier driver know only its port
        port = settings.port if self._record is None else self._record.port
        try:
            self.driver.port = rendezvous.start(create_rendezvous_handler(self.driver), port, listening)
            if directory:
                self.recorder = MembershipRecorder(settings, self.driver.history, self._record is not None)
        except OSError as exc:
            self._abandon()
            reason = f"{HELD_PORT}; end it, or set another --port" if exc.errno == errno.EADDRINUSE else exc.strerror
            raise PortInUseError(f"the driver cannot listen on port {port}: {reason}") from exc
        except PaddleError:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """End this driver before it has begun; keep the record and the workers of an earlier driver."""
        self.driver.stop()
        self._closing.close()
        if self._journal is not None:
            self._journal.close()

    def _open_journal(self) -> tuple[DriverJournal | None, DriverRecord | None]:
        """Become the leading driver of the job; return the journal, and the record of an earlier driver, or None."""
        if self._store is None:
            return None, None
        if not self.secret:
            raise UsageError("--store-dir needs PADDLE_SECRET; a restarted driver needs the same secret")
        journal = DriverJournal(open_registry([], self._store, "elastic", LEASE_S), _end_at_once)
        record = journal.lead()
        if not self._settings.has_agents:  # an agent detects the end of a driver without the lock
            try:
                self._closing.callback(DriverLock(self._store / "workers").close)
            except PaddleError:
                journal.close()
                raise
        return journal, record

    def run(self) -> Results:
        """Run the job to its end.

        Raises: TimeoutException, RuntimeError: the job could not begin.
        """
        with ExitStack() as stack:  # the workers' secret ends after the last of them
            try:
                if self._handed is not None:
                    stack.enter_context(self._handed)
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
                    self._journal.close()
                self._closing.close()

    def hand_over(self) -> NoReturn:
        """End this driver, and leave the workers to the next driver at once."""
        self.driver.freeze()
        if self._journal is not None:
            self._journal.close()
        glog.info("this driver ends after SIGTERM, and leaves the workers to the next driver")
        os._exit(StoppedError.exit_code)

    def _run_worker(self, slot: SlotInfo, events: WorkerEvents) -> WorkerExit:
        client = self._hosts.find(slot.hostname, self._settings.agent_timeout)
        end = self._run_locally(slot, events) if client is None else self._run_remotely(client, slot, events)
        if not self._settings.elastic:
            end = end._replace(needs_done=False)
            if end.exit_code and not end.was_stopped:
                threading.Thread(target=self.driver.stop, daemon=True).start()
        return end

    def _run_locally(self, slot: SlotInfo, events: WorkerEvents) -> WorkerExit:
        program, variables = self._program, self._list_variables()
        environ = make_environment(program.environ, slot, events.incarnation, events.generation, variables)
        if self._store is None:
            return run_process(program.start, environ, slot.rank, self._writer, events)
        place, grace = self._store / "workers" / events.incarnation, self._settings.driver_grace
        return run_durable(program.command, environ, place, slot.rank, self._writer, events, grace)

    def _run_remotely(self, client: AgentClient, slot: SlotInfo, events: WorkerEvents) -> WorkerExit:
        address = self._settings.address or find_way(client.address)
        environ = self._program.environ
        variables = {
            **{name: environ[name] for name in names.WORKER_SETTINGS if name in environ},
            **self._list_variables(),
            **self._program.offer(address),
            names.HOROVOD_GLOO_RENDEZVOUS_ADDR: address,
            names.PADDLE_ELASTIC_ADDRESS: client.address,
        }
        launch = describe_launch(self._program.command, slot, events, variables)
        worker = RemoteWorker(client, events.host_uid, events.incarnation, launch, self._settings.agent_timeout)
        return worker.run(self._writer, events)

    def _list_variables(self) -> dict[str, str]:
        """Return the variables that all workers get."""
        return {
            names.HOROVOD_GLOO_RENDEZVOUS_ADDR: LOOPBACK,
            names.HOROVOD_GLOO_RENDEZVOUS_PORT: str(self.driver.port),
            **self._list_timeouts(),
            **self._settings.variables,
            **(self._handed.variables if self._handed is not None else {}),
            **(dict.fromkeys(names.NIC_VARIABLES, nics) if (nics := self._settings.join_nics()) else {}),
            **({names.HOROVOD_ELASTIC: "1"} if self._settings.elastic else {}),
        }

    def _list_timeouts(self) -> dict[str, str]:
        """Return the variables of the time limits that flags set; for the others the environment decides."""
        settings = self._settings
        limits = {
            names.HOROVOD_GLOO_TIMEOUT_SECONDS: settings.gloo_timeout_seconds,
            names.HOROVOD_ELASTIC_TIMEOUT: settings.elastic_timeout,
        }
        return {name: f"{seconds:g}" for name, seconds in limits.items() if seconds}


# what a driver logs after a signal; the commits of workers are only in their memory
GOING_ON = (
    "to go on, run the same command again: the workers begin with what the script loads, such as a file that rank 0 "
    "has saved, because their commits were in their memory (paddle train --collective: add --start_pass)"
)


def _end_at_once(error: PaddleError) -> None:
    """End this driver and none of its workers; the next driver takes over the workers."""
    glog.fatal(str(error))
    os._exit(error.exit_code)


@contextmanager
def stopping_on_signals(workers: JobWorkers, hands_over: bool = False) -> Iterator[list[int]]:
    """End the workers of a job on SIGINT or SIGTERM; yield the list of received signals.

    Args: hands_over: whether SIGTERM ends the driver, and lets the workers continue.
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


def run_job(settings: ElasticSettings, program: WorkerProgram) -> None:
    """Run a job to its end.

    Raises: JobFailedError: see `judge`.  TimeoutException, RuntimeError: the job could not begin.  StoppedError: a
        signal has ended the job.
    """
    workers = JobWorkers(settings, program)
    try:
        _run_to_end(workers, settings.hands_over)
    except (PaddleError, RuntimeError) as exc:
        if workers.recorder is not None:
            workers.recorder.close(getattr(exc, "exit_code", NOT_BEGUN), str(exc))
        raise
    if workers.recorder is not None:
        workers.recorder.close(0, "")


def _run_to_end(workers: JobWorkers, hands_over: bool) -> None:
    with stopping_on_signals(workers, hands_over) as came:
        try:
            results = workers.run()
        except RuntimeError:
            if not came:
                raise
    if came:
        if not (hands_over and came[0] == signal.SIGTERM):  # otherwise the next driver takes over the workers
            glog.info(GOING_ON)
        raise stopped_by(came[0])
    judge(results)
