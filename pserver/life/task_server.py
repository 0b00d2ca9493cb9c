"""A server of a task job: it claims an index, resumes from its snapshot, serves, and ends when the job is over.

    paddle pserver --store_dir=DIR | --etcd_endpoints=http://host:2379

A claim is an entry of the registry that only one process can have, and that expires unless the process renews it. The
server releases the claim when it ends, so that another server can claim the index immediately. A server that lost its
claim changes nothing in the registry.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

from paddle_base.registry.choice import name_job, open_registry
from paddle_base.registry.etcd_flags import set_variables
from paddle_base.registry.interface import Claim, Registry
from paddle_base.registry.records import JobEnd, find_job_end
from paddle_base.registry.servers import ServerRecord, claim_index, write_desired
from paddle_base.runtime import glog
from paddle_base.runtime.environment import JobEnvironment
from paddle_base.runtime.errors import DataError, LeaseLostError, PaddleError, StoppedError, UsageError, stopped_by
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_base.runtime.health.metrics import Exposition
from paddle_base.runtime.network.interfaces import ANY_ADDRESS, find_address, list_nics, resolve_nic
from paddle_base.runtime.network.pages import Pages, watched
from pserver.flags import PserverFlags
from pserver.life.health import TaskHealth
from pserver.life.lease import LeaseKeeper
from pserver.life.options import make_options
from pserver.life.recovery import name_directory, recover
from pserver.life.server_life import TaskLife
from pserver.life.snapshots import Snapshots, SnapshotStore
from pserver.server.event_loop import Server
from pserver.server.tasks.service import TaskService
from pserver.store.snapshot_files import check_directory


def run_task_server(line: PserverFlags, job: JobEnvironment) -> int:
    """Serve until the job is over, and return the exit status.

    Raises: LeaseLostError: this server has lost its index.  StoppedError: a signal arrived; the state is stored if
        possible.  DataError: the job has failed.  UsageError, ConfigError, DamagedError, VolumeError,
        PeerUnreachableError: the server cannot start or continue.
    """
    name = name_job(line.text("job"), job.job)
    host = resolve_nic(line.text("nics").strip()) if line.text("nics").strip() else ANY_ADDRESS
    if line.text("log_json"):
        glog.to_json(line.text("log_json"), role="pserver", number=None, attempt="")
    if not job.secret:
        glog.warning(
            "there is no secret (PADDLE_SECRET, PADDLE_SECRET_FILE): every program that reaches a port may take part"
        )
    health = TaskHealth(job, name)
    with _watched(health, line, host):
        set_variables(line.text, os.environ)
        registry = open_registry(line.endpoints, line.store_dir, name, line.seconds("etcd_ttl"))
        end = find_job_end(registry) or _take_part(line, job, registry, host, health)
    registry.close()
    if end.reason:
        raise DataError(f"the master reports that the job has failed: {end.reason}; the servers' values are not used")
    glog.info("the job is over: all its passes are done")
    return 0


def _take_part(line: PserverFlags, job: JobEnvironment, registry: Registry, host: str, health: TaskHealth) -> JobEnd:
    desired = write_desired(registry, line.number("num_pservers"))
    only = line.number("index")
    if only >= desired:
        raise UsageError(f"--index is {only}, and the job has {desired} servers: it must be in [-1, {desired - 1}]")
    if desired != line.number("num_pservers"):
        glog.warning(
            f"--num_pservers is {line.number('num_pservers')}, but the job began with {desired} servers "
            "and keeps this number"
        )

    def note(what: str) -> None:
        health.waits_for = what
        LIVENESS.turn()
        glog.info(what)
        end = find_job_end(registry)
        if end is not None:
            raise _JobOverError(end)

    # the first snapshot may be due after hours; a fault of its directory is known before this server takes an index
    directory = name_directory(line.text("checkpoint_path"), line.store_dir, name_job(line.text("job"), job.job))
    check_directory(directory)
    try:
        claim, record = claim_index(registry, desired, _name_host(host), note, only)
    except _JobOverError as over:
        return over.end
    glog.identify(record.index)
    glog.info(f"this is server {record.index} of {desired}, incarnation {record.incarnation}")
    health.index, health.waits_for = record.index, "it does not serve yet"
    with LeaseKeeper(registry, claim) as keeper, _released(claim):
        health.keeper = keeper
        options = make_options(line, job, name_job(line.text("job"), job.job), record.attempt)
        life = TaskLife(keeper, line.seconds("checkpoint_interval"))
        server = Server(_list_endpoints(line, host), options, life, TaskService)
        try:
            snapshots = _recover(directory, server, registry, keeper, record.index)
            life.begin(server.services, snapshots)
            health.server, health.snapshots = server, snapshots
            server.bind()
            # trainers connect as soon as the registry has the address, so the ports are bound before
            _announce(line, server, claim, record)
            health.waits_for = ""
            _run(server, snapshots)
        finally:
            health.waits_for = "it ends"
            # inside the claim: after its release, the next server with this index may answer
            server.close()
    return keeper.end or JobEnd()


def _recover(directory: Path, server: Server, registry: Registry, keeper: LeaseKeeper, index: int) -> Snapshots:
    """Restore the state that the last server with this index has stored; return the snapshots of the services."""
    services = [cast(TaskService, service) for service in server.services]
    snapshots = Snapshots(services, SnapshotStore(keeper.claim, index, directory))
    found = recover(services, registry, index, directory)
    if found is not None:
        record, path = found
        snapshots.resume(path)
        glog.info(f"server {index} goes on after {record.step} steps, from {path}")
    for service in services:
        service.on_values = snapshots.ask
    return snapshots


def _announce(line: PserverFlags, server: Server, claim: Claim, record: ServerRecord) -> None:
    """Write the server's address into the registry for trainers."""
    ports, dense = [port for _, port in server.endpoints], line.number("ports_num")
    claim.update(replace(record, ports=tuple(ports[:dense]), sparse_ports=tuple(ports[dense:])).value)
    glog.info(f"serving as server {record.index} on {record.host}, ports {', '.join(map(str, ports))}")


