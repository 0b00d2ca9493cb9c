"""The result of a Job: its outcome, and the ends and outputs of its pods."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddle_cluster.localcluster.job.policy import Outcome, exit_status
from paddle_cluster.localcluster.pods.kubelet import Pod


@dataclass(frozen=True)
class OutputLine:
    """A line of a pod's output that matches a pattern: the pod's name, the line and the match."""

    pod: str
    text: str
    match: re.Match[str]


@dataclass(frozen=True)
class PodResult:
    """The end of a pod. `exit_code` is None if the pod never started."""

    name: str
    index: int | None
    phase: str
    exit_code: int | None
    deleted: bool
    log: Path

    @property
    def output(self) -> str:
        """The pod's whole output."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


@dataclass(frozen=True)
class Result:
    """The end of a Job. `pods` has all pods in order of creation, including replaced and deleted pods."""

    outcome: Outcome
    exit_status: int
    pods: tuple[PodResult, ...]
    seconds: float
    cause: PodResult | None = None  # for a failed Job: the pod that the failure names, or the last pod that failed

    def pod(self, index: int) -> PodResult:
        """Return the newest pod with an index."""
        return [pod for pod in self.pods if pod.index == index][-1]


def make_result(outcome: Outcome, pods: Sequence[Pod], seconds: float) -> Result:
    """Return the end of a Job from its outcome and all its pods in order of creation."""
    by_end = sorted(pods, key=lambda pod: pod.state.finished or 0.0)
    codes = [pod.state.exit_code for pod in by_end if pod.state.exit_code]
    named = next((pod for pod in by_end if pod.state.name == outcome.pod), None)
    status = exit_status(outcome, codes, named.state.exit_code if named else None)
    # deleted pods are omitted, because a deleted pod failed when it was stopped, usually by the Job's end
    failed = [pod for pod in by_end if pod.state.phase == "Failed" and pod.state.deleted is None]
    cause = None if outcome.is_complete else named or next(reversed(failed), None)
    return Result(outcome, status, tuple(map(_pod_result, pods)), seconds, _pod_result(cause) if cause else None)


def _pod_result(pod: Pod) -> PodResult:
    state = pod.state
    return PodResult(state.name, state.index, state.phase, state.exit_code, state.deleted is not None, pod.log)


def new_lines(log: Path, offsets: dict[Path, int]) -> Iterator[str]:
    """Yield the lines that a log has gained since the last call; `offsets` keeps the position in each log."""
    if not log.exists():
        return
    with log.open("rb") as stream:
        stream.seek(offsets.get(log, 0))
        content = stream.read()
    complete = content.rpartition(b"\n")[0]
    if complete or content.startswith(b"\n"):
        for line in complete.split(b"\n"):
            offsets[log] = offsets.get(log, 0) + len(line) + 1
            yield line.decode(errors="replace").rstrip("\r")


def tail(log: Path, count: int) -> list[str]:
    """Return the last nonempty lines of a log."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line for line in lines if line.strip()][-count:]
