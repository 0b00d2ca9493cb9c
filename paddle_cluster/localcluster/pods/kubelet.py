"""The kubelet of the local cluster: it creates, starts and ends the pods of a Job, and applies faults to them."""

from __future__ import annotations

import random
import signal
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from paddle_cluster.localcluster.addresses import Subnet
from paddle_cluster.localcluster.api.objects import PodState, pod_object
from paddle_cluster.localcluster.api.store import PodStore
from paddle_cluster.localcluster.errors import HostError
from paddle_cluster.localcluster.faults import Fault, Orders
from paddle_cluster.localcluster.job.manifest import JobSpec
from paddle_cluster.localcluster.pods.node import PodProcess
from paddle_cluster.localcluster.pods.pause import START_ERROR
from paddle_cluster.localcluster.pods.plan import Host, PodIdentity, PodPlan, plan_pod
from paddle_cluster.localcluster.pods.report import JobReporter

# Kubernetes uses the same letters for names, because they cannot form words
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
KILLED = 128 + signal.SIGKILL
HELD_BACK = ("Unschedulable", "0/1 nodes are available: 1 held back by --delay.")


@dataclass
class Pod:
    """A pod on this machine. Times are from the monotonic clock.

    number: the pod's index, or the pod's place in the order of creation if the pod has no index.
    plans: name and plan of each container that has not started yet; the last is the pod's own.
    """

    state: PodState
    number: int
    log: Path
    created: float
    delay: int | None = None
    plans: list[tuple[str, PodPlan]] = field(default_factory=list)
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
        """Whether the pod has not ended yet."""
        return not self.gone and not self.state.is_finished


@dataclass(frozen=True)
class Places:
    """The directories of the pods.

    `roots` has one directory for each pod, `logs` has one log for each pod, and `token_directory` has the files of the
    service account.
    """

    roots: Path
    logs: Path
    token_directory: Path


