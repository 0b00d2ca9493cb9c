"""What this machine is, how busy it is, and what programs take of it (Linux)."""

from __future__ import annotations

import os
import platform
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def describe_machine() -> dict[str, str | int]:
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "CPUs": os.cpu_count() or 0,
        "CPU": model[1] if model else platform.machine(),
        "memory, GiB": round(memory / 2**30),
        "kernel": platform.release(),
    }


def busy_seconds() -> float:
    """Seconds of CPU that the machine has worked since its start, all CPUs together."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU that a process has taken; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def describe_waits(waits: Iterable[tuple[str, float, float]]) -> dict[str, dict[str, float]]:
    """Of the pods of each part: how long they waited for a node, and from there until they ran."""
    parts = defaultdict(list)
    for part, to_node, to_run in waits:
        parts[part].append((to_node, to_run))
    found = {}
    for part, pairs in parts.items():
        nodes, runs = (sorted(column) for column in zip(*pairs, strict=True))
        late = min(int(0.95 * len(pairs)), len(pairs) - 1)
        found[part] = {
            "pods": len(pairs),
            "to a node, median, s": round(statistics.median(nodes), 2),
            "to a node, 95 %, s": round(nodes[late], 2),
            "from there to Running, median, s": round(statistics.median(runs), 2),
            "from there to Running, 95 %, s": round(runs[late], 2),
        }
    return found
