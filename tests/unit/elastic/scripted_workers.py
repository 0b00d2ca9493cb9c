"""Workers of a driver that do what a test says, each in a thread, and no time passes unless something waits for it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from unittest import mock

from waiting import until

from paddle_cluster.elastic.discovery import FixedHosts
from paddle_cluster.elastic.driver import ElasticDriver, FailurePolicy
from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.membership.notifying import HostsNotice
from paddle_cluster.elastic.membership.results import WorkerEvents, WorkerExit

LIMIT_S = 60.0


class ScriptedProcess:
    """A process in a slot: it lives until the test or the driver ends it."""

    def __init__(self, slot: SlotInfo, events: WorkerEvents) -> None:
        self.slot, self.events = slot, events
        self.generation, self.incarnation = events.generation, events.incarnation
        self.commands: queue.Queue[int] = queue.Queue()
        self.is_stubborn = False  # it does not end when the driver wants it to

    @property
    def place(self) -> tuple[str, int]:
        return self.slot.hostname, self.slot.local_rank

    @property
    def is_told_to_end(self) -> bool:
        return any(event.is_set() for event in self.events)

    def run(self) -> WorkerExit:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            try:
                return WorkerExit(self.commands.get(timeout=0.005), time.time())
            except queue.Empty:
                if self.is_told_to_end and not self.is_stubborn:
                    return WorkerExit(143, time.time(), was_stopped=True)
        raise AssertionError("nobody has ended this process")


class ScriptedJob:
    """A driver with such workers."""

    def __init__(
        self, hosts: Mapping[str, int], least: int = 1, most: int | None = None, failures: int = 2, **more: Any
    ) -> None:
        self.discovery = more.pop("discovery", None) or FixedHosts(hosts)
        self.rendezvous = mock.Mock()
        policy = FailurePolicy(failures, more.pop("heartbeat_timeout", 0.0), more.pop("waits", True))
        more.setdefault("timeout", LIMIT_S)
        self.driver = ElasticDriver(self.rendezvous, self.discovery, least, most, policy=policy, **more)
        self.processes: list[ScriptedProcess] = []
        self._started = threading.Condition()
        self._pool = ThreadPoolExecutor(64)

    def create(self, slot: SlotInfo, events: WorkerEvents) -> WorkerExit:
        process = ScriptedProcess(slot, events)
        with self._started:
            self.processes.append(process)
            self._started.notify_all()
        return process.run()

    def start(self, count: int) -> list[ScriptedProcess]:
        self.driver.start(count, self.create)
        return self.wait_for(self.driver.world_size())

    def wait_for(self, count: int) -> list[ScriptedProcess]:
        """All processes so far, as soon as there are so many, in the order of their ranks."""
        with self._started:
            assert self._started.wait_for(lambda: len(self.processes) >= count, LIMIT_S), self.processes
            assert len(self.processes) == count
            return sorted(self.processes, key=lambda one: (one.generation, one.slot.rank))

    def ask(self, process: ScriptedProcess, generation: int | None = None) -> Future[tuple[SlotInfo, int] | None]:
        """A question for the next rank, as a client asks it."""
        host, local_rank = process.place
        generation = process.generation if generation is None else generation
        return self._pool.submit(self.driver.query_rank, host, local_rank, process.incarnation, generation, LIMIT_S)

    def ask_first(self, process: ScriptedProcess) -> Future[tuple[SlotInfo, int] | None]:
        """The first question of a newcomer, which has no generation."""
        return self.ask(process, generation=0)

    def succeed(self, process: ScriptedProcess) -> None:
        self.driver.record_done(*process.place, process.incarnation)
        process.commands.put(0)

    def recorded(self) -> dict[tuple[str, int], str]:
        registry = self.driver._worker_registry
        with registry._changed:
            return dict(registry._states)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for the registry to be as wanted; it tells of every change."""
        registry = self.driver._worker_registry
        with registry._changed:
            assert registry._changed.wait_for(is_so, LIMIT_S), self.recorded()

    def wait_for_hosts(self, is_so: Callable[[set[str]], bool]) -> None:
        """Wait for the discovery to have found what is wanted."""
        watch, manager = self.driver._watch, self.driver._host_manager
        with watch._looked:
            assert watch._looked.wait_for(lambda: is_so(manager.current_hosts.available_hosts), LIMIT_S)

    def wait_for_notice(self, after: int) -> HostsNotice:
        """The notices after a revision, as soon as there is one."""
        return until(lambda: self.driver.notices.find_after(after), "a notice of changed hosts")

    def finish(self) -> dict[str, int]:
        results = self.driver.get_results()
        self.driver.stop()
        self._pool.shutdown()
        assert results.error_message is None
        return {name: code for name, (code, _) in sorted(results.worker_results.items())}

    def end(self) -> str | None:
        """Stop the job, and return with which error it has failed."""
        self.driver.stop()
        for process in self.processes:
            process.is_stubborn = False
        message = self.driver.get_results().error_message
        self._pool.shutdown()
        return message
