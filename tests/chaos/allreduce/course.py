"""Runs a job from its start to its end, and harms it; each harm (Blow) follows an event and not a point in time."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable

from chaos.allreduce import verdict
from chaos.allreduce.job import AllReduceJob
from chaos.allreduce.ledger import WorkerRecord
from chaos.allreduce.plan import HOSTS, LASTING, SCALES, STEPS, Blow
from chaos.tasks.job import read
from paddle_cluster.localcluster.deployment import DeployedPod

STALL_BOUND = 45.0  # seconds without a commit and without a line of log, after which the job counts as hanging
HARD_BOUND = 150.0  # maximum seconds of a job, also on a busy machine
TORCH_FACTOR = 2  # for both bounds: each new worker of such a job imports torch, for 2 s, or 15 s on a busy machine
END_BOUND = 40.0  # maximum seconds from the job's end to the end of its workers; an agent ends them after 25
LOOK_S = 0.01
REPORT = re.compile(r" reports (?:READY|FAILURE)")
GENERATION = re.compile(r" generation \d+ has \d+ workers")


class AllReduceCourse:
    """Runs a trial's job.

    Attributes: see `AllReduceReport`.
    """

    def __init__(self, job: AllReduceJob) -> None:
        self._job = job
        self.seconds = self.pause = 0.0
        self.done: list[str] = []
        self.missed: list[str] = []
        self.faults: list[str] = []
        self._waiting: list[Blow] = list(job.trial.blows)
        self._scales = list(SCALES) if job.trial.is_scaled else []
        self._later: list[tuple[Callable[[], bool], Callable[[], None]]] = []  # (condition, action)
        self._struck: dict[str, int] = {}  # name of a harmed worker -> its number of commits then
        self._counts = (0, 0)  # numbers of reports and generations at the first blow
        self._ends, self._has_failed = 0, False  # number of drivers' ends; whether a driver ended wrongly
        self._began = 0.0

    @property
    def struck_hosts(self) -> set[str]:
        """The hosts whose workers were harmed, and the hosts that were removed."""
        left = {pod.address for pod in self._job.deployments["host"].pods() if pod.is_leaving}
        return left | {self._job.ledger.workers[name].host for name in self._struck}

    def run(self) -> None:
        """Run the job until the driver and all workers have ended, or until the job hangs."""
        self._began = advanced = committed = time.monotonic()
        factor = TORCH_FACTOR if self._job.trial.is_torch else 1
        self._job.start(HOSTS)
        seen = (-1, 0)
        while not self._job.deployments["driver"].wait(0):
            now = time.monotonic()
            self._look()
            size = sum(path.stat().st_size for path in self._job.logs.iterdir())
            if self._job.ledger.steps > seen[0]:
                self.pause = max(self.pause, now - committed) if seen[0] > 0 else 0.0
                committed = now
            if (self._job.ledger.steps, size) != seen:
                seen, advanced = (self._job.ledger.steps, size), now
            if self._is_late():
                break
            is_late = now - advanced > factor * STALL_BOUND or now - self._began > factor * HARD_BOUND
            if is_late or self._has_failed:
                self.faults.append(f"the job has not ended after {now - self._began:.0f} s; {seen[0]} of {STEPS} steps")
                break
            time.sleep(LOOK_S)
        self.seconds = time.monotonic() - self._began
        self.missed += [str(blow) for blow in self._waiting]
        self._end()

    def _look(self) -> None:
        self._job.ledger.look()
        self._job.publish_hosts()
        later, self._later = self._later, []
        for is_due, act in later:
            if is_due():
                act()
            else:
                self._later.append((is_due, act))
        if self._scales and self._job.ledger.steps >= self._scales[0][0] * STEPS and self._scale(self._scales[0][1]):
            del self._scales[0]
        self._waiting = [blow for blow in self._waiting if not (self._has_come(blow) and self._strike(blow))]

    def _is_late(self) -> bool:
        """Whether the driver ended because a worker failed after other workers had finished the work.

        Kubernetes would then start the driver again, and the work would begin with the first step.
        """
        pods = self._job.deployments["driver"].pods()
        count = sum(len(pod.ends) for pod in pods)
        if count == self._ends:
            return False
        self._ends, logs = count, self._job.read_logs()
        self._has_failed = bool(verdict.check_ends({"driver": pods}, logs, self.struck_hosts))
        late = any(verdict.is_late(log, self.struck_hosts) for name, log in logs.items() if name.startswith("driver"))
        if late or self._has_failed:
            self._job.deployments["driver"].scale(0)
        return late

    def _end(self) -> None:
        """End all temporary harms, and wait until all workers have ended except those that stay frozen."""
        until = time.monotonic() + END_BOUND
        for _, act in self._later:
            act()
        left = self._list_left()
        while left and not self.faults and time.monotonic() < until:
            time.sleep(LOOK_S)
            left = self._list_left()
        if not self.faults:
            self.faults += [f"worker {one.name} on {one.host} has not ended with its job" for one in left]
        self._job.deployments["host"].scale(0)
        self._job.deployments["host"].wait(END_BOUND / 4)

    def _list_left(self) -> list[WorkerRecord]:
        self._job.ledger.look()
        frozen = {f"{blow.role}" for blow in self._job.trial.blows if blow.lasts == "never"}
        return [
            worker
            for worker in self._job.ledger.begun
            if self._job.find_processes(worker) and not (frozen and worker.name in self._struck)
        ]

    # ----- the moments -----

    def _has_come(self, blow: Blow) -> bool:
        """Whether the moment of a blow has come."""
        if blow.moment == "begin":
            return bool(self._job.ledger.begun)
        if blow.moment in ("step", "end"):
            return self._job.ledger.steps >= (STEPS - 1 if blow.moment == "end" else blow.share * STEPS)
        if self._job.trial.blows[0] in self._waiting:
            return False
        if blow.moment == "with":
            return True
        reports, generations = self._count()
        return reports > self._counts[0] if blow.moment == "report" else generations > self._counts[1]

    def _count(self) -> tuple[int, int]:
        """Return the numbers of reports and generations so far, from the drivers' logs."""
        text = "".join(log for name, log in self._job.read_logs().items() if name.startswith("driver"))
        return len(REPORT.findall(text)), len(GENERATION.findall(text))

    # ----- the harms -----

    def _scale(self, count: int) -> bool:
        """Scale the hosts to `count`, if a remaining host has a worker with the state; return whether it was done."""
        hosts = self._job.pods("host")
        if not self._holders([pod.address for pod in hosts[:count]]):
            return False
        self._say(f"{count} hosts")
        self._job.deployments["host"].scale(count)
        return True

    def _holders(self, addresses: list[str]) -> list[WorkerRecord]:
        return [
            one
            for one in self._job.ledger.list_holders(self._struck)
            if one.host in addresses and self._job.find_processes(one)
        ]

    def _strike(self, blow: Blow) -> bool:
        """Strike a blow; return whether its target exists and, for a worker, another worker has the state."""
        if blow.role == "driver":
            pods = self._job.pods("driver")
            if not pods:
                return False
            self._harm(blow, pods[0], [])
            return True
        hosts = self._job.pods("host")
        places = {pod.address: pod for pod in hosts}
        workers = [one for one in self._job.ledger.begun if one.host in places and self._job.find_processes(one)]
        workers = [one for one in workers if self._holders([host for host in places if host != one.host])]
        if not workers:
            return False
        worker = workers[blow.number % len(workers)]
        pod = places[worker.host]
        mates = (
            [worker] if blow.role == "worker" else [one for one in self._job.ledger.begun if one.host == worker.host]
        )
        if blow.role != "worker" or blow.harm != "cut":
            self._struck |= {one.name: len(one.commits) for one in mates}
        self._harm(blow, pod, self._job.find_processes(worker))
        return True

    def _harm(self, blow: Blow, pod: DeployedPod, worker: list[int]) -> None:
        self._counts = self._count() if blow is self._job.trial.blows[0] else self._counts
        kind = "driver" if blow.role == "driver" else "host"
        if blow.harm == "cut":
            self._cut(blow, pod)
        elif blow.harm == "freeze":
            own = {"worker": worker[:1], "host": self._job.list_processes(pod)}
            frozen = own.get(blow.role, self._job.list_processes(pod)[:1])
            self._job.send(frozen, signal.SIGSTOP)
            if blow.is_pod:
                self._job.deployments[kind].give_up(pod.number)
            self._until(
                blow,
                lambda: self._job.send(frozen, signal.SIGCONT),
                (lambda: self._leads_after(pod)) if blow.is_pod else None,
            )
        elif blow.role == "worker":
            number = signal.SIGKILL if blow.harm == "kill" else signal.SIGTERM
            self._job.send(worker if blow.is_pod else worker[:1], number)
        elif blow.harm == "kill" and blow.is_pod:
            self._job.lose(kind, pod)
        elif blow.harm == "kill":
            self._job.send(self._job.list_processes(pod)[:1], signal.SIGKILL)
        elif blow.is_pod or blow.role == "host":
            self._job.deployments[kind].delete(pod.number)
        else:
            self._job.deployments[kind].send(pod.number, signal.SIGTERM)
        self._say(f"{blow} ({pod.name}{f', process {worker[0]}' if worker else ''})")

    def _cut(self, blow: Blow, pod: DeployedPod) -> None:
        """Cut a host or the driver off from all others, an agent from the driver, or workers from other hosts."""
        if blow.role in ("host", "driver"):
            self._job.cut(pod)
            self._until(blow, lambda: self._job.heal(pod))
            return
        others = self._job.pods("driver") if blow.role == "agent" else self._job.pods("host")
        parted = [pod, *(one for one in others if one is not pod)]
        self._job.part(parted, True)
        self._until(blow, lambda: self._job.part(parted, False))

    def _leads_after(self, pod: DeployedPod) -> bool:
        """Whether another driver has replaced a driver that was given up."""
        drivers = self._job.deployments["driver"].pods()
        return any(" generation " in read(one.log) for one in drivers if one.number > pod.number)

    def _until(self, blow: Blow, end: Callable[[], None], is_due: Callable[[], bool] | None = None) -> None:
        """Schedule the end of a harm; by default it ends after its number of seconds."""
        until = time.monotonic() + LASTING.get(blow.lasts, 0.0)

        def act() -> None:
            self._say(f"{blow.harm} of {blow.role} is over")
            end()

        if blow.lasts != "never":
            self._later.append((is_due or (lambda: time.monotonic() >= until), act))

    def _say(self, what: str) -> None:
        self.done.append(f"{time.monotonic() - self._began:.2f} s, step {self._job.ledger.steps}: {what}")
