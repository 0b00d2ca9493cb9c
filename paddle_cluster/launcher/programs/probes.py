"""Answer the liveness and readiness probes of the pod, at /healthz and /readyz."""

from __future__ import annotations

import http
import http.client
import math
import time
from collections.abc import Callable, Sequence

from paddle_base.runtime.network.pages import Pages, serve
from paddle_base.runtime.network.timed import TimedConnection
from paddle_cluster.launcher.cluster.kubernetes import PodApi
from paddle_cluster.launcher.programs.process import Program
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import say

# Seconds for the whole answer of a program. A probe may need four answers (two pages of two programs). The timeout of a
# probe in k8s/job.yaml is longer than four of these waits.
ASK_TIMEOUT_S = 1.0
JUDGED_S = 1.0  # seconds for which an answer is reused


class PodHealth:
    """The answers of /healthz and /readyz of the pod, which depend on the answers of the pod's programs.

    A pod is stuck in three cases: a program reports that it is stuck, a program has not answered for
    PADDLE_STUCK_TIMEOUT, or the launcher has waited for one answer of the API server for PADDLE_STUCK_TIMEOUT. A pod
    that waits for the volume is not stuck, because a new pod would wait for the volume as well.

    Thread safety: the main thread sets `programs` and the client's `asking_since`. The thread that answers probes only
    reads these attributes.
    """

    def __init__(
        self, host: str, limit_s: float, api: PodApi | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Args: host: address of the programs. limit_s: PADDLE_STUCK_TIMEOUT. api: the client of the API server."""
        self.host, self.limit_s, self.api, self.clock = host, limit_s, api, clock
        self.programs: Sequence[Program] = []  # the programs of the current attempt
        self.main = "trainer"  # the program without which the pod is not ready
        self._silent_since: dict[int, float] = {}  # {process id: time of the first unanswered request}
        self._judged, self._stuck, self._unready = -math.inf, "", ""

    def judge(self) -> tuple[str, str]:
        """Return why the pod is stuck (or ""), and why the pod is not ready (or "")."""
        if self.clock() - self._judged > JUDGED_S:
            self._stuck, self._unready = self._ask_all()
            self._judged = self.clock()
        return self._stuck, self._stuck or self._unready

    def _ask_all(self) -> tuple[str, str]:
        asked_s = self.clock() - self.api.asking_since if self.api else 0.0
        if asked_s > self.limit_s:
            return f"the API server has been answering one request for {asked_s:.0f} s", ""
        running = [program for program in self.programs if program.process.returncode is None]
        found = [self._look_at(program) for program in running]
        has_main = any(program.name == self.main for program in running)
        unready = [*(why for _, why in found), "" if has_main else f"no {self.main} runs"]
        return "; ".join(why for why, _ in found if why), "; ".join(filter(None, unready))

    def _look_at(self, program: Program) -> tuple[str, str]:
        """Return why a program is stuck (or ""), and why the program is not ready (or "")."""
        status, text = self._ask(program, "/healthz")
        if status < 0 and not program.answers:
            return "", ""
        number, now = program.process.pid, self.clock()
        if not status:
            silent_s = now - self._silent_since.setdefault(number, now)
            why = f"{program.name} has not answered for {silent_s:.0f} s"
            return why if silent_s > self.limit_s else "", why
        self._silent_since.pop(number, None)
        if status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            return f"{program.name}: {text}", ""
        status, text = self._ask(program, "/readyz") if status == http.HTTPStatus.OK else (status, text)
        return "", "" if status == http.HTTPStatus.OK else f"{program.name}: {text or 'it does not answer'}"

    def _ask(self, program: Program, path: str) -> tuple[int, str]:
        """Return a program's HTTP status and text. The status is 0 without an answer, and -1 if no process listens."""
        connection = TimedConnection(self.host, program.metrics_port, timeout=ASK_TIMEOUT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read(1000).decode("utf-8", "replace").strip()
        except ConnectionRefusedError:  # the program has just started, or could not open its port
            return -1, "nothing listens on its metrics port yet"
        except (OSError, ValueError, http.client.HTTPException):  # ValueError: a header that is no header
            return 0, ""
        finally:
            connection.close()


def watch_pod(config: LauncherConfig, health: PodHealth) -> None:
    """Start to answer the probes at CONF_PADDLE_METRICS_PORT.

    If another process uses the port, the launcher runs without answers to probes.
    """
    if not config.metrics_port:
        return
    try:
        pages = Pages(lambda: health.judge()[0], lambda: health.judge()[1])
        serve([config.pod_ip], config.metrics_port, pages, is_vital=True)  # a pod without answers would end
    except OSError as problem:
        place = f"{config.pod_ip}:{config.metrics_port}"
        say(f"WARNING: cannot listen on {place} (CONF_PADDLE_METRICS_PORT): {problem.strerror}; probes get no answer")
