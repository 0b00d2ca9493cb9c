"""The program that every worker of a job runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from paddle_cluster.elastic.launching.processes import StartProcess


class WorkerProgram(NamedTuple):
    """A command, or a function.

    Attributes:
    - command: command of a worker on another machine, or of a worker that outlives its driver.
    - environ: variables of a worker on this machine, without the variables of its slot.
    - start: starts a worker on this machine.
    - offer: returns further variables of a worker on another machine, which reaches this machine at the given address.
      Raises UsageError if the program cannot run on another machine.
    - secret: secret of the job if the user has set none; "": the driver makes a secret.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    start: StartProcess
    offer: Callable[[str], dict[str, str]] = lambda _: {}
    secret: str = ""
