"""What the kernel says of the container's memory."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from launcher.cluster.pods import MEMORY_ADVICE

CGROUP = Path("/sys/fs/cgroup")  # where the kernel shows a container its own accounts
NO_LIMIT = 1 << 60  # bytes; a limit above it is none: cgroup v1 writes a number a little below 2^63


@dataclasses.dataclass(frozen=True)
class MemoryAccount:
    """The kernel's account of this container's memory, in bytes. None is no limit, or a number that is not shown."""

    limit: int | None
    peak: int | None
    kills: int  # processes that it has killed for memory

    @classmethod
    def read(cls, root: Path = CGROUP) -> MemoryAccount | None:
        """Reads the container's cgroup, version 2 or 1; None where there is none to be seen.

        Source: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
        """
        for limit, peak, events in (
            ("memory.max", "memory.peak", "memory.events"),
            ("memory/memory.limit_in_bytes", "memory/memory.max_usage_in_bytes", "memory/memory.oom_control"),
        ):
            kills = re.search(r"^oom_kill ([0-9]+)$", read_account(root / events), re.MULTILINE)
            if kills:
                numbers = [read_account(root / name).strip() for name in (limit, peak)]
                found = [int(text) if re.fullmatch("[0-9]+", text) else None for text in numbers]
                is_limited = found[0] is not None and found[0] < NO_LIMIT
                return cls(found[0] if is_limited else None, found[1], int(kills[1]))
        return None

    def __str__(self) -> str:
        """The limit, the peak, and what to do about them."""
        peak = "" if self.peak is None else f", and the peak of all its processes was {mebibytes(self.peak)}"
        if self.limit is None:
            return f"this container has no memory limit{peak}, so its node ran out of memory: choose a larger one"
        return f"this container's limit is {mebibytes(self.limit)}{peak}: {MEMORY_ADVICE}"


def read_account(path: Path) -> str:
    """Returns a file of the cgroup, empty where there is none."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""


def mebibytes(size: int) -> str:
    """Returns bytes as a text in the unit of Kubernetes manifests."""
    return f"{size / 2**20:.0f}Mi"


def explain_kill(before: MemoryAccount | None, after: MemoryAccount | None) -> str:
    """Says whether the kernel has ended a program with SIGKILL for memory, by its accounts before and after."""
    if before is None or after is None:
        return " (out of memory?)"
    if after.kills > before.kills:
        return f" by the kernel, out of memory: {after}"
    return " (not for memory: the kernel has killed nothing of this container)"
