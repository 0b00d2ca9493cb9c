"""Print the output for users: pod states like `kubectl get pods -w`, selected lines of output, and the Job's end."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

from paddle_cluster.localcluster.api.objects import PodState
from paddle_cluster.localcluster.faults import concerns, parse_follow
from paddle_cluster.localcluster.pods.paths import Replacement

# a launcher's log lines that are printed: what it waits for, a misspelt variable, why an attempt has ended, and from
# which save the next one resumes
NEWS = re.compile(
    r"start_paddle: (waiting: .*|WARNING: .*: did you mean .*|first failure reported: .*|what failed first is not .*|"
    r".*\bgoing on (?:from|after) .*|.* the training starts from the beginning)"
)
INDENT = "    "  # of the lines that belong to the launcher's line before them, such as the end of a program's log


def status_column(pod: PodState) -> str:
    """Return the text that kubectl shows for a pod in the column STATUS."""
    if pod.is_finished:
        return {0: "Completed", 128: "StartError"}.get(pod.exit_code or 0, "Error")
    if pod.deleted is not None:
        return "Terminating"
    if pod.phase == "Pending":
        return "Pending" if pod.waiting[0] == "Unschedulable" else pod.waiting[0]
    return pod.phase


def age_column(seconds: float) -> str:
    """Return an age in kubectl's format: 9s, 2m5s, 15m, 3h2m."""
    whole = int(max(0.0, seconds))
    if whole < 120:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours == 0:
        return f"{minutes}m"
    return f"{hours}h{minutes}m" if minutes else f"{hours}h"


def pod_row(pod: PodState, now: float, width: int) -> str:
    """Return a pod's line of the table."""
    ready = "1/1" if pod.phase == "Running" else "0/1"
    age = age_column(now - pod.created)
    return f"{pod.name:<{width}}   {ready:<5}   {status_column(pod):<17}   {0:<8}   {age:<6}   {pod.ip or '<none>'}"


class JobReporter:
    """Receives all events and prints nothing; subclasses print.

    Thread safety: only one thread at a time calls this object. While the Job runs, it holds the kubelet's lock.
    """

    def say(self, text: str) -> None:
        """Receive a sentence about the Job or the machine."""

    def replaced(self, replacement: Replacement) -> None:
        """Receive, only once, a path or variable that differs from its value in a container."""

    def pod_changed(self, pod: PodState, now: float) -> None:
        """Receive a pod's new state."""

    def line(self, pod: PodState, number: int, text: str) -> None:
        """Receive a line of a pod's output."""


class ConsoleReporter(JobReporter):
    """Prints to standard output.

    Args: follow: texts `[POD@]REGEX`; a matching line is printed as `POD| line`. A line about a wait of a launcher, or
    about a misspelt variable, is also printed, but only once if several pods log the same text. quiet: print only the
    followed lines and the Job's end.
    """

    def __init__(self, follow: Sequence[str] = (), quiet: bool = False):
        self._follow = [parse_follow(text) for text in follow]
        self._quiet = quiet
        self._shown: dict[str, str] = {}
        self._width = 0
        self._said: set[str] = set()
        self._telling: set[str] = set()  # uids of the pods whose last line was printed as news

    def say(self, text: str) -> None:
        """Print a sentence."""
        _print(text)

    def replaced(self, replacement: Replacement) -> None:
        """Print a replacement."""
        if not self._quiet:
            _print(str(replacement))

    def pod_changed(self, pod: PodState, now: float) -> None:
        """Print a pod's line of the table if its status or address has changed."""
        status = f"{status_column(pod)} {pod.ip}"
        if self._quiet or self._shown.get(pod.uid) == status:
            return
        self._shown[pod.uid] = status
        if not self._width:
            self._width = len(pod.name)
            _print(f"{'NAME':<{self._width}}   READY   {'STATUS':<17}   RESTARTS   AGE      IP")
        _print(pod_row(pod, now, self._width))

    def line(self, pod: PodState, number: int, text: str) -> None:
        """Print a line of output if --follow selects the line, or if it is a launcher's new message for the user."""
        is_new = not self._quiet and (self._is_new(text) or (pod.uid in self._telling and text.startswith(INDENT)))
        (self._telling.add if is_new else self._telling.discard)(pod.uid)
        if is_new or any(concerns(who, pod.name, number) and pattern.search(text) for who, pattern in self._follow):
            _print(f"{pod.name}| {text}")

    def _is_new(self, text: str) -> bool:
        found = NEWS.search(text)
        if not found or found[1] in self._said:
            return False
        self._said.add(found[1])
        return True


def _print(text: str) -> None:
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError:  # the reader has exited (`| head`), or a disk is full; the Job continues without output
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
