"""`Deployment` keeps the pods of one program running, for jobs with a variable number of pods (docs/tasks.md).

The programs of such a job find each other in a store; they do not call the API server and need no Service. This module
therefore imitates only the pods of a Deployment. `Deployment` keeps the number of pods constant, restarts an ended
program in its pod, and can scale, delete and lose pods. For Jobs, use `Cluster`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from paddle_cluster.localcluster.errors import HostError, OptionError
from paddle_cluster.localcluster.host import inherited_env, resolve
from paddle_cluster.localcluster.pods.node import PodProcess
from paddle_cluster.localcluster.pods.plan import PodPlan

LOOPBACK = "127.0.0.1"
KILL_S = 30.0  # maximum time for a pod's processes to end after SIGKILL


@dataclass
class DeployedPod:
    """One pod, which stays in the list of pods after its end. Times are from the monotonic clock.

    number: order of creation, from 0.  log: file with the output of the program's latest start.  ends: the exit
    statuses of the program so far (128 + signal after a signal).  is_leaving: whether the pod was deleted, lost, or
    removed by scaling.
    """

    number: int
    name: str
    uid: str
    address: str
    log: Path
    ends: list[int] = field(default_factory=list)
    starts: int = 0
    is_leaving: bool = False
    process: PodProcess | None = None
    start_at: float | None = 0.0
    kill_at: float | None = None

    @property
    def is_running(self) -> bool:
        """Whether the pod's program is running."""
        return self.process is not None

    @property
    def is_over(self) -> bool:
        """Whether the pod's program has ended and will not be restarted."""
        return self.process is None and self.start_at is None


@dataclass(frozen=True)
class PodTemplate:
    """The common properties of a Deployment's pods.

    command: the program; its environment also contains POD_NAME, POD_UID and POD_IP, which override `env`.  restart_s:
    seconds from a program's end to its next start in the same pod (Kubernetes: 10, doubled each time).  grace_s:
    seconds from SIGTERM to SIGKILL.
    """

    name: str
    command: tuple[str, ...]
    directory: Path
    env: Mapping[str, str] = field(default_factory=dict)
    restart_s: float = 0.3
    grace_s: float = 30.0


