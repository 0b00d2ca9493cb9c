"""The reports of the workers of a generation, the decision after the last report, and the end of silent workers.

Names and signatures are those of Horovod 0.28's `horovod.runner.elastic.registration`. The registry differs from
Horovod's in two ways. The registry counts a worker once, even if the worker reports several times. A separate thread
makes the decision.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from paddle_base.runtime import glog
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_cluster.elastic.discovery import HostManager
from paddle_cluster.elastic.membership.decisions import FAILURE, READY, SUCCESS, MembershipDecision, Slot, decide
from paddle_cluster.elastic.membership.history import JobHistory
from paddle_cluster.elastic.membership.members import Hearing, Incarnation, MemberTable

__all__ = ["FAILURE", "READY", "SUCCESS", "HeartbeatWatch", "WorkerStateRegistry"]

LOOK_S = 1.0  # maximum seconds between two checks
LEAST_S = 6.0  # minimum time limit in seconds; a worker sends three heartbeats in this time, so one may be late
# seconds of silence after which a worker that has finished its work is ended. It sends no heartbeats while Python takes
# its modules apart, which takes a second of processor time with torch, and many seconds on a busy machine.
DONE_S = 30.0


class Workforce(Protocol):
    """The part of the driver that the registry uses."""

    def finished(self) -> bool:
        """Return whether the job is over."""

    def note_failure(self, generation: int, slot: Slot) -> None:
        """Tell the other workers of a generation that a worker has failed; must not wait."""

    def resume(self) -> None:
        """Begin the next generation."""

    def stop(self, error_message: str | None = None) -> None:
        """End the job."""


class Judge(NamedTuple):
    """What the driver knows of failures and resets.

    Attributes: is_blamed: returns whether a failure of a slot counts against its host.  is_refill: returns whether the
        next generation only replaces lost workers. Their loss was a reset already, and the limit counts it once.
    """

    is_blamed: Callable[[Slot], bool]
    is_refill: Callable[[], bool]


class WorkerStateRegistry:
    """The reports of the present generation.

    Args: failures_per_host: number of failures at which a host is blacklisted.

    Attributes: judge: what the driver knows of failures and resets.  history: records the reports.

    Thread safety: every method may be called from any thread.
    """

    def __init__(
        self,
        driver: Workforce,
        host_manager: HostManager,
        reset_limit: int | None = None,
        verbose: int = 0,
        failures_per_host: int = 1,
    ) -> None:
        self._driver, self._hosts, self._reset_limit = driver, host_manager, reset_limit
        self._failures_per_host = failures_per_host
        self.judge = Judge(lambda _: True, lambda: False)
        self.history = JobHistory()
        self._changed = threading.Condition(threading.RLock())
        self._states: dict[Slot, str] = {}
        self._generation = self._size = 0
        self.resets = 0
        self._is_deciding = False

    def get_recorded_slots(self) -> list[Slot]:
        """Return the slots that have reported in this generation."""
        with self._changed:
            return list(self._states)

    def get(self, state: str) -> set[Slot]:
        """Return the slots that have reported a state."""
        with self._changed:
            return {slot for slot, one in self._states.items() if one == state}

    def count(self, state: str) -> int:
        """Return the number of slots that have reported a state."""
        return len(self.get(state))

    def size(self) -> int:
        """Return the number of workers in this generation."""
        return self._size

    def last_rendezvous(self) -> int:
        """Return the number of this generation."""
        return self._generation

    def reset(self, size: int) -> None:
        """Begin a generation of `size` workers."""
        with self._changed:
            self._states = {}
            self._size = size
            self._generation += 1
            glog.info(f"generation {self._generation} has {size} workers")
            self._changed.notify_all()

    def restore(self, generation: int, size: int, resets: int) -> None:
        """Take over the generation of a driver that has ended."""
        with self._changed:
            self._generation, self._size, self.resets = generation, size, resets

    def wait_until(self, is_so: Callable[[], bool], wait: float | None) -> bool:
        """Wait at most `wait` seconds until a condition holds between two decisions, or the job is over.

        Args: is_so: called again after each change of the reports, and after `wake`.  wait: None: without a limit.
        Returns: whether the condition holds, or the job is over.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._driver.finished() or (not self._is_deciding and is_so()), wait)

    def wake(self) -> None:
        """Wake the waiting threads, which then check their conditions again."""
        with self._changed:
            self._changed.notify_all()

    def record_ready(self, host: str, slot: int) -> int:
        """Record that a worker is ready for the next generation; see `record`."""
        return self.record(host, slot, READY)

    def record_success(self, host: str, slot: int) -> int:
        """Record that a worker has finished its work; see `record`."""
        return self.record(host, slot, SUCCESS)

    def record_failure(self, host: str, slot: int) -> int:
        """Record that a worker has failed; see `record`."""
        return self.record(host, slot, FAILURE)

    def record(self, host: str, slot: int, state: str, counts: Callable[[], bool] = lambda: True) -> int:
        """Record the report of a worker, wait for the decision, and return the generation of the report.

        The call waits until all workers have reported, or until the job is over.

        Args: counts: called while no decision is being made; returns whether the reporting worker is still a member.
        Raises: RuntimeError: the worker was ready and has failed since then.
        """
        with self._changed:
            generation = self._note(host, slot, state, counts)
            if generation is None:
                return self._generation
            while not self._is_decided(generation):
                if state == READY and self._states.get((host, slot)) == FAILURE:
                    raise RuntimeError(f"the report READY of {host}[{slot}] was overridden by FAILURE")
                self._changed.wait()
            return generation

    def offer_ready(self, host: str, slot: int, wait: float, counts: Callable[[], bool]) -> bool:
        """Record that a worker is ready; return whether the decision has been made within `wait` seconds."""
        until = time.monotonic() + wait
        with self._changed:
            generation = self._note(host, slot, READY, counts, wait)
            if generation is None:
                return not self._is_deciding or self._driver.finished()
            return self._changed.wait_for(lambda: self._is_decided(generation), max(0.0, until - time.monotonic()))

    def _is_decided(self, generation: int) -> bool:
        return not self._is_deciding and (self._driver.finished() or self._generation != generation)

    def _note(
        self, host: str, slot: int, state: str, counts: Callable[[], bool], wait: float | None = None
    ) -> int | None:
        """Store a report; return its generation, or None if the worker is not a member of this generation."""
        self._changed.wait_for(lambda: not self._is_deciding or self._driver.finished(), wait)
        if self._is_deciding or self._driver.finished() or not counts():
            return None
        if self._hosts.is_blacklisted(host):
            glog.warning(f"{host}[{slot}] reports {state}, and its host is blacklisted: the report is ignored")
            return None
        known = self._states.get((host, slot))
        if known is None or (state == FAILURE and known != SUCCESS) or (known == READY and state == SUCCESS):
            glog.info(f"generation {self._generation}: {host}[{slot}] reports {state}")
            self._states[host, slot] = state
            self.history.report((host, slot), state)
            if state == FAILURE:
                self._driver.note_failure(self._generation, (host, slot))
            self._changed.notify_all()
        elif known != state:
            glog.error(f"{host}[{slot}] reports {state} after {known}: the report is ignored")
        if len(self._states) >= self._size and not self._is_deciding:
            self._is_deciding = True
            ServiceThread(self._decide, "decision").start()
        return self._generation

    def _decide(self) -> None:
        try:
            with self._changed:
                states = dict(self._states)
            is_refill = set(states.values()) == {READY} and self.judge.is_refill()
            limit = None if is_refill else self._reset_limit
            decision = decide(states, self._charge_once(states), self._hosts.is_blacklisted, self.resets, limit)
            self._carry_out(decision, is_refill)
        finally:
            with self._changed:
                self._is_deciding = False
                self._changed.notify_all()

    def _charge_once(self, states: dict[Slot, str]) -> Callable[[str], bool]:
        """Count the failures of this generation; return a function that returns whether a host has too many."""
        counts: dict[str, int] = {}
        for slot, state in states.items():
            if state == FAILURE and self.judge.is_blamed(slot):
                host = slot[0]
                counts[host] = self._hosts.charge(host)
        return lambda host: counts.get(host, 0) >= self._failures_per_host

    def _carry_out(self, decision: MembershipDecision, is_refill: bool) -> None:
        for host in decision.blacklist:
            self._hosts.blacklist(host)
        if decision.is_over:
            glog.info(f"generation {self._generation} is the last one: {decision.reason}")
            self._driver.stop(error_message=decision.error)
            return
        self.resets += not is_refill
        try:
            self._driver.resume()
        except Exception as exc:  # a job that cannot continue ends with this reason
            if self._driver.finished():
                return
            glog.error(f"no generation can follow generation {self._generation}: {exc}")
            self._driver.stop(error_message=f"the workers could not resume: {exc}")


