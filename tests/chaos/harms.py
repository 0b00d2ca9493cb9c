"""Harms to a running job: signals to one program or to all programs of a pod, and cuts of a pod's network."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Callable

from chaos import network
from chaos.plan import Trial
from paddle_cluster.localcluster import Cluster, OptionError

PROGRAMS = {"trainer": "paddle train ", "pserver": "paddle pserver --port", "launcher": "start_paddle.py"}
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}


class MissedError(Exception):
    """The target of the harm does not exist or has ended."""


def program_of(trial: Trial) -> str | None:
    """Return a pattern for the command line of the trial's role; None for the whole pod."""
    return PROGRAMS.get(trial.role.partition("-")[0])


def is_running(cluster: Cluster, trial: Trial) -> bool:
    """Whether the role's program runs; for a whole pod, whether its first program does."""
    try:
        lines = [line for _, line in cluster.processes(str(trial.pod))]
    except OptionError:
        return False
    return any(re.search(program_of(trial) or "start_paddle.py", line) for line in lines)


def strike(cluster: Cluster, trial: Trial) -> Callable[[], None] | None:
    """Do the trial's harm; for a stop or cut, return the function that ends it.

    Raises: MissedError: the program or pod has ended already.
    """
    pod, program = str(trial.pod), program_of(trial)
    states = [state for state in cluster.pods() if state.index == trial.pod]
    if not states or states[-1].is_finished:
        raise MissedError(f"pod {pod} has ended")
    address = states[-1].ip
    if trial.harm in ("cut", "power"):
        network.cut(address)
        if trial.harm == "power":
            cluster.kill(pod)
            return None
        return lambda: network.heal(address)
    if program is None and trial.harm == "term":
        cluster.terminate(pod)
        return None
    if program is None and trial.harm == "kill":
        cluster.kill(pod)
        return None
    try:
        cluster.kill(pod, process=program or "", signum=SIGNALS[trial.harm])
    except OptionError as error:
        raise MissedError(str(error)) from error
    if trial.harm != "stop" or trial.lasts == "never":
        return None
    return lambda: _continue(cluster, pod, program or "")


def _continue(cluster: Cluster, pod: str, program: str) -> None:
    with contextlib.suppress(OptionError):  # the launcher has ended the program meanwhile
        cluster.kill(pod, process=program, signum=signal.SIGCONT)
