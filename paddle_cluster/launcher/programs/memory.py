"""Read the kernel's account of this container's memory: the limit, the peak, and the number of killed processes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from paddle_cluster.launcher.cluster.pods import MEMORY_ADVICE

CGROUP = Path("/sys/fs/cgroup")  # the container's control group files
# bytes; cgroup v1 shows a larger limit, slightly below 2^63, if the container has no limit
NO_LIMIT = 1 << 60


@dataclasses.dataclass(frozen=True)
class MemoryAccount:
    """The memory account of this container, in bytes. `limit` is None without a limit; `peak` is None if unknown."""

    limit: int | None
    peak: int | None
    kills: int  # number of processes that the kernel killed because memory ran out

    @classmethod
    def read(cls, root: Path = CGROUP) -> MemoryAccount | None:
        """Read the container's cgroup, version 2 or 1; return None if no cgroup is visible.

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
        """The limit, the peak, and what the user can do."""
        peak = "" if self.peak is None else f", and the peak of all its processes was {mebibytes(self.peak)}"
        if self.limit is None:
            return f"this container has no memory limit{peak}, so its node ran out of memory: choose a larger node"
        return f"this container's limit is {mebibytes(self.limit)}{peak}: {MEMORY_ADVICE}"


def read_account(path: Path) -> str:
    """Return the content of a cgroup file, or "" if it does not exist."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""


def mebibytes(size: int) -> str:
    """Return bytes as a text in the unit of Kubernetes manifests."""
    return f"{size / 2**20:.0f}Mi"


def explain_kill(before: MemoryAccount | None, after: MemoryAccount | None) -> str:
    """Compare two accounts, and describe whether the kernel killed a program because memory ran out.

    Args: before, after: the accounts before the program's start and after its end.
    """
    if before is None or after is None:
        return " (out of memory?)"
    if after.kills > before.kills:
        return f" by the kernel, out of memory: {after}"
    return " (memory did not run out: the kernel has counted no new out-of-memory kill in this container)"
