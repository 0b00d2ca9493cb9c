"""The driver watches the hosts, assigns a rank to every worker, and begins a new generation when workers come or go.

    driver = ElasticDriver(rendezvous, FixedHosts({"host-1": 2}), min_num_proc=1, max_num_proc=4)
    rendezvous.start(create_rendezvous_handler(driver))
    driver.start(2, create_worker)       # create_worker(slot, events) runs a worker and returns its exit code and time
    results = driver.get_results()

A slot is a place for a worker on a host. A generation is a set of workers with fixed ranks; it lasts until workers come
or go. The process of a worker is called an incarnation, and has a unique name.

Names and signatures are those of Horovod 0.28's `horovod.runner.elastic.driver`. The driver differs from Horovod's in
three ways. A slot gets a new process exactly when its old process has ended, regardless of other changes of its host. A
report counts only for the process that made the report, and not for a later process of the slot. A worker process that
exits with 0 succeeds only if the process has reported that its work is done.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from paddle_base.runtime import glog
from paddle_base.runtime.errors import LostPeerError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.health.steady_time import steady_time
from paddle_cluster.elastic.collectives.joining import LOST
from paddle_cluster.elastic.constants import HOROVOD_ELASTIC_TIMEOUT, read_seconds
from paddle_cluster.elastic.discovery import DiscoveredHosts, HostDiscovery, HostManager
from paddle_cluster.elastic.hosts import INVALID_SLOT_INFO, HostInfo, SlotInfo, complete_slots
from paddle_cluster.elastic.membership.decisions import FAILURE, READY, SUCCESS, GenerationPlan, Slot, assign_slots
from paddle_cluster.elastic.membership.history import JobHistory
from paddle_cluster.elastic.membership.host_watch import HostWatch
from paddle_cluster.elastic.membership.journal import DriverJournal, DriverRecord, MemberRecord
from paddle_cluster.elastic.membership.members import Hearing, Incarnation, MemberTable
from paddle_cluster.elastic.membership.notifying import Notifier
from paddle_cluster.elastic.membership.results import (
    CreateWorker,
    Results,
    ResultsRecorder,
    WorkerEvents,
    WorkerExit,
    describe_exit,
)
from paddle_cluster.elastic.registration import HeartbeatWatch, WorkerStateRegistry
from paddle_cluster.elastic.rendezvous_client import GROUP_SCOPE
from paddle_cluster.elastic.worker import HostUpdateResult, WorkerNotificationClient

NOT_DONE = 1  # exit code for a process that exits with 0 before its work is done


class WorkerReports:
    """The part of the driver that answers the workers.

    Attributes: is_open: whether the driver knows its workers. A driver that takes over the workers of an earlier driver
        does not know them at first, and the workers have to repeat their requests.  history: the history of the job.
        notices: the notices of all changes of hosts.

    Thread safety: every method may be called from any thread.
    """

    def __init__(
        self, registry: WorkerStateRegistry, hosts: HostManager, secret: str, hearing: Hearing | None = None
    ) -> None:
        self._worker_registry, self._secret, self._hearing = registry, secret, hearing or Hearing(0.0)
        self._host_manager, self._plan = hosts, GenerationPlan({}, {})
        self.history = registry.history = JobHistory()
        self._members, self.is_open = MemberTable(), True
        self.notices = Notifier()
        self._results = ResultsRecorder()
        self._create_worker_fn: CreateWorker | None = None

    def finished(self) -> bool:
        """Return whether the job is over."""
        raise NotImplementedError

    @property
    def host_assignments(self) -> dict[str, list[SlotInfo]]:
        """The slots of this generation by host."""
        return self._plan.hosts

    def world_size(self) -> int:
        """Return the number of workers in this generation."""
        return len(self._plan.ranks)

    def local_size(self, host: str) -> int:
        """Return the number of workers on a host in this generation."""
        return len(self.host_assignments.get(host, []))

    def get_slot_info(self, host: str, slot: int) -> SlotInfo:
        """Return a slot with its ranks, or `INVALID_SLOT_INFO` if the slot has no worker in this generation."""
        slots = [] if self._host_manager.is_blacklisted(host) else self.host_assignments.get(host, [])
        return next((one for one in slots if one.local_rank == slot), INVALID_SLOT_INFO)

    def get_coordinator_info(self) -> SlotInfo | None:
        """Return the slot of rank 0, or None if there is no rank 0."""
        return self._plan.ranks.get(0)

    def has_rank_assignment(self, host: str, slot: int) -> bool:
        """Return whether a slot has a worker in this generation."""
        return self.get_slot_info(host, slot) is not INVALID_SLOT_INFO

    def _keep_record(self) -> None:
        """Write the record from which the next driver continues."""
        raise NotImplementedError

    def record_ready(self, host: str, slot: int) -> int:
        """Record that a worker is ready, wait for the next generation, and return the generation that has ended."""
        return self._worker_registry.record(host, slot, READY, lambda: self.has_rank_assignment(host, slot))

    def query_rank(
        self, host: str, local_rank: int, incarnation: str, generation: int, wait: float, has_state: bool = True
    ) -> tuple[SlotInfo, int] | None:
        """Record that a process is ready; return its slot in the next generation, and the number of that generation.

        The driver answers a repeated request of a process and does not count the process again.

        Args: incarnation: name of the process; "": the present process of the slot.  generation: the last generation of
            the process.  has_state: whether the process has ever had the state of the job. The driver assumes True for
            a process that was started for the first generation.
        Returns: None: there is no decision within `wait` seconds.
        """
        slot = (host, local_rank)
        member = self._find_member(slot, incarnation)
        if member is not None:
            member.has_state = has_state or member.generation <= 1

        def is_member() -> bool:
            return self._find_member(slot, incarnation) is not None and self.has_rank_assignment(host, local_rank)

        def is_asking() -> bool:  # evaluated again after a decision, which may already answer this request
            return is_member() and (not generation or generation >= self._worker_registry.last_rendezvous())

        if is_asking() and not self._worker_registry.offer_ready(host, local_rank, wait, is_asking):
            return None
        if self.finished() or not is_member():
            return INVALID_SLOT_INFO, self._worker_registry.last_rendezvous()
        return self.get_slot_info(host, local_rank), self._worker_registry.last_rendezvous()

    def claim_place(self, host: str, local_rank: int, incarnation: str, holder: str) -> str:
        """Give the place of a worker to the first process that asks for it; return the process that has the place."""
        member = self._find_member((host, local_rank), incarnation)
        return holder if member is None else self._members.claim(member, holder)

    def record_heartbeat(
        self,
        host: str,
        local_rank: int,
        incarnation: str,
        generation: int,
        addresses: Sequence[tuple[str, int]] = (),
        holder: str = "",
    ) -> None:
        """Record a heartbeat of a process.

        Args: addresses: the addresses at which the process receives notices. The driver stores the addresses if it has
            none, because it may have taken over the job after the process registered.  holder: see `claim_place`; the
            next driver learns it by the heartbeat, too.
        """
        member = self._find_member((host, local_rank), incarnation)
        if member is None:
            return
        self._members.claim(member, holder)
        is_first, member.heard = member.heard is None, time.monotonic()
        self._hearing.note(member.heard)
        if is_first:  # the next driver must notice if this process falls silent
            self._keep_record()
        if addresses and self.notices.find_client(member.slot) is None:
            self.register_worker_server(host, local_rank, addresses, self._secret)

    def record_joined(self, generation: int, rank: int) -> None:
        """Record that the worker of a rank is about to connect to its generation."""
        self.history.join(generation, rank)

    def record_done(self, host: str, local_rank: int, incarnation: str) -> None:
        """Record that a process has finished its work, so that its exit code 0 means success."""
        member = self._find_member((host, local_rank), incarnation)
        if member is not None and not member.is_done:
            member.is_done = True
            self._keep_record()

    def register_worker_addresses(
        self, host: str, local_rank: int, incarnation: str, addresses: list[tuple[str, int]]
    ) -> None:
        """Store the addresses at which a process receives notices."""
        if self._find_member((host, local_rank), incarnation) is not None:
            self.register_worker_server(host, local_rank, addresses, self._secret)

    def register_worker_server(self, host: str, slot: int, addresses: Any, secret_key: str) -> None:
        """Store the addresses at which the worker of a slot receives notices; send rank 0 a missed notice."""
        client = WorkerNotificationClient(addresses, secret_key)
        missed = self.notices.add_client((host, slot), client)
        first = self.get_coordinator_info()
        if missed is not None and first is not None and (first.hostname, first.local_rank) == (host, slot):
            self.notices.tell_soon(client, missed)

    def get_worker_client(self, slot_info: SlotInfo) -> WorkerNotificationClient | None:
        """Return the client of the worker of a slot, or None if the worker has not registered."""
        return self.notices.find_client((slot_info.hostname, slot_info.local_rank))

    def _find_member(self, slot: Slot, incarnation: str) -> Incarnation | None:
        member = self._members.find(slot, incarnation or None)
        return None if member is None or member.is_ended else member

    # ---- the start and the end of processes

    def _start_worker_process(self, slot_info: SlotInfo, member: Incarnation) -> None:
        events = WorkerEvents(member.ends, member.name, member.generation, member.host_uid)
        name = f"{slot_info.hostname}[{slot_info.local_rank}]"
        thread = ServiceThread(partial(self._run_worker, slot_info, events, member), name)
        thread.start()
        self._results.expect(thread)

    def _run_worker(self, slot_info: SlotInfo, events: WorkerEvents, member: Incarnation) -> None:
        assert self._create_worker_fn is not None
        try:
            result = self._create_worker_fn(slot_info, events)
        except Exception as exc:  # a worker that could not be started has failed
            glog.error(f"{slot_info.hostname}[{slot_info.local_rank}] could not run: {type(exc).__name__}: {exc}")
            code = exc.exit_code if isinstance(exc, LostPeerError) else NOT_DONE
            result = WorkerExit(code, steady_time(), is_known=False)
        code = result[0]
        if code == 0 and isinstance(result, WorkerExit) and result.needs_done and not member.is_done:
            glog.error(
                f"{slot_info.hostname}[{slot_info.local_rank}] ended with 0 and has not reported that its work is "
                "done, which is a failure; let the script call hvd.shutdown(), or return from its function of "
                "hvd.elastic.run"
            )
            code = NOT_DONE
        if isinstance(result, WorkerExit) and not result.is_known and member.is_done:
            glog.info(
                f"{slot_info.hostname}[{slot_info.local_rank}] is lost, but counts as succeeded, because it had "
                "reported that its work is done"
            )
            code = 0
        was_stopped = isinstance(result, WorkerExit) and result.was_stopped
        self._handle_worker_exit(slot_info, WorkerExit(code, result[1], was_stopped), member)

    def _handle_worker_exit(self, slot_info: SlotInfo, end: WorkerExit, member: Incarnation) -> None:
        exit_code, timestamp, was_stopped = end[:3]
        host, slot = slot_info.hostname, slot_info.local_rank
        name = f"{host}[{slot}]"
        if not self._members.end(member) or not self.has_rank_assignment(host, slot):
            glog.info(f"the process {member.name} of {name}, which had left the job, {describe_exit(exit_code)}")
            return
        glog.info(f"the process {member.name} of {name} {describe_exit(exit_code)}")
        state = FAILURE if exit_code else SUCCESS
        if exit_code and not (was_stopped and self.finished()):
            self.history.fail((host, slot), exit_code, timestamp, member.is_silent)

        def counts() -> bool:
            return self._members.find((host, slot)) is member and self.has_rank_assignment(host, slot)

        was_finished = self.finished()
        generation = self._worker_registry.record(host, slot, state, counts)
        if was_finished and was_stopped:  # the driver has ended the worker because the job was over
            return
        if self.finished() and self._worker_registry.last_rendezvous() == generation:
            self._results.add_result(name, (exit_code, timestamp))


DISCOVER_HOSTS_FREQUENCY_SECS = 1.0
ELASTIC_TIMEOUT_SECS = 600
NO_STATE = (
    "no worker is left that has the state of the job: the hosts of all such workers are gone or blacklisted; look at "
    "the output of the workers"
)


class FailurePolicy(NamedTuple):
    """The limits at which a worker or a host counts as failed; the defaults are Horovod's.

    Attributes: failures_per_host: number of worker failures at which a host is blacklisted.  heartbeat_timeout: seconds
        without a heartbeat after which a worker is ended; 0: never.
    """

    failures_per_host: int = 1
    heartbeat_timeout: float = 0.0


class _Bounds(NamedTuple):
    least: int
    most: int | None
    timeout: float


class ElasticDriver(WorkerReports):
    """The driver of a job; host discovery starts with the construction of the driver.

    Args: min_num_proc: minimum number of workers with which the job may resume.  max_num_proc: maximum number of
        workers; None: any number.  timeout: maximum seconds of a wait for slots.  reset_limit: maximum number of times
        that the workers may resume; None: any number.

    Raises: ConfigError: there is no `timeout`, and HOROVOD_ELASTIC_TIMEOUT is no number of seconds.

    Thread safety: every method may be called from any thread.
    """

    def __init__(
        self,
        rendezvous: Any,
        discovery: HostDiscovery,
        min_num_proc: int,
        max_num_proc: int | None,
        timeout: float | None = None,
        reset_limit: int | None = None,
        cooldown_range: Sequence[float] | None = None,
        verbose: int = 0,
        policy: FailurePolicy | None = None,
        secret: str = "",
        journal: DriverJournal | None = None,
    ) -> None:
        seconds = timeout or read_seconds(os.environ, HOROVOD_ELASTIC_TIMEOUT, ELASTIC_TIMEOUT_SECS)
        self._bounds = _Bounds(min_num_proc, max_num_proc, seconds)
        policy = policy or FailurePolicy()
        self._rendezvous = rendezvous
        hosts = HostManager(discovery, cooldown_range)
        registry = WorkerStateRegistry(self, hosts, reset_limit, verbose, policy.failures_per_host)
        super().__init__(registry, hosts, secret, getattr(discovery, "hearing", None))
        registry.is_blamed = self._is_blamed
        self._journal, self.port = journal, 0
        self._planning = threading.Lock()  # serialises the handling of changed hosts and the making of plans
        self._watch = HostWatch(self._host_manager, self._note_change, lambda: DISCOVER_HOSTS_FREQUENCY_SECS)
        stop = self._watch.is_stopped
        self._heartbeats = HeartbeatWatch(self._members, policy.heartbeat_timeout, stop, self._hearing, registry)
        # last, because its thread calls this object at once
        self._watch.start(self._discover_hosts)

    # ---- the life of a job

    def start(self, num_proc: int, create_worker_fn: CreateWorker) -> None:
        """Wait for `num_proc` slots, and start a worker in each slot of the first generation.

        Raises: TimeoutException, RuntimeError: see `wait_for_available_slots`.
        """
        self._create_worker_fn = create_worker_fn
        self._heartbeats.start()
        self._activate_workers(num_proc)

    def adopt(self, record: DriverRecord, create_worker_fn: CreateWorker) -> None:
        """Take over the generation and the processes of a driver that has ended.

        Args: create_worker_fn: attaches to the process that `events.incarnation` names, or starts that process.
        """
        self._create_worker_fn = create_worker_fn
        self._heartbeats.start()
        found = sorted(record.members, key=lambda one: one.rank)
        slots = [SlotInfo(one.host, one.rank, one.local_rank, 0) for one in found]
        complete_slots(slots)
        for host in record.blacklist:
            self._host_manager.blacklist(host)
        self.notices.continue_from(record.revision)
        with self._planning:
            self._set_plan(slots)
            self._worker_registry.restore(record.generation, len(slots), record.resets)
            members = [self._members.add(one.revive(self._list_ends(one.host))) for one in found]
            self.history.begin(record.generation, slots, self._members)
        self.is_open = True
        glog.info(f"generation {record.generation} continues with {len(slots)} workers of a driver that has ended")
        for slot, member in zip(slots, members, strict=True):
            self._start_worker_process(slot, member)
        if self._host_manager.current_hosts.host_slots:  # hosts may have changed while no driver ran
            self._note_change(HostUpdateResult.mixed)

    def resume(self) -> None:
        """Begin the next generation with the live workers, and start a worker in each free slot.

        Raises: TimeoutException: see `wait_for_available_slots`.  RuntimeError: no worker is left that has the state;
            see also `wait_for_available_slots`.
        """
        self._activate_workers(self._bounds.least)

    def stop(self, error_message: str | None = None) -> None:
        """End all workers; further calls are allowed.

        Args: error_message: reason why the job has failed, independent of the results of the workers.
        """
        self._results.set_error_message(error_message)
        self._watch.is_stopped.set()
        self._worker_registry.wake()
        self._rendezvous.stop()
        self._watch.stop()
        self._heartbeats.join()

    def freeze(self) -> None:
        """Stop all decisions, because this process is about to end; the next driver continues from the journal."""
        self._planning.acquire()

    def finished(self) -> bool:
        """Return whether the job is over."""
        return self._watch.is_stopped.is_set()

    def wait_for_available_slots(self, min_num_proc: int, min_hosts: int = 1) -> DiscoveredHosts:
        """Wait for enough slots and hosts, and return the hosts.

        Raises: TimeoutException: there are too few slots within the timeout.  RuntimeError: the job has been stopped.
        """
        self.history.wait_for(min_num_proc)
        return self._watch.wait(min_num_proc, min_hosts, self._bounds.timeout)

    def get_results(self) -> Results:
        """Wait for all workers, and return the results of the workers of the last generation."""
        return self._results.get_results()

    # ---- generations

    def _activate_workers(self, min_num_proc: int) -> None:
        self.wait_for_available_slots(min_num_proc)
        with self._planning:
            pending = self._update_host_assignments(self._host_manager.current_hosts)
            members = [self._begin_process(slot) for slot in pending]
            self._save_record(self._worker_registry.last_rendezvous() + 1)
            self._worker_registry.reset(self.world_size())
            self.history.begin(self._worker_registry.last_rendezvous(), self._plan.ranks.values(), self._members)
        for slot, member in zip(pending, members, strict=True):
            self._start_worker_process(slot, member)

    def _save_record(self, generation: int) -> None:
        """Write the decided generation to the journal, if the driver has a journal."""
        if self._journal is None:
            return
        found = [(self._members.find(slot), rank) for slot, rank in self._plan.slots.items()]
        members = tuple(MemberRecord.of(one, rank) for one, rank in found if one is not None)
        blacklist = tuple(self._host_manager.list_blacklisted())
        resets, revision = self._worker_registry.resets, self.notices.revision
        self._journal.save(DriverRecord(generation, resets, self.port, members, blacklist, revision))

    def _update_host_assignments(self, current_hosts: DiscoveredHosts) -> list[SlotInfo]:
        """Assign a rank to every slot; return the slots that need a new process.

        Raises: RuntimeError: no worker is left that has the state.
        """
        live = self._list_survivors(current_hosts)
        holders = {slot: rank for slot, rank in live.items() if self._members.has_state(slot)}
        slots = self._assign(current_hosts, holders)
        survivors = live.keys() & {(one.hostname, one.local_rank) for one in slots}
        if self._plan.ranks and not holders.keys() & survivors:
            raise RuntimeError(NO_STATE)
        self._members.keep(survivors)
        self._set_plan(slots)
        return [one for one in slots if (one.hostname, one.local_rank) not in survivors]

    def _keep_record(self) -> None:
        with self._planning:
            self._save_record(self._worker_registry.last_rendezvous())

    def _set_plan(self, slots: Sequence[SlotInfo]) -> None:
        self._plan = GenerationPlan.of(slots)
        self._rendezvous.init(slots)
        self.notices.begin_generation(self._plan.slots.keys())

    def _list_survivors(self, hosts: DiscoveredHosts) -> dict[Slot, int]:
        """Return the slots of this generation that have a live worker, with their ranks."""
        live = {one.slot for one in self._members.list_live(hosts.uids)} - self._worker_registry.get(FAILURE)
        return {slot: rank for slot, rank in self._plan.slots.items() if slot in live}

    def _assign(self, hosts: DiscoveredHosts, survivors: dict[Slot, int]) -> list[SlotInfo]:
        order = [HostInfo(host, hosts.get_slots(host)) for host in hosts.host_assignment_order]
        return assign_slots(order, survivors, self._bounds.least, self._bounds.most)

    def _discover_hosts(self) -> None:  # Horovod's tests replace this method
        self._watch.run()

    def _note_change(self, result: int) -> None:
        """Notify rank 0 of changed hosts, unless the next generation would have the same slots as this generation."""
        with self._planning:
            hosts = self._host_manager.current_hosts
            is_enough = hosts.count_available_slots() >= self._bounds.least
            plan = GenerationPlan.of(self._assign(hosts, self._list_survivors(hosts)) if is_enough else [])
            if plan.hosts == self.host_assignments:
                return
            notice = self.notices.post(plan.slots.keys(), result) if self._plan.ranks else None
            if notice is not None:  # the next driver continues with the next revision
                self._save_record(self._worker_registry.last_rendezvous())
            self.history.note_hosts()
        coordinator = self.get_coordinator_info()
        client = None if coordinator is None else self.get_worker_client(coordinator)
        if client is not None and notice is not None:
            self.notices.tell_soon(client, notice)

    # ---- processes

    def note_failure(self, generation: int, slot: Slot) -> None:
        """Tell the workers that wait for a failed one to connect to their generation, so that they wait no longer."""
        text = f"the process of {slot[0]}[{slot[1]}] has ended"
        put = getattr(self._rendezvous, "put", lambda *_: None)  # a server of the user's may lack it
        put(f"{GROUP_SCOPE}{generation}", LOST, text.encode())

    def _is_blamed(self, slot: Slot) -> bool:
        """Return whether a failed worker ran on the host that has the name now; an older host may have had the name."""
        member = self._members.find(slot)
        return member is None or self._host_manager.is_same(member.host, member.host_uid)

    def _list_ends(self, host: str) -> list[threading.Event]:
        return [self._watch.is_stopped, self._host_manager.get_host_event(host)]

    def _begin_process(self, slot_info: SlotInfo) -> Incarnation:
        """Return the record of a new process for a slot in the next generation."""
        host = slot_info.hostname
        uid = self._host_manager.current_hosts.uids.get(host, "")
        generation = self._worker_registry.last_rendezvous() + 1
        return self._members.begin((host, slot_info.local_rank), uid, generation, self._list_ends(host))
