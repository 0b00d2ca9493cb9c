"""The Job controller, kubelet and scheduler of one machine, in one thread: looks at the pods, acts, waits."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localcluster import policy
from localcluster.addresses import Subnet
from localcluster.errors import HostError
from localcluster.faults import Fault, Orders
from localcluster.manifest import JobSpec
from localcluster.node import PodProcess
from localcluster.objects import PodState, pod_object
from localcluster.plan import Host, Identity, plan_pod
from localcluster.policy import Failure, Outcome, Progress
from localcluster.report import Reporter
from localcluster.store import PodStore

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # those of Kubernetes: no words can arise
HELD_BACK = ("Unschedulable", "0/1 nodes are available: 1 held back by --delay.")


@dataclass
class Pod:
    """A pod as this machine knows it. Times are monotonic; number: its index, or without one its order of creation."""

    state: PodState
    number: int
    log: Path
    created: float
    delay: int | None = None
    process: PodProcess | None = None
    started: float | None = None
    end: int | None = None
    counted: bool = False
    gone: bool = False
    kill_at: float | None = None
    killed: bool = False
    due: list[int] = field(default_factory=list)

    @property
    def is_alive(self) -> bool:
        """Whether it still has to end."""
        return not self.gone and not self.state.is_finished


@dataclass(frozen=True)
class Places:
    """Where pods live on disk: roots (each has its own directory there), logs, and the service account's files."""

    roots: Path
    logs: Path
    token_directory: Path