def _run(server: Server, snapshots: Snapshots) -> None:
    """Serve until the job is over. If a signal stops the server, store its state."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: server.stop(stopped_by(number)))
    try:
        server.run()
    except StoppedError:
        try:
            snapshots.store_last()
        except PaddleError as exc:
            glog.error(f"the last snapshot is not stored; the next server resumes from an earlier snapshot: {exc}")
        if snapshots.stored:
            glog.info("to go on, start the server again: it resumes from its newest snapshot")
        raise


def _list_endpoints(line: PserverFlags, host: str) -> list[tuple[str, int]]:
    first, count = line.number("port"), line.number("ports_num") + line.number("ports_num_for_sparse")
    return [(host, first + number if first else 0) for number in range(count)]


def _name_host(host: str) -> str:
    """Return the address at which trainers reach this server."""
    return find_address(list_nics()) if host == ANY_ADDRESS else host


@contextlib.contextmanager
def _released(claim: Claim) -> Iterator[None]:
    """Release a claim at the end of the caller's `with` block, unless the claim is lost."""
    try:
        yield
    except LeaseLostError:
        raise
    except BaseException:
        claim.release()
        raise
    claim.release()


def _watched(health: TaskHealth, line: PserverFlags, host: str) -> contextlib.AbstractContextManager[None]:
    """Serve /healthz, /readyz and /metrics while the caller's `with` block runs, if --metrics_port is set."""
    if not line.number("metrics_port"):
        return contextlib.nullcontext()
    pages = Pages(health.why_stuck, health.why_not_ready, Exposition(health.read))
    return watched([host], line.number("metrics_port"), pages)


class _JobOverError(Exception):
    """The job is over; this exception only ends a wait inside this module."""

    def __init__(self, end: JobEnd) -> None:
        super().__init__()
        self.end = end