class Kubelet:
    """Holds all pods of one Job, in order of creation, and carries out the decisions about them.

    Thread safety: `lock` guards the pods. The condition `changed` of the lock is notified after each change and each
    line of output. The condition `work` of the lock is notified if the Job's controller has work to do.
    """

    def __init__(
        self,
        job: JobSpec,
        host: Host,
        places: Places,
        store: PodStore,
        subnet: Subnet,
        reporter: JobReporter,
        faults: Sequence[Fault] = (),
    ):
        self.pods: list[Pod] = []
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.work = threading.Condition(self.lock)
        self._job = job
        self._host = host
        self._places = places
        self._store = store
        self._subnet = subnet
        self._reporter = reporter
        self._orders = Orders(faults)
        self._uid = str(uuid.uuid4())

    def create(self, index: int | None, now: float) -> None:
        """Create a pod with this index; `start_if_open` starts it later."""
        suffix = "".join(random.choices(SUFFIX_LETTERS, k=5))
        name = f"{self._job.name}-{suffix}" if index is None else f"{self._job.name}-{index}-{suffix}"
        number = len(self.pods) if index is None else index
        state = PodState(
            name,
            self._job.name,
            str(uuid.uuid4()),
            self._uid,
            self._job.namespace,
            index,
            created=time.time(),
            grace_seconds=self._job.grace_seconds,
            labels=self._job.labels,
            annotations=self._job.annotations,
            container=self._job.container.name,
            image=self._job.container.image,
            service_account=self._job.service_account,
        )
        pod = Pod(state, number, self._places.logs / f"{name}.log", now)
        pod.delay = self._orders.take_delay(name, number)
        self.pods.append(pod)
        self._set(pod, waiting=HELD_BACK if pod.delay is not None else state.waiting)

    def start_if_open(self, pod: Pod, now: float) -> None:
        """Start a pod that has not run yet, if no --delay applies to the pod now."""
        if pod.process is not None or not pod.is_alive:
            return
        if pod.delay is None or self._orders.is_over(pod.delay, now - pod.created):
            self._start(pod)

    def _start(self, pod: Pod) -> None:
        address = self._subnet.take({each.state.ip for each in self.pods if each.is_alive})
        identity = PodIdentity(
            pod.state.name,
            pod.state.uid,
            address,
            pod.state.index,
            str(self._places.roots / pod.state.name),
            str(self._places.token_directory),
            pod.state.all_labels,
            pod.state.all_annotations,
        )
        pod.plans = [
            (each.name, plan_pod(replace(self._job, container=each), self._host, identity))
            for each in self._job.containers
        ]
        try:
            self._start_container(pod, ip=address)
        except OSError as error:
            raise HostError(f"cannot start {pod.state.name}: {error.strerror}: {error.filename}") from error

    def _start_container(self, pod: Pod, **changes: object) -> None:
        """Start the next container of a pod: the init containers, one after the other, and then the pod's own."""
        name, plan = pod.plans.pop(0)
        pod.process = PodProcess(plan, pod.log, self._line_hearer(pod), self._end_hearer(pod))
        if pod.plans:
            self._set(pod, init=name, started=time.time(), **changes)
        else:
            pod.started = time.monotonic()
            self._set(pod, phase="Running", init="", started=time.time(), **changes)

    def _set(self, pod: Pod, **changes: object) -> None:
        pod.state = pod.state.evolve(**changes)
        self._store.put(pod_object(pod.state))
        self._reporter.pod_changed(pod.state, time.time())
        self.changed.notify_all()

    def _remove(self, pod: Pod) -> None:
        pod.gone = True
        self._store.remove(pod.state.name, pod.state.namespace)
        self.changed.notify_all()

    def settle(self, pod: Pod, now: float) -> None:
        """Apply a fault or kill that is due to a pod, and update the pod's state after the end of its process."""
        if pod.is_alive and pod.end is None:
            self._strike(pod, now)
            if pod.kill_at is not None and now >= pod.kill_at and not pod.killed:
                self.kill(pod)
        if pod.is_alive and pod.end is not None:
            phase = "Succeeded" if pod.end == 0 else "Failed"
            self._set(pod, phase=phase, exit_code=pod.end, finished=time.time())
            if pod.state.deleted is not None:
                self._remove(pod)

    def kill(self, pod: Pod) -> None:
        """Kill all processes of a pod, as if its node were out of memory."""
        with self.lock:
            if pod.process is not None:
                pod.killed = True
                pod.process.kill()

    def delete(self, pod: Pod, disruption: str = "", grace: float | None = None) -> None:
        """Delete a pod like `kubectl delete pod`, with SIGTERM, grace period, SIGKILL, and removal from the list.

        Args: disruption: if given, the pod gets a condition DisruptionTarget with this reason, as from a drained node.
        grace: seconds from SIGTERM to SIGKILL; the default and maximum is the Job's own value.
        """
        with self.lock:
            if not pod.is_alive or pod.state.deleted is not None:
                return
            seconds = self._job.grace_seconds if grace is None else min(grace, self._job.grace_seconds)
            conditions = dict(pod.state.conditions)
            if disruption:
                conditions["DisruptionTarget"] = ("True", disruption, "")
            pod.kill_at = time.monotonic() + seconds
            self._set(pod, deleted=time.time(), grace_seconds=seconds, conditions=conditions)
            if pod.process is None:
                self._remove(pod)
            else:
                pod.process.terminate()
            self.work.notify()

    def kill_all(self) -> None:
        """Kill all processes of all pods, and wait until they have ended."""
        with self.lock:
            for pod in self.pods:
                pod.killed = True  # no further container starts
        for pod in list(self.pods):
            if pod.process is not None:
                pod.process.kill()
        for pod in list(self.pods):
            if pod.process is not None:
                pod.process.join()

    def next_looks(self, pod: Pod) -> list[float]:
        """Return the times (monotonic clock) of the next kill or fault of a pod that has not ended."""
        kill = [pod.kill_at] if pod.kill_at is not None and not pod.killed else []
        return kill + [when for _, when in self._timed(pod)]

    # ----- calls from the pods' threads -----

    def _line_hearer(self, pod: Pod) -> Callable[[str], None]:
        def hear(text: str) -> None:
            with self.lock:
                self._reporter.line(pod.state, pod.number, text)
                pod.due += self._orders.hear(pod.state.name, pod.number, text)
                self.changed.notify_all()
                if self._orders.faults:
                    self.work.notify()

        return hear

    def _end_hearer(self, pod: Pod) -> Callable[[int], None]:
        def hear(code: int) -> None:
            with self.lock:
                goes_on = pod.plans and code == 0 and not (pod.killed or pod.state.deleted)
                try:
                    if goes_on:
                        self._start_container(pod)
                        return
                except OSError as error:
                    self._reporter.say(f"cannot start {pod.state.name}: {error.strerror}: {error.filename}")
                    code = START_ERROR
                pod.end = code or (KILLED if pod.plans else 0)
                self.work.notify()

        return hear

    # ----- faults -----

    def _strike(self, pod: Pod, now: float) -> None:
        """Apply the first fault that is due; the next faults remain for the pod's replacement."""
        if pod.started is None or pod.killed or pod.state.deleted is not None:
            return
        due = pod.due + [each for each, when in self._timed(pod) if now >= when]
        if due:
            fault = self._orders.spend(due[0], pod.number)
            self._reporter.say(f"{fault}: applied to {pod.state.name}")
            if fault.kind == "kill":
                self.kill(pod)
            else:
                self.delete(pod)

    def _timed(self, pod: Pod) -> list[tuple[int, float]]:
        """Return (fault, time) for the delay of a waiting pod, or for the timed faults of a running pod."""
        if pod.started is None:
            since, faults = pod.created, [] if pod.delay is None else [pod.delay]
        else:
            since, faults = pod.started, self._orders.armed(pod.state.name, pod.number)
        seconds = ((each, self._orders.faults[each].seconds) for each in faults)
        return [(each, since + after) for each, after in seconds if after is not None]