class Controller:
    """Runs one Job to its end.

    Thread safety: `lock` guards everything; `changed` (of that lock) is notified on every change and every line of
    output. All decisions about the Job are `policy`'s; here they meet clocks and processes.
    """

    def __init__(
        self,
        job: JobSpec,
        host: Host,
        places: Places,
        store: PodStore,
        subnet: Subnet,
        reporter: Reporter,
        faults: Sequence[Fault] = (),
        backoff_seconds: float = 0.5,
    ):
        self.job = job
        self.pods: list[Pod] = []
        self.outcome: Outcome | None = None
        self.progress = Progress()
        self.error: BaseException | None = None
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self._work = threading.Condition(self.lock)
        self._host = host
        self._places = places
        self._store = store
        self._subnet = subnet
        self._reporter = reporter
        self._orders = Orders(faults)
        self._backoff_seconds = backoff_seconds
        self._uid = str(uuid.uuid4())
        self._ending: Outcome | None = None
        self._grace: float | None = None
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="job controller", daemon=True)

    # ----- from outside -----

    def start(self) -> None:
        """Begin the Job."""
        self._began = time.monotonic()
        self._thread.start()

    def stop(self, reason: str, message: str, grace: float | None = None) -> None:
        """End all pods (SIGTERM, grace, SIGKILL) and then the Job; a second call with a shorter grace shortens it."""
        with self.lock:
            self._grace = grace
            self._begin_end(Outcome("Failed", reason, message))
            for pod in self.pods:
                if pod.is_alive and grace is not None and pod.kill_at is not None:
                    pod.kill_at = min(pod.kill_at, time.monotonic() + grace)
            self._work.notify()

    def join(self) -> None:
        """Wait until the Job has ended and no process of it is left."""
        self._thread.join()

    def kill(self, pod: Pod) -> None:
        """Kill everything of a pod, as if its node's memory had run out."""
        with self.lock:
            if pod.process is not None:
                pod.killed = True
                pod.process.kill()

    def delete(self, pod: Pod, disruption: str = "") -> None:
        """Delete a pod as `kubectl delete pod` does: terminating, SIGTERM, grace, SIGKILL, gone.

        Args: disruption: the reason of a condition DisruptionTarget, as a drained node sets it.
        """
        with self.lock:
            if not pod.is_alive or pod.state.deleted is not None:
                return
            grace = self.job.grace_seconds if self._grace is None else min(self._grace, self.job.grace_seconds)
            conditions = dict(pod.state.conditions)
            if disruption:
                conditions["DisruptionTarget"] = ("True", disruption, "")
            pod.kill_at = time.monotonic() + grace
            self._set(pod, deleted=time.time(), grace_seconds=grace, conditions=conditions)
            if pod.process is None:
                self._remove(pod)
            else:
                pod.process.terminate()
            self._work.notify()

    # ----- the loop -----

    def _run(self) -> None:
        try:
            with self.lock:
                while self.outcome is None:
                    wake = self._step(time.monotonic())
                    if self.outcome is None:
                        self._work.wait(max(0.0, wake - time.monotonic()))
        except Exception as error:  # whoever waits for the Job must hear of it
            with self.lock:
                self.error = error
                self._ending = self.outcome = Outcome("Failed", "LocalClusterError", str(error))
                self.changed.notify_all()
        finally:
            self._kill_all()

    def _kill_all(self) -> None:
        for pod in list(self.pods):
            if pod.process is not None:
                pod.process.kill()
        for pod in list(self.pods):
            if pod.process is not None:
                pod.process.join()

    def _step(self, now: float) -> float:
        """Do all that is to be done now; return when to look again at the latest."""
        for pod in self.pods:
            self._settle(pod, now)
        alive = [pod for pod in self.pods if pod.is_alive]
        if self._ending is None:
            active = sum(pod.state.deleted is None for pod in alive)
            verdict = policy.judge_job(self.progress, self.job, active, now - self._began)
            if verdict is not None:
                self._begin_end(verdict)
        if self._ending is not None:
            if not any(pod.is_alive for pod in self.pods):
                self.outcome = self._ending
                self.changed.notify_all()
            return min((pod.kill_at for pod in alive if pod.kill_at and not pod.killed), default=now + 60.0)
        self._create_pods(now)
        for pod in self.pods:
            self._start_if_open(pod, now)
        return self._next_look(now)

    def _begin_end(self, outcome: Outcome) -> None:
        if self._ending is None:
            self._ending = outcome
            for pod in self.pods:
                self.delete(pod)

    def _settle(self, pod: Pod, now: float) -> None:
        """Bring a pod's state up to its process: strike what is due, take note of its end, count it once."""
        if pod.is_alive and pod.end is None:
            self._strike(pod, now)
            if pod.kill_at is not None and now >= pod.kill_at and not pod.killed:
                self.kill(pod)
        if pod.is_alive and pod.end is not None:
            phase = "Succeeded" if pod.end == 0 else "Failed"
            self._set(pod, phase=phase, exit_code=pod.end, finished=time.time())
            if pod.state.deleted is not None:
                self._remove(pod)
        if not pod.counted and self._has_ended(pod):
            self._count(pod, now)

    def _has_ended(self, pod: Pod) -> bool:
        terminating = pod.state.deleted is not None
        return pod.gone or pod.state.is_finished or (terminating and self.job.replace_terminating)

    def _count(self, pod: Pod, now: float) -> None:
        pod.counted = True
        if pod.state.phase == "Succeeded":
            self.progress = policy.count_success(self.progress, pod.state.index)
            return
        conditions = {kind: status for kind, (status, _, _) in pod.state.conditions.items()}
        failure = Failure(pod.state.name, pod.state.index, pod.state.exit_code, self.job.container.name, conditions)
        self.progress = policy.count_failure(self.progress, self.job, failure, now)

    def _next_look(self, now: float) -> float:
        looks = [now + 60.0]
        if self.job.active_deadline_seconds is not None:
            looks.append(self._began + self.job.active_deadline_seconds)
        for pod in self.pods:
            if not pod.is_alive:
                continue
            if pod.kill_at is not None and not pod.killed:
                looks.append(pod.kill_at)
            looks += [when for _, when in self._timed(pod)]
        looks += [policy.not_before(self.progress, index, self._backoff_seconds) for index in self._lacking()]
        return min(looks)

    # ----- pods -----

    def _lacking(self) -> list[int | None]:
        counts = [pod for pod in self.pods if pod.is_alive and not (pod.counted and self.job.replace_terminating)]
        return policy.pods_wanted(self.progress, self.job, [pod.state.index for pod in counts])

    def _create_pods(self, now: float) -> None:
        for index in self._lacking():
            if now >= policy.not_before(self.progress, index, self._backoff_seconds):
                self._create_pod(index, now)

    def _create_pod(self, index: int | None, now: float) -> None:
        suffix = "".join(random.choices(SUFFIX_LETTERS, k=5))
        name = f"{self.job.name}-{suffix}" if index is None else f"{self.job.name}-{index}-{suffix}"
        number = len(self.pods) if index is None else index
        state = PodState(
            name,
            self.job.name,
            str(uuid.uuid4()),
            self._uid,
            self.job.namespace,
            index,
            created=time.time(),
            grace_seconds=self.job.grace_seconds,
            labels=self.job.labels,
            annotations=self.job.annotations,
            container=self.job.container.name,
            image=self.job.container.image,
            service_account=self.job.service_account,
        )
        pod = Pod(state, number, self._places.logs / f"{name}.log", now)
        pod.delay = self._orders.take_delay(name, number)
        self.pods.append(pod)
        self._set(pod, waiting=HELD_BACK if pod.delay is not None else state.waiting)

    def _start_if_open(self, pod: Pod, now: float) -> None:
        if pod.process is not None or not pod.is_alive:
            return
        if pod.delay is None or self._orders.is_over(pod.delay, now - pod.created):
            self._start_pod(pod)

    def _start_pod(self, pod: Pod) -> None:
        address = self._subnet.take({each.state.ip for each in self.pods if each.is_alive})
        identity = Identity(
            pod.state.name,
            pod.state.uid,
            address,
            pod.state.index,
            str(self._places.roots / pod.state.name),
            str(self._places.token_directory),
            pod.state.all_labels,
            pod.state.all_annotations,
        )
        plan = plan_pod(self.job, self._host, identity)
        try:
            pod.process = PodProcess(plan, pod.log, self._line_hearer(pod), self._end_hearer(pod))
        except OSError as error:
            raise HostError(f"cannot start {pod.state.name}: {error.strerror}: {error.filename}") from error
        pod.started = time.monotonic()
        self._set(pod, phase="Running", ip=address, started=time.time())

    def _set(self, pod: Pod, **changes: object) -> None:
        pod.state = pod.state.evolve(**changes)
        self._store.put(pod_object(pod.state))
        self._reporter.pod_changed(pod.state, time.time())
        self.changed.notify_all()

    def _remove(self, pod: Pod) -> None:
        pod.gone = True
        self._store.remove(pod.state.name, pod.state.namespace)
        self.changed.notify_all()

    # ----- what the pods' threads say -----

    def _line_hearer(self, pod: Pod) -> Callable[[str], None]:
        def hear(text: str) -> None:
            with self.lock:
                self._reporter.line(pod.state, pod.number, text)
                pod.due += self._orders.hear(pod.state.name, pod.number, text)
                self.changed.notify_all()
                if self._orders.faults:
                    self._work.notify()

        return hear

    def _end_hearer(self, pod: Pod) -> Callable[[int], None]:
        def hear(code: int) -> None:
            with self.lock:
                pod.end = code
                self._work.notify()

        return hear

    # ----- faults -----

    def _strike(self, pod: Pod, now: float) -> None:
        """Let the first fault that is due strike; the others stay for the pod's replacement."""
        if pod.started is None or pod.killed or pod.state.deleted is not None:
            return
        due = pod.due + [each for each, when in self._timed(pod) if now >= when]
        if due:
            fault = self._orders.spend(due[0], pod.number)
            self._reporter.say(f"{fault}: strikes {pod.state.name}")
            if fault.kind == "kill":
                self.kill(pod)
            else:
                self.delete(pod)

    def _timed(self, pod: Pod) -> list[tuple[int, float]]:
        """Return (fault, its time) of those that go by seconds: a waiting pod's delay, or a running pod's others."""
        if pod.started is None:
            since, faults = pod.created, [] if pod.delay is None else [pod.delay]
        else:
            since, faults = pod.started, self._orders.armed(pod.state.name, pod.number)
        seconds = ((each, self._orders.faults[each].seconds) for each in faults)
        return [(each, since + after) for each, after in seconds if after is not None]
