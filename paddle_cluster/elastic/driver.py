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
exits with 0 succeeds only if the process has reported that its work is done. With `FailurePolicy.waits` False, no
worker waits for the start of a new process: it joins a later generation, when it has asked for its place.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from paddle_base.runtime import glog
from paddle_base.runtime.status_files import list_names
from paddle_cluster.elastic.collectives.joining import LOST
from paddle_cluster.elastic.constants import HOROVOD_ELASTIC_TIMEOUT, read_seconds
from paddle_cluster.elastic.discovery import DiscoveredHosts, HostDiscovery, HostManager
from paddle_cluster.elastic.hosts import HostInfo, SlotInfo
from paddle_cluster.elastic.membership.decisions import FAILURE, GenerationPlan, Slot, assign_slots
from paddle_cluster.elastic.membership.host_watch import HostWatch
from paddle_cluster.elastic.membership.journal import DriverJournal, DriverRecord, MemberRecord
from paddle_cluster.elastic.membership.members import Incarnation
from paddle_cluster.elastic.membership.newcomers import Newcomers
from paddle_cluster.elastic.membership.results import (
    CreateWorker,
    Results,
)
from paddle_cluster.elastic.registration import HeartbeatWatch, Judge, WorkerStateRegistry
from paddle_cluster.elastic.rendezvous_client import GROUP_SCOPE
from paddle_cluster.elastic.worker import HostUpdateResult
from paddle_cluster.elastic.worker_reports import WorkerReports

DISCOVER_HOSTS_FREQUENCY_SECS = 1.0
ELASTIC_TIMEOUT_SECS = 600
NO_STATE = (
    "no worker is left that has the state of the job: all such workers have left after SIGTERM, or their hosts are "
    "gone or blacklisted; look at the output of the workers"
)


