"""The Job controller, a thread that reads the pods' states, lets `policy` decide what to do, and calls the kubelet."""

from __future__ import annotations

import threading
import time

from paddle_cluster.localcluster.job import policy
from paddle_cluster.localcluster.job.manifest import JobSpec
from paddle_cluster.localcluster.job.policy import Failure, JobProgress, Outcome
from paddle_cluster.localcluster.pods.kubelet import Kubelet, Pod


class Controller:
    """Runs one Job to its end.

    Thread safety: the kubelet's lock guards all state. The Job's end also notifies the kubelet's condition `changed`.
    The functions of `policy` make all decisions about the Job; this class supplies the clock and the processes.
    """

    def __init__(self, job: JobSpec, kubelet: Kubelet, backoff_seconds: float = 0.5):
        self.job = job
        self.kubelet = kubelet
        self.outcome: Outcome | None = None
        self.progress = JobProgress()
        self.error: BaseException | None = None
        self._backoff_seconds = backoff_seconds
        self._ending: Outcome | None = None
        self._grace: float | None = None
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="job controller", daemon=True)

    # ----- calls from outside -----

    def start(self) -> None:
        """Begin the Job."""
        self._began = time.monotonic()
        self._thread.start()

    def stop(self, reason: str, message: str, grace: float | None = None) -> None:
        """End all pods (SIGTERM, grace, SIGKILL) and then the Job; a second call can shorten the grace period."""
        with self.kubelet.lock:
            self._grace = grace
            self._begin_end(Outcome("Failed", reason, message))
            for pod in self.kubelet.pods:
                if pod.is_alive and grace is not None and pod.kill_at is not None:
                    pod.kill_at = min(pod.kill_at, time.monotonic() + grace)
            self.kubelet.work.notify()

    def join(self) -> None:
        """Wait until the Job and all its processes have ended."""
        self._thread.join()

    def delete(self, pod: Pod, disruption: str = "") -> None:
        """Delete a pod like `kubectl delete pod`, with SIGTERM, grace period, SIGKILL, and removal from the list.

        Args: disruption: if given, the pod gets a condition DisruptionTarget with this reason, as from a drained node.
        """
        with self.kubelet.lock:
            self.kubelet.delete(pod, disruption, self._grace)

    # ----- the loop -----

    def _run(self) -> None:
        try:
            with self.kubelet.lock:
                while self.outcome is None:
                    wake = self._step(time.monotonic())
                    if self.outcome is None:
                        self.kubelet.work.wait(max(0.0, wake - time.monotonic()))
        except Exception as error:  # the threads that wait for the Job raise this error
            with self.kubelet.lock:
                self.error = error
                self._ending = self.outcome = Outcome("Failed", "LocalClusterError", str(error))
                self.kubelet.changed.notify_all()
        finally:
            self.kubelet.kill_all()

    def _step(self, now: float) -> float:
        """Do all work that is due; return the time by which this function must be called again."""
        for pod in self.kubelet.pods:
            self.kubelet.settle(pod, now)
            if not pod.counted and self._has_ended(pod):
                self._count(pod, now)
        alive = [pod for pod in self.kubelet.pods if pod.is_alive]
        if self._ending is None:
            active = sum(pod.state.deleted is None for pod in alive)
            verdict = policy.judge_job(self.progress, self.job, active, now - self._began)
            if verdict is not None:
                self._begin_end(verdict)
        if self._ending is not None:
            if not any(pod.is_alive for pod in self.kubelet.pods):
                self.outcome = self._ending
                self.kubelet.changed.notify_all()
            return min((pod.kill_at for pod in alive if pod.kill_at and not pod.killed), default=now + 60.0)
        self._create_pods(now)
        for pod in self.kubelet.pods:
            self.kubelet.start_if_open(pod, now)
        return self._next_look(now)

    def _begin_end(self, outcome: Outcome) -> None:
        if self._ending is None:
            self._ending = outcome
            for pod in self.kubelet.pods:
                self.delete(pod)

    def _has_ended(self, pod: Pod) -> bool:
        terminating = pod.state.deleted is not None
        return pod.gone or pod.state.is_finished or (terminating and self.job.replace_terminating)

    def _count(self, pod: Pod, now: float) -> None:
        pod.counted = True
        if pod.state.phase == "Succeeded":
            self.progress = policy.count_success(self.progress, pod.state.index)
            return
        conditions = {kind: status for kind, (status, _, _) in pod.state.conditions.items()}
        container = pod.state.init or self.job.container.name
        failure = Failure(pod.state.name, pod.state.index, pod.state.exit_code, container, conditions)
        self.progress = policy.count_failure(self.progress, self.job, failure, now)

    def _next_look(self, now: float) -> float:
        looks = [now + 60.0]
        if self.job.active_deadline_seconds is not None:
            looks.append(self._began + self.job.active_deadline_seconds)
        for pod in self.kubelet.pods:
            if pod.is_alive:
                looks += self.kubelet.next_looks(pod)
        looks += [policy.not_before(self.progress, index, self._backoff_seconds) for index in self._lacking()]
        return min(looks)

    # ----- pods -----

    def _lacking(self) -> list[int | None]:
        alive = [pod for pod in self.kubelet.pods if pod.is_alive]
        occupying = [pod.state.index for pod in alive if not (pod.counted and self.job.replace_terminating)]
        return policy.pods_wanted(self.progress, self.job, occupying)

    def _create_pods(self, now: float) -> None:
        for index in self._lacking():
            if now >= policy.not_before(self.progress, index, self._backoff_seconds):
                self.kubelet.create(index, now)
