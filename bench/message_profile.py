"""Count what a message of an exchange costs: calls of Python, and instructions outside of the kernel.

A server and a trainer run under the tool, in a job that is otherwise that of bench/pserver.py. Each count is the
difference of two jobs with different numbers of rounds, divided by the messages that one of them has more: so the start
and the end of the programs do not count.
"""

from __future__ import annotations

import os
import pstats
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from contestants import COUNT, start_ours
from machine import show_bytes

FEW = 20  # rounds of the shorter job
MOST_BYTES = 400e6  # bytes that the longer job exchanges in addition, at most
MOST_ROUNDS = 400  # rounds of the longer job in addition, at most
WAYS = {"own server shared": "-shared", "all over sockets": ""}


class Tool(NamedTuple):
    """A program that runs Python and writes counts to a file.

    `words`: the command without the file, which follows the last word at once, and without what Python runs.
    `python`: what follows the file.  `read`: returns the counts of a file, by the name of what is counted.
    """

    name: str
    words: Sequence[str]
    python: Sequence[str]
    read: Callable[[Path], Counter[str]]

    def run(self, file: Path) -> list[str]:
        """Return the words before the module or script that Python runs."""
        return [*self.words[:-1], f"{self.words[-1]}{file}", *self.python]


def read_calls(file: Path) -> Counter[str]:
    """Return the calls of each function in a file of cProfile."""
    found: Counter[str] = Counter()
    for (source, line, name), (_, calls, *_) in pstats.Stats(str(file)).stats.items():
        found[name if source == "~" else f"{Path(source).name}:{line} {name}"] += calls
    return found


def read_callgrind(file: Path) -> Counter[str]:
    """Return the instructions of a process in a file of callgrind."""
    return Counter(instructions=int(re.findall(r"^(?:totals|summary): (\d+)", file.read_text(), re.MULTILINE)[-1]))


def read_perf(file: Path) -> Counter[str]:
    """Return the instructions of a process in a file of perf; there are none if the processor does not count them."""
    found = re.search(r"^(\d+),.*instructions", file.read_text() if file.exists() else "", re.MULTILINE)
    return Counter(instructions=int(found[1])) if found else Counter()


CALLS = Tool("calls of Python", [sys.executable, "-m", "cProfile", "-o", ""], [], read_calls)
PERF = Tool(
    "instructions (perf)", ["perf", "stat", "-x,", "-e", "instructions:u", "--output="], [sys.executable], read_perf
)
CALLGRIND = Tool(
    "instructions (callgrind)",
    ["valgrind", "--quiet", "--tool=callgrind", "--callgrind-out-file="],
    [sys.executable],
    read_callgrind,
)


def find_tools() -> list[Tool]:
    """Return the tools of this machine: cProfile, and what counts instructions, if there is any."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "perf")
        if shutil.which("perf"):
            command = [*PERF.run(file), "-c", ""]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if read_perf(file):
            return [CALLS, PERF]
    if shutil.which("valgrind"):
        return [CALLS, CALLGRIND]
    print("instructions are not counted: perf cannot count them on this machine, and valgrind is not installed")
    return [CALLS]


def count_rounds(elements: int) -> int:
    """Return how many rounds the longer job has in addition.

    Args: elements: what a trainer sends in a round, and receives.
    """
    return max(FEW, min(MOST_ROUNDS, int(MOST_BYTES / (8 * elements * COUNT))))


def subtract(longer: Mapping[str, int], shorter: Mapping[str, int], messages: int) -> dict[str, float]:
    """Return what each count has more in the longer job, for each message."""
    return {name: (count - shorter.get(name, 0)) / messages for name, count in longer.items()}


def run_job(tool: Tool, kind: str, size: int, rounds: int) -> list[Counter[str]]:
    """Run a job; return the counts of its first server and of its first trainer. `kind`, `size`: see `start_ours`."""
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch, "server"), Path(scratch, "trainer")]
        group = start_ours(tool.name, kind, size, tools=(tool.run(files[0]), tool.run(files[1])))
        try:
            group.run(rounds)
        finally:
            group.close()
        return [tool.read(file) for file in files]


def profile(tool: Tool, kind: str, size: int, more: int) -> list[dict[str, float]]:
    """Return the counts of a message, of a server and of a trainer. `more`: see `count_rounds`."""
    shorter, longer = (run_job(tool, kind, size, rounds) for rounds in (FEW, FEW + more))
    return [subtract(*counts, more * COUNT) for counts in zip(longer, shorter, strict=True)]


def print_profiles(exchanges: Sequence[tuple[str, int, int]], top: int) -> None:
    """Print a row for each exchange, way and tool.

    Args: exchanges: kind and size of each exchange (see `start_ours`), and the elements that a trainer sends in a
        round.  top: number of functions with most calls to print.
    """
    tools = find_tools()
    tops = []
    print(f"\na message of {COUNT} trainers and {COUNT} servers costs\n")
    print("| each way | what | counted | a server | a trainer | both |\n|---|---|---|---|---|---|")
    for what, size, elements in exchanges:
        for way, suffix in WAYS.items():
            for tool in tools:
                counts = profile(tool, what + suffix, size, count_rounds(elements))
                server, trainer = (sum(one.values()) for one in counts)
                title = f"{show_bytes(elements)} {what}"
                shown = " | ".join(f"{count:,.0f}" for count in (server, trainer, server + trainer))
                print(f"| {title} | {way} | {tool.name} | {shown} |", flush=True)
                if tool is CALLS:
                    tops.append((f"{title}, {way}", counts))
    for title, counts in tops if top else ():
        for side, functions in zip(("server", "trainer"), counts, strict=True):
            print(f"\n{title}, calls of a {side} a message")
            for name, calls in sorted(functions.items(), key=lambda one: -one[1])[:top]:
                print(f"{calls:8.2f}  {name}")
    print(f"\nload at the end: {os.getloadavg()[0]:.1f}")
