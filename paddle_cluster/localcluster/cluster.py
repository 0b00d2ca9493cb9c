"""`Cluster`: one Job on one machine, for the command line and for tests."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from paddle_cluster.localcluster.addresses import PREFIXES, Subnet, claim_job
from paddle_cluster.localcluster.api.objects import PodState
from paddle_cluster.localcluster.api.server import ApiServer
from paddle_cluster.localcluster.api.store import PodStore
from paddle_cluster.localcluster.controller import Controller
from paddle_cluster.localcluster.errors import OptionError, WaitError
from paddle_cluster.localcluster.faults import compile_pattern, concerns, parse_faults
from paddle_cluster.localcluster.host import make_directories, make_host, make_logs, plan_trial, with_secret
from paddle_cluster.localcluster.job.manifest import JobSpec
from paddle_cluster.localcluster.pods.kubelet import Kubelet, Places, Pod
from paddle_cluster.localcluster.pods.plan import PodIdentity, job_directories, match_volumes, volumes_to_read
from paddle_cluster.localcluster.pods.report import JobReporter
from paddle_cluster.localcluster.result import OutputLine, Result, make_result, new_lines, tail
from paddle_cluster.localcluster.scratch import PREFIX, Scratch, sweep

TAIL_LINES = 8
T = TypeVar("T")


class Cluster:
    """A context manager that runs one Job as local processes, and ends all these processes.

    Args:
        job: the Job, from `load_job` (change it by `dataclasses.replace`).
        volumes: name of a volume or of its claim -> directory, which is created if it does not exist.
        entrypoint: a file that replaces the image's /root/start.sh.
        env: variables for all pods, which override the manifest's variables; container paths in them are replaced too.
        logs: directory for the pods' outputs (default: a new one, `own_logs`, removed when this process ends).
        kill, term, delay: faults, as `POD@WHEN` (see `paddle_cluster.localcluster.faults.parse_fault`).
        backoff_seconds: time between a failure and the replacement, doubled with each failure (a real cluster: 10).
        grace: seconds from SIGTERM to SIGKILL if the cluster is closed early; at most the Job's own grace period.
        reporter: receives all events; silent by default.
        networks: /24 networks of this machine, each as its first three numbers; the pods get addresses of a network
            that no other localcluster uses.

    Raises: LocalClusterError: if an argument is wrong, or another cluster runs this Job, before any pod has started.
    """

    def __init__(
        self,
        job: JobSpec,
        *,
        volumes: Mapping[str, str | Path] | None = None,
        entrypoint: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        logs: str | Path | None = None,
        kill: Iterable[str] = (),
        term: Iterable[str] = (),
        delay: Iterable[str] = (),
        backoff_seconds: float = 0.5,
        grace: float = 5.0,
        reporter: JobReporter | None = None,
        networks: Sequence[str] = PREFIXES,
    ):
        orders = {"kill": kill, "term": term, "delay": delay}
        faults = parse_faults(orders, (job.completions or 1) if job.indexed else None)
        given = match_volumes(job, {name: str(directory) for name, directory in (volumes or {}).items()})
        self.store = PodStore()
        self._reporter = reporter or JobReporter()
        self._grace = grace
        self._began: float | None = None
        # an error below removes what was made so far, because nobody can close an object that does not exist
        with contextlib.ExitStack() as stack:
            self.swept = sweep()
            stack.callback((scratch := Scratch()).remove)
            roots = scratch.path
            subnet = Subnet(networks)
            stack.callback(subnet.close)
            self.api = ApiServer(
                self.store, namespace=job.namespace, host=subnet.api_address, service_account=job.service_account
            )
            stack.callback(self.api.close)
            directories = make_directories(given, volumes_to_read(job))
            stack.enter_context(claim_job(job.name, job_directories(job, directories, env or {})))
            place = make_host(directories, entrypoint, env or {}, self.api.host, self.api.port)
            host = with_secret(place, job, roots / "secret")
            identity = PodIdentity("check", "", subnet.api_address, None, str(roots), str(roots))
            # an error of the manifest ends the run before a pod has started
            self._trial = plan_trial(job, host, identity)
            self.own_logs: Scratch | None = None
            if logs is None:
                self.own_logs = Scratch(f"{PREFIX}logs-")
                atexit.register(self.own_logs.remove)
                logs = self.own_logs.path
            self._places = Places(roots, make_logs(logs), roots / "serviceaccount")
            if job.mounts_token:
                self.api.write_service_account(self.service_account_directory)
            self._kubelet = Kubelet(job, host, self._places, self.store, subnet, self._reporter, faults)
            self._controller = Controller(job, self._kubelet, backoff_seconds)
            self._resources = stack.pop_all()

    @property
    def job(self) -> JobSpec:
        """The given Job."""
        return self._controller.job

    @property
    def service_account_directory(self) -> Path:
        """The directory with the files of the service account, which the pods read."""
        return self._places.token_directory

    @property
    def logs(self) -> Path:
        """The directory of the pods' outputs, one file per pod."""
        return self._places.logs

    # ----- lifecycle -----

    def start(self) -> Cluster:
        """Begin the Job, and return immediately."""
        for replacement in self._trial.replacements:
            self._reporter.replaced(replacement)
        self._began = time.monotonic()
        self._controller.start()
        return self

    def stop(self, reason: str = "Stopped", message: str = "stopped from outside", grace: float | None = None) -> None:
        """Begin to end all pods and then the Job (as Failed), and return at once; `wait` waits for the end."""
        self._controller.stop(reason, message, self._grace if grace is None else grace)

    def close(self) -> None:
        """End all processes and free all resources except the logs; a second call has no effect."""
        if self._began is not None:
            self.stop()
            self._controller.join()
        self._resources.close()

    @property
    def output(self) -> Path:
        """The output directory of a training Job, from its JOB_PATH and JOB_NAME; it may be missing."""
        return Path(self._trial.env.get("JOB_PATH", ""), self._trial.env.get("JOB_NAME", ""), "output")

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ----- waiting -----

    def wait(self, deadline: float | None = None) -> Result:
        """Wait for the Job's end and return the result.

        Args: deadline: maximum seconds to wait.
        Raises: WaitError: if the Job did not end in time. LocalClusterError: if a pod could not be started.
        """
        self._await(lambda: self._controller.outcome, deadline, "the Job's end")
        self._controller.join()
        return self.result()

    def wait_for_phase(self, pod: str, phase: str, deadline: float) -> PodState:
        """Wait until the newest pod with this index or name pattern is in a phase, and return the pod's state.

        Raises: WaitError: if the deadline has passed, or the Job has ended.
        """

        def look() -> PodState | None:
            newest = self._find(pod)[-1:]
            return newest[0].state if newest and newest[0].state.phase == phase else None

        return self._await(look, deadline, f"phase {phase} of pod {pod}")

    def wait_for_output(self, pattern: str, deadline: float, pod: str = "*") -> OutputLine:
        """Wait until a line of a pod's output matches, and return the line; earlier output is searched, too.

        Raises: WaitError: if the deadline has passed, or the Job has ended. OptionError: if the pattern is invalid.
        """
        expression = compile_pattern(pattern, "wait_for_output")
        offsets: dict[Path, int] = {}

        def look() -> OutputLine | None:
            for each in self._find(pod):
                for text in new_lines(each.log, offsets):
                    if match := expression.search(text):
                        return OutputLine(each.state.name, text, match)
            return None

        return self._await(look, deadline, f"a line like {pattern!r} of pod {pod}")

    def _await(self, look: Callable[[], T | None], deadline: float | None, what: str) -> T:
        """Call `look` after each change until its result is not None, and return this result."""
        end = None if deadline is None else time.monotonic() + deadline
        with self._kubelet.lock:
            while True:
                found = look()
                if self._controller.error is not None:
                    raise self._controller.error
                if found is not None:
                    return found
                outcome = self._controller.outcome
                if outcome is not None:
                    ended = f"the Job ended before this happened: {outcome.type} ({outcome.reason}: {outcome.message})"
                    raise WaitError(f"{what}: {ended}{self._last_lines()}")
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise WaitError(f"{what}: this did not happen within {deadline:g} s{self._last_lines()}")
                self._kubelet.changed.wait(left)

    def _last_lines(self) -> str:
        """Return the last lines of the pods' outputs, which explain why a wait has failed."""
        lines = []
        for pod in self._kubelet.pods:
            lines.append(f"\n--- {pod.state.name} {pod.state.phase} exit_code={pod.state.exit_code}")
            lines += tail(pod.log, TAIL_LINES)
        return "\n".join(lines)

    # ----- inspection and faults -----

    def pods(self) -> list[PodState]:
        """Return the states of all pods so far, in order of creation."""
        with self._kubelet.lock:
            return [pod.state for pod in self._kubelet.pods]

    def processes(self, pod: str) -> list[tuple[int, str]]:
        """Return (process id, command line) of all processes of a pod; the pod's program is the first.

        Raises: OptionError: if there is no such pod.
        """
        process = self._newest(pod).process
        return [] if process is None else process.processes()

    def kill(self, pod: str, process: str | None = None, signum: int = signal.SIGKILL) -> None:
        """Kill the newest pod with this index or name pattern, or send a signal to some of its processes.

        Args: process: a regular expression; only processes whose command line matches receive the signal (default: all
        processes of the pod). The pod ends only when its first process ends. signum: the signal.
        Raises: OptionError: if there is no such pod or process.
        """
        found = self._newest(pod)
        if process is None and signum == signal.SIGKILL:
            self._kubelet.kill(found)
            return
        matching = [number for number, line in self.processes(pod) if re.search(process or "", line)]
        if not matching:
            raise OptionError(f"pod {pod} runs no process like {process!r}")
        for number in matching:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signum)

    def terminate(self, pod: str, disruption: str = "") -> None:
        """Delete the newest pod with this index or name pattern, as `kubectl delete pod` or the drain of a node does.

        Args: disruption: if given, the pod gets a condition DisruptionTarget with this reason, such as
        EvictionByEvictionAPI.
        Raises: OptionError: if there is no such pod.
        """
        self._controller.delete(self._newest(pod), disruption)

    def result(self) -> Result:
        """Return the result of the Job.

        Raises: WaitError: if the Job has not ended.
        """
        with self._kubelet.lock:
            outcome = self._controller.outcome
            if outcome is None:
                raise WaitError(f"Job {self.job.name} has not ended")
            pods = list(self._kubelet.pods)
        return make_result(outcome, pods, time.monotonic() - (self._began or 0.0))

    def _find(self, pod: str) -> list[Pod]:
        return [each for each in self._kubelet.pods if concerns(pod, each.state.name, each.number)]

    def _newest(self, pod: str) -> Pod:
        with self._kubelet.lock:
            found = self._find(pod)
        if not found:
            raise OptionError(f"there is no pod {pod}")
        return found[-1]
