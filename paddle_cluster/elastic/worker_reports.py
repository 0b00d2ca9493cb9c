"""The part of the driver that answers the workers, and runs a thread for the process of each worker."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import LostPeerError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.health.steady_time import steady_time
from paddle_cluster.elastic.discovery import HostManager
from paddle_cluster.elastic.hosts import INVALID_SLOT_INFO, SlotInfo
from paddle_cluster.elastic.membership.decisions import FAILURE, READY, SUCCESS, GenerationPlan, Slot
from paddle_cluster.elastic.membership.history import JobHistory
from paddle_cluster.elastic.membership.members import Hearing, Incarnation, MemberTable
from paddle_cluster.elastic.membership.newcomers import GATHER_S, Newcomers
from paddle_cluster.elastic.membership.notifying import Notifier
from paddle_cluster.elastic.membership.results import (
    CreateWorker,
    ResultsRecorder,
    WorkerEvents,
    WorkerExit,
    describe_exit,
)
from paddle_cluster.elastic.registration import WorkerStateRegistry
from paddle_cluster.elastic.worker import HostUpdateResult, WorkerNotificationClient

SIGTERM_CODES = -signal.SIGTERM, 128 + signal.SIGTERM  # exit codes of a process, and of a shell with a process
NOT_DONE = 1  # exit code for a process that exits with 0 before its work is done


class WorkerReports:
    """The part of the driver that answers the workers.

    Attributes: is_open: whether the driver knows its workers. A driver that takes over does not know them at first, and
        they repeat their requests.  history: the history of the job.  notices: the notices of all changes of hosts.

    Thread safety: every method may be called from any thread.
    """

    _newcomers: Newcomers

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

    def _note_end(self, slot: Slot) -> None:
        """Tell the workers of this generation that one of them has ended."""
        raise NotImplementedError

    def _announce(self) -> None:
        """Notify the workers of newcomers that are ready."""
        raise NotImplementedError

    def _note_change(self, result: int) -> None:
        """Notify rank 0 of a change of the workers."""
        raise NotImplementedError

    def _lose_newcomer(self, member: Incarnation, counts: bool) -> bool:
        """Handle the end of a process; return whether the process had no place yet."""
        raise NotImplementedError

    def record_ready(self, host: str, slot: int) -> int:
        """Record that a worker is ready, wait for the next generation, and return the generation that has ended.

        A newcomer waits until it has a place, and the result is the generation of the place.
        """
        member = self._members.find((host, slot))
        if member is not None and member.is_awaited:
            self._await_place(member, None)
            return self._worker_registry.last_rendezvous()
        return self._worker_registry.record(host, slot, READY, lambda: self.has_rank_assignment(host, slot))

    def query_rank(
        self, host: str, local_rank: int, incarnation: str, generation: int, wait: float, has_state: bool = True
    ) -> tuple[SlotInfo, int] | None:
        """Record that a process is ready; return its slot in the next generation, and the number of that generation.

        The driver answers a repeated request of a process and does not count the process again.

        Args:
        - incarnation: name of the process; "": the present process of the slot.
        - generation: the last generation of the process; 0: the process is a newcomer without a place.
        - has_state: whether the process has ever had the state of the job. The driver assumes True for a process that
          was started for the first generation.

        Returns: None: there is no decision within `wait` seconds.
        """
        slot = (host, local_rank)
        member = self._find_member(slot, incarnation)
        if member is not None and member.is_newcomer and not generation:
            if not self._await_place(member, wait):
                return None
            return self._tell_place(slot, self._find_member(slot, member.name))
        if member is not None:
            member.has_state = has_state or member.generation <= 1

        def is_member() -> bool:
            return self._find_member(slot, incarnation) is not None and self.has_rank_assignment(host, local_rank)

        def is_asking() -> bool:  # evaluated again after a decision, which may already answer this request
            return is_member() and (not generation or generation >= self._worker_registry.last_rendezvous())

        if member is not None and member.is_leaving:
            self._worker_registry.offer_ready(host, local_rank, 0.0, is_asking)
            return INVALID_SLOT_INFO, self._worker_registry.last_rendezvous()
        if is_asking() and not self._worker_registry.offer_ready(host, local_rank, wait, is_asking):
            return None
        return self._tell_place(slot, member if is_member() else None)

    def _tell_place(self, slot: Slot, member: Incarnation | None) -> tuple[SlotInfo, int]:
        found = INVALID_SLOT_INFO if self.finished() or member is None else self.get_slot_info(*slot)
        return found, self._worker_registry.last_rendezvous()

    def _await_place(self, member: Incarnation, wait: float | None) -> bool:
        """Record that a newcomer is ready, and notify the workers; return whether it has a place, or never gets one.

        Args: wait: maximum seconds of the wait; None: no limit.
        """
        if member.asked is None:
            member.asked = time.monotonic()
            glog.info(f"{member.host}[{member.local_rank}] is ready, and joins at the next commit")

        def is_decided() -> bool:
            return not member.is_awaited or member.is_ended or self._members.find(member.slot) is not member

        until = math.inf if wait is None else time.monotonic() + wait
        if self._newcomers.is_starting():
            gather_s = max(0.0, min(member.asked + GATHER_S, until) - time.monotonic())
            self._worker_registry.wait_until(lambda: is_decided() or not self._newcomers.is_starting(), gather_s)
        if member.asked + GATHER_S <= time.monotonic() or not self._newcomers.is_starting():
            self._announce()
        left = None if wait is None else max(0.0, until - time.monotonic())
        return self._worker_registry.wait_until(is_decided, left)

    def record_leaving(self, host: str, local_rank: int, incarnation: str) -> bool:
        """Record that a worker has received SIGTERM; return whether it is to leave at its next commit.

        If the driver itself ends the worker, or the worker has no place yet, it is to end at once.
        """
        member = self._find_member((host, local_rank), incarnation)
        if member is None or not member.is_live or not self.has_rank_assignment(host, local_rank):
            return False
        if not member.is_leaving:
            glog.info(f"{host}[{local_rank}] has received SIGTERM, and leaves at the next commit")
            member.is_leaving = True
            self._newcomers.leave(member)
            self._note_change(HostUpdateResult.removed)
        return True

    def is_newcomer(self, host: str, local_rank: int, incarnation: str) -> bool:
        """Return whether a process has to ask for its place."""
        member = self._find_member((host, local_rank), incarnation)
        return member is not None and member.is_newcomer

    def has_newcomers(self) -> bool:
        """Return whether new processes have been started that have no place yet."""
        return bool(self._newcomers.list_all())

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

    def _start_processes(self, found: Iterable[tuple[SlotInfo, Incarnation]]) -> None:
        for slot_info, member in found:
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
        is_member = self._members.end(member)
        if member.is_awaited and exit_code in SIGTERM_CODES and not was_stopped:
            self._newcomers.leave(member)  # its machine is about to go, as that of a worker that leaves
            was_stopped = True
        if self._lose_newcomer(member, counts=member.is_silent or not was_stopped):
            glog.info(f"the process {member.name} of {name} {describe_exit(exit_code)} before it had a place")
            return
        if not is_member or not self.has_rank_assignment(host, slot):
            glog.info(f"the process {member.name} of {name}, which had left the job, {describe_exit(exit_code)}")
            return
        glog.info(f"the process {member.name} of {name} {describe_exit(exit_code)}")
        state = FAILURE if exit_code else SUCCESS
        if exit_code and member.is_leaving:
            state = READY  # it takes part in no later generation
            self._note_end((host, slot))
        elif exit_code and not (was_stopped and self.finished()):
            self.history.fail((host, slot), exit_code, timestamp, member.is_silent)

        def counts() -> bool:  # no longer when the job has gone on without a worker that has left
            return self._members.find((host, slot)) is member and self.has_rank_assignment(host, slot)

        was_finished = self.finished()
        generation = self._worker_registry.record(host, slot, state, counts)
        if was_finished and was_stopped:  # the driver has ended the worker because the job was over
            return
        if self.finished() and self._worker_registry.last_rendezvous() == generation and counts():
            self._results.add_result(name, (exit_code, timestamp))
