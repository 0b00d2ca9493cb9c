"""What every worker of a job runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from elastic.launching.processes import StartProcess


class WorkerProgram(NamedTuple):
    """A command, or a function.

    Attributes: command: of a worker of another machine, or one that outlives its driver.  environ: the variables of a
        worker of this machine beside those of its slot.  start: begins it on this machine.  offer: returns further
        variables of a worker that reaches this machine by an address; raises UsageError where it cannot run there.
        secret: of a job for which the user has given none; "": it may be any.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    start: StartProcess
    offer: Callable[[str], dict[str, str]] = lambda _: {}
    secret: str = ""