class Deployment:
    """A context manager that keeps the pods of one program running, and ends all its processes.

    A program that ends with status 0 is finished and not restarted, as in a Job; a program that ends with any other
    status is restarted.

    The links in the template's directory and in `logs` are resolved once, when the object is created.

    Args: logs: directory of the outputs, with a file for each start: <name>-<number>.<start>.log.  hear: function that
    is called with (name of the pod, event) for each start and end; the function must not call this object.
    take_address: returns the address of a new pod; by default all pods have 127.0.0.1.
    """

    def __init__(
        self,
        template: PodTemplate,
        logs: Path,
        replicas: int = 0,
        hear: Callable[[str, str], None] = lambda name, what: None,
        take_address: Callable[[], str] = lambda: LOOPBACK,
    ) -> None:
        self._template = replace(template, directory=resolve(template.directory))
        self._logs = resolve(logs)
        self._hear = hear
        self._take_address = take_address
        self._pods: list[DeployedPod] = []
        self._replicas = 0
        self._closing = False
        self._error: OSError | None = None
        self._work = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"deployment {template.name}", daemon=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        self.scale(replicas)

    # ----- calls from outside -----

    def pods(self) -> list[DeployedPod]:
        """Return all pods so far, in order of creation."""
        with self._work:
            return list(self._pods)

    def scale(self, replicas: int) -> None:
        """Set the number of pods, including finished pods; if there are too many pods, the newest pods are deleted."""
        with self._work:
            self._replicas = replicas
            for pod in self._kept()[replicas:]:
                self._delete(pod)
            self._work.notify_all()

    def delete(self, number: int) -> None:
        """Delete a pod as the drain of a node does (SIGTERM, grace period, SIGKILL). Start a replacement at once."""
        with self._work:
            self._delete(self._find(number))
            self._work.notify_all()

    def lose(self, number: int) -> None:
        """Kill all processes of a pod; the pod is not restarted, and a replacement starts immediately."""
        with self._work:
            pod = self._find(number)
            pod.is_leaving, pod.start_at = True, None
            if pod.process is not None:
                pod.process.kill()
            self._work.notify_all()

    def give_up(self, number: int) -> None:
        """Start a replacement for a pod whose program continues, as if the pod's node were unreachable."""
        with self._work:
            pod = self._find(number)
            pod.is_leaving, pod.start_at = True, None
            self._work.notify_all()

    def kill(self, number: int) -> None:
        """Kill a pod's program, which is then started again in the same pod."""
        with self._work:
            pod = self._find(number)
            if pod.process is not None:
                pod.process.kill()

    def send(self, number: int, signum: signal.Signals) -> bool:
        """Send a signal to a pod's program; return whether the program was running."""
        with self._work:
            process = self._find(number).process
            found = process.processes()[:1] if process is not None else []
            for pid, _ in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signum)
            return bool(found)

    def wait(self, seconds: float) -> bool:
        """Wait until no program runs or is about to start; return False if the deadline passes first.

        Raises: HostError: if a program could not be started.
        """
        with self._work:
            self._work.wait_for(lambda: self._error or self._is_idle(), seconds)
            if self._error is not None:
                what = f"{self._error.strerror}: {self._error.filename}"
                raise HostError(f"cannot start {self._template.name}: {what}")
            return self._is_idle()

    def close(self) -> None:
        """Kill all remaining processes; a second call has no effect."""
        with self._work:
            self._closing = True
            processes = [pod.process for pod in self._pods if pod.process is not None]
            for process in processes:
                process.kill()
            self._work.notify_all()
        self._thread.join()
        for process in processes:
            process.join(KILL_S)

    def __enter__(self) -> Deployment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ----- the loop; the following methods are called with the lock held -----

    def _run(self) -> None:
        with self._work:
            while not self._closing:
                wake = self._step(time.monotonic())
                self._work.wait(None if wake is None else max(0.0, wake - time.monotonic()))

    def _step(self, now: float) -> float | None:
        """Do all work that is due; return the time of the next work, or None if only a change can cause work."""
        while len(self._kept()) < self._replicas:
            self._create()
        for pod in self._pods:
            if pod.process is not None and pod.kill_at is not None and now >= pod.kill_at:
                pod.kill_at = None
                pod.process.kill()
            if pod.start_at is not None and now >= pod.start_at:
                self._start(pod)
        due = (when for pod in self._pods for when in (pod.start_at, pod.kill_at))
        return min((when for when in due if when is not None), default=None)

    def _create(self) -> None:
        number = len(self._pods)
        name = f"{self._template.name}-{number}"
        self._pods.append(DeployedPod(number, name, str(uuid.uuid4()), self._take_address(), self._logs / name))

    def _start(self, pod: DeployedPod) -> None:
        pod.start_at = None
        pod.log = self._logs / f"{pod.name}.{pod.starts}.log"
        pod.starts += 1
        own = {"POD_NAME": pod.name, "POD_UID": pod.uid, "POD_IP": pod.address}
        directory = str(self._template.directory)
        env = {**inherited_env(os.environ), **self._template.env, **own}
        plan = PodPlan((directory,), directory, self._template.command, env, ())
        try:
            pod.process = PodProcess(plan, pod.log, lambda line: None, lambda code: self._ended(pod, code))
        except OSError as error:
            self._error = error
            self._work.notify_all()
            return
        self._hear(pod.name, "started")

    def _ended(self, pod: DeployedPod, code: int) -> None:
        """Record a program's end; called by the thread that has waited for the program."""
        with self._work:
            pod.ends.append(code)
            pod.process = pod.kill_at = None
            if code and not pod.is_leaving:
                pod.start_at = time.monotonic() + self._template.restart_s
            if not self._closing:
                self._hear(pod.name, f"ended with {code}")
            self._work.notify_all()

    def _delete(self, pod: DeployedPod) -> None:
        pod.is_leaving, pod.start_at = True, None
        if pod.process is not None:
            pod.process.terminate()
            pod.kill_at = time.monotonic() + self._template.grace_s

    def _kept(self) -> list[DeployedPod]:
        return [pod for pod in self._pods if not pod.is_leaving]

    def _find(self, number: int) -> DeployedPod:
        if not 0 <= number < len(self._pods):
            raise OptionError(f"there is no pod {self._template.name}-{number}")
        return self._pods[number]

    def _is_idle(self) -> bool:
        return len(self._kept()) >= self._replicas and all(pod.is_over for pod in self._pods)