class FailurePolicy(NamedTuple):
    """The limits at which a worker or a host counts as failed; the defaults are Horovod's.

    Attributes: failures_per_host: number of worker failures at which a host is blacklisted.  heartbeat_timeout: seconds
        without a heartbeat after which a worker is ended; 0: never.  waits: whether all workers wait for the start of
        new processes.
    """

    failures_per_host: int = 1
    heartbeat_timeout: float = 0.0
    waits: bool = True


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
        self._newcomers = Newcomers(self._members, hosts, policy.failures_per_host, policy.waits)
        registry.judge = Judge(self._is_blamed, self._is_refill)
        self.history.list_newcomers = self._newcomers.describe
        self._journal, self.port = journal, 0
        self._planning = threading.Lock()  # serialises the handling of changed hosts and the making of plans
        self._watch = HostWatch(
            self._host_manager, self._note_change, lambda: DISCOVER_HOSTS_FREQUENCY_SECS, self._refill
        )
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
        slots, new = record.list_slots()
        for host in record.blacklist:
            self._host_manager.blacklist(host)
        self.notices.continue_from(record.revision)
        self._newcomers.owed = frozenset(record.owed)
        with self._planning:
            self._set_plan(slots)
            self._worker_registry.restore(record.generation, len(slots), record.resets)
            members = [
                self._members.add(one.revive(self._list_ends(one.host), is_awaited=one.rank >= len(found)))
                for one in (*found, *record.newcomers)
            ]
            self.history.begin(record.generation, slots, self._members)
        self.is_open = True
        glog.info(f"generation {record.generation} continues with {len(slots)} workers of a driver that has ended")
        self._start_processes(zip([*slots, *new], members, strict=True))
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
            recruited = self._recruit()
        self._start_processes([*zip(pending, members, strict=True), *recruited])

    def _recruit(self) -> list[tuple[SlotInfo, Incarnation]]:
        """End the newcomers that are not wanted any more; return new ones for all free slots, which are not started."""
        hosts = self._host_manager.current_hosts
        if self._newcomers.is_off or not self._plan.ranks or hosts.count_available_slots() < self._bounds.least:
            return []
        wanted = self._assign(hosts, self._list_survivors(hosts))
        for member in self._newcomers.list_unwanted({(one.hostname, one.local_rank) for one in wanted}):
            self._members.drop(member)
            member.kill()
        self._worker_registry.wake()  # a newcomer that has been dropped may wait for its place
        free = self._newcomers.list_free(wanted, self._plan.slots)
        if not free or self.finished():
            return []
        names = list_names([f"{one.hostname}[{one.local_rank}]" for one in free])
        glog.info(f"new workers start: {names}; the others continue without them until they are ready")
        found = [(one, self._begin_process(one, is_newcomer=True)) for one in free]
        self._save_record(self._worker_registry.last_rendezvous())
        return found

    def _refill(self) -> None:
        """Start newcomers in the slots whose workers have left long ago."""
        if self._newcomers.end_refusals():
            with self._planning:
                recruited = self._recruit()
            self._start_processes(recruited)

    def _lose_newcomer(self, member: Incarnation, counts: bool) -> bool:
        with self._planning:
            if not member.is_awaited or self._members.find(member.slot) is not member:
                return False
            self._members.drop(member)
            if self.finished():
                return True
            if counts:
                self._newcomers.fail(member, self._plan.hosts)
            recruited = self._recruit()
            self._save_record(self._worker_registry.last_rendezvous())
        self._start_processes(recruited)
        return True

    def _announce(self) -> None:
        if not self.notices.expects(self._newcomers.list_ready()):
            self._note_change(HostUpdateResult.added)

    def _save_record(self, generation: int) -> None:
        """Write the decided generation to the journal, if the driver has a journal."""
        if self._journal is None:
            return
        found = [(self._members.find(slot), rank) for slot, rank in self._plan.slots.items()]
        members = tuple(MemberRecord.of(one, rank) for one, rank in found if one is not None)
        new = tuple(MemberRecord.of(one, len(members) + more) for more, one in enumerate(self._newcomers.list_all()))
        blacklist = tuple(self._host_manager.list_blacklisted())
        resets, revision = self._worker_registry.resets, self.notices.revision
        owed = tuple(sorted(self._newcomers.owed))
        self._journal.save(DriverRecord(generation, resets, self.port, members, blacklist, revision, new, owed))

    def _update_host_assignments(self, current_hosts: DiscoveredHosts) -> list[SlotInfo]:
        """Assign a rank to every slot; return the slots that need a new process.

        Raises: RuntimeError: no worker is left that has the state.
        """
        live = self._list_survivors(current_hosts)
        holders = {slot: rank for slot, rank in live.items() if self._members.has_state(slot)}
        slots = self._newcomers.choose(
            self._assign(current_hosts, holders), live.keys(), holders.keys(), self._bounds.least
        )
        places = {(one.hostname, one.local_rank) for one in slots}
        newcomers = self._newcomers.list_all()
        survivors = (live.keys() | {one.slot for one in newcomers}) & places
        if self._plan.ranks and not holders.keys() & survivors:
            raise RuntimeError(NO_STATE)
        self._members.keep(survivors.union(one.slot for one in newcomers))
        self._newcomers.begin_generation(self._plan.slots, places)
        self._set_plan(slots)
        for one in newcomers:
            one.is_awaited = one.slot not in places
        return [one for one in slots if (one.hostname, one.local_rank) not in survivors]

    def _keep_record(self) -> None:
        with self._planning:
            self._save_record(self._worker_registry.last_rendezvous())

    def _set_plan(self, slots: Sequence[SlotInfo]) -> None:
        self._plan = GenerationPlan.of(slots)
        self._rendezvous.init(slots)
        self.notices.begin_generation(self._plan.slots.keys())

    def _list_survivors(self, hosts: DiscoveredHosts) -> dict[Slot, int]:
        """Return the slots of this generation that have a live worker that stays, with their ranks."""
        staying = (one.slot for one in self._members.list_live(hosts.uids) if not one.is_leaving)
        live = set(staying) - self._worker_registry.get(FAILURE)
        return {slot: rank for slot, rank in self._plan.slots.items() if slot in live}

    def _assign(self, hosts: DiscoveredHosts, survivors: dict[Slot, int]) -> list[SlotInfo]:
        order = [HostInfo(host, hosts.get_slots(host)) for host in hosts.host_assignment_order]
        return assign_slots(order, survivors, self._bounds.least, self._bounds.most)

    def _discover_hosts(self) -> None:  # Horovod's tests replace this method
        self._watch.run()

    def _note_change(self, result: int) -> None:
        """Notify rank 0 of changed hosts, unless the next generation would have the same slots as this generation."""
        with self._planning:
            recruited = self._recruit()
            plan, is_left = self._foresee()
            is_news = is_left or plan.hosts != self.host_assignments
            notice = self.notices.post(plan.slots.keys(), result) if is_news and self._plan.ranks else None
            if notice is not None:  # the next driver continues with the next revision
                self._save_record(self._worker_registry.last_rendezvous())
            if is_news:
                self.history.note_hosts()
        self._start_processes(recruited)
        coordinator = self.get_coordinator_info() if is_news else None
        client = None if coordinator is None else self.get_worker_client(coordinator)
        if client is not None and notice is not None:
            self.notices.tell_soon(client, notice)

    def _foresee(self) -> tuple[GenerationPlan, bool]:
        """Return the next generation, empty if there are too few slots, and whether a worker leaves this generation."""
        hosts = self._host_manager.current_hosts
        present = self._plan.slots.keys()
        leaving = {slot for slot in present if (one := self._members.find(slot)) is not None and one.is_leaving}
        if hosts.count_available_slots() < self._bounds.least:
            return GenerationPlan.of([]), bool(leaving)
        slots = self._assign(hosts, self._list_survivors(hosts))
        stay = present - leaving
        return GenerationPlan.of(self._newcomers.choose(slots, stay, stay, self._bounds.least)), bool(leaving)

    def _is_refill(self) -> bool:
        """Return whether all present workers stay, and those that come replace lost ones."""
        with self._planning:
            plan, is_left = self._foresee() if self._newcomers.owed else (self._plan, True)
            slots = self._plan.slots.keys(), plan.slots.keys(), self.notices.list_expected()
            return not is_left and self._newcomers.are_owed(*slots)

    # ---- processes

    def note_failure(self, generation: int, slot: Slot) -> None:
        """Tell the workers that wait for a lost one to connect to their generation, so that they wait no longer."""
        text = f"the process of {slot[0]}[{slot[1]}] has ended"
        put = getattr(self._rendezvous, "put", lambda *_: None)  # a server of the user's may lack it
        put(f"{GROUP_SCOPE}{generation}", LOST, text.encode())

    def _note_end(self, slot: Slot) -> None:
        self.note_failure(self._worker_registry.last_rendezvous(), slot)

    def _is_blamed(self, slot: Slot) -> bool:
        """Return whether a failed worker ran on the host that has the name now; an older host may have had the name."""
        member = self._members.find(slot)
        return member is None or self._host_manager.is_same(member.host, member.host_uid)

    def _list_ends(self, host: str) -> list[threading.Event]:
        return [self._watch.is_stopped, self._host_manager.get_host_event(host)]

    def _begin_process(self, slot_info: SlotInfo, is_newcomer: bool = False) -> Incarnation:
        """Return the record of a new process for a slot in the next generation, or in a later one for a newcomer."""
        host = slot_info.hostname
        uid = self._host_manager.current_hosts.uids.get(host, "")
        generation = self._worker_registry.last_rendezvous() + 1
        member = self._members.begin((host, slot_info.local_rank), uid, generation, self._list_ends(host))
        member.is_newcomer = member.is_awaited = is_newcomer
        member.has_state = not is_newcomer
        return member