class HeartbeatWatch:
    """Watches the heartbeats of all workers.

    Args:
    - timeout: seconds of silence after which a worker is ended; 0: never.
    - is_stopped: event that ends the watch.
    - hearing: heartbeat times of a driver that may be cut off from its workers.
    - reports: if all other workers have reported that they are ready, done or failed, a silent worker is ended after a
      third of the timeout.
    """

    def __init__(
        self,
        members: MemberTable,
        timeout: float,
        is_stopped: threading.Event,
        hearing: Hearing,
        reports: WorkerStateRegistry,
    ) -> None:
        self._members, self._timeout, self._is_stopped = members, timeout, is_stopped
        self._hearing, self._reports = hearing, reports
        self._short = min(timeout, max(timeout / 3, LEAST_S))
        self._thread = ServiceThread(self._run, "heartbeats")

    def start(self) -> None:
        """Start the watch."""
        if self._timeout > 0:
            self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def check(self, now: float) -> None:
        """End every worker whose last heartbeat is too old; `now` is in seconds of `time.monotonic`."""
        silent = {
            member: silence
            for member in self._members.list_live({})
            if member.heard is not None and (silence := self._hearing.measure_silence(member.heard, now)) > self._short
        }
        waited_for = self._list_waited_for(silent)
        for member, silence in silent.items():
            limit = self._short if member.slot in waited_for else self._timeout
            limit = max(limit, DONE_S) if member.is_done else limit
            if silence > limit:
                glog.error(f"{member.host}[{member.local_rank}] has sent no heartbeat for {limit:g} s, and is ended")
                member.is_silent = True
                member.kill()

    def _list_waited_for(self, silent: Collection[Incarnation]) -> set[Slot]:
        """Return the slots of silent workers without a report, if all other workers of the generation have reported."""
        recorded = set(self._reports.get_recorded_slots())
        missing = {member.slot for member in silent if not member.is_awaited} - recorded
        if not recorded or len(recorded) + len(missing) < self._reports.size():
            return set()
        return missing

    def _run(self) -> None:
        while not self._is_stopped.wait(min(self._timeout / 8, LOOK_S)):
            self.check(time.monotonic())
