"""The place of a program in its job, which its environment names, and which its child processes must not take.

A launcher, a pod or a driver names the place of a program by variables. The children of the program have the same
variables. So the program marks them as taken: a child that runs a program of the project sees that its parent has the
place.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from pathlib import Path

HOLDER = "PADDLE_PLACE_HOLDER"
LAUNCHER = "PADDLE_LAUNCHER_HOLDER"  # a mark of `mark_place`: the launcher of the pod


def name_process(pid: int | str = "self") -> str:
    """Return a name of a process that no later process of this machine has; "": there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return f"{text.split()[0]}.{text.rpartition(')')[2].split()[19]}"


def take_place(environ: MutableMapping[str, str], names: Sequence[str]) -> str:
    """Mark the place that variables name as taken by this process.

    If a running process that handed its environment on has the place, remove the variables, and return the pid of that
    process; otherwise return "".
    """
    if not any(environ.get(name) for name in names):
        return ""
    pid = _find_other(environ.get(HOLDER, ""))
    if not pid:
        environ[HOLDER] = name_process()
        return ""
    for name in names:
        environ.pop(name, None)
    return pid


def mark_place(place: str) -> str:
    """Return a mark for the environment of this process's children: this process has a place, which has a name."""
    return f"{name_process()} {place}"


def find_owner(mark: str, place: str) -> str:
    """Return the pid of the running process that has a place according to a mark; "": none, or this process."""
    holder, _, marked = mark.partition(" ")
    return _find_other(holder) if marked == place else ""


def _find_other(holder: str) -> str:
    """Return the pid of a process that `name_process` has named, if it runs and is not this one; otherwise ""."""
    pid = holder.partition(".")[0]
    is_other = pid.isdigit() and len(pid) < 12 and holder != name_process() and name_process(pid) == holder
    return pid if is_other else ""
