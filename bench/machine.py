"""Text that every benchmark prints beside its figures: the machine, and the spread of the runs."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path


def describe_machine() -> str:
    """Returns a line with the processors, the load, the system and the version of Python."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    load = f"load {os.getloadavg()[0]:.1f}"
    return f"{os.cpu_count()} x {model}, {load}, Linux {platform.release()}, Python {platform.python_version()}"


def show_bytes(parameters: int) -> str:
    """Returns the size of this number of float32, such as '19.9 MB' or '4.1 kB'."""
    size = 4e-3 * parameters
    return f"{size:.3g} kB" if size < 100 else f"{size / 1000:.3g} MB"


def spread(values: Sequence[float]) -> str:
    """Returns the text 'median (lowest to highest)' for some values."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
