"""Interleaving: the contestants of a benchmark run in alternation, each for some rounds while the others wait.

The load and the speed of the machine then affect all contestants equally, so that a drift does not change their ratios.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

DEADLINE_S = 120.0  # maximum seconds until a process ends by itself


def serve_rounds(one_round: Callable[[], object], begin: Callable[[], object] = lambda: None) -> None:
    """For each line of stdin, run the number of rounds in this line, and write the seconds of these rounds to stdout.

    A trainer process calls this function.
    """
    for line in sys.stdin:
        begin()
        began = time.perf_counter()
        for _ in range(int(line)):
            one_round()
        print(time.perf_counter() - began, flush=True)


class Contestant:
    """The running servers and trainers of one contestant.

    Args: servers, trainers: command lines; a trainer calls `serve_rounds`.
    """

    def __init__(self, name: str, servers: Sequence[Sequence[str]], trainers: Sequence[Sequence[str]]) -> None:
        self.name = name
        self.rates: list[float] = []
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._servers = [subprocess.Popen(command, **quiet) for command in servers]
        self._trainers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for command in trainers
        ]

    def run(self, rounds: int) -> float:
        """Run some rounds; return the rounds per second of the slowest trainer."""
        for one in self._trainers:
            print(rounds, file=one.stdin, flush=True)
        seconds = [one.stdout.readline() for one in self._trainers]
        if not all(seconds):
            raise SystemExit(f"bench: a trainer of '{self.name}' ended early")
        return rounds / max(map(float, seconds))

    def peaks(self) -> tuple[float, float]:
        """Return the peak memory of the largest server and of the largest trainer so far, in MB."""
        return max(map(peak_mb, self._servers), default=0.0), max(map(peak_mb, self._trainers))

    def close(self) -> None:
        """End the trainers, and with them the servers."""
        for one in self._trainers:
            one.stdin.close()
        for one in self._trainers + self._servers:
            try:
                one.wait(DEADLINE_S)
            finally:
                one.kill()
                one.wait()
        for one in self._trainers:
            one.stdout.close()


def peak_mb(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> float:
    """Return the peak memory of a running process, in MB."""
    for line in Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def run_interleaved(contestants: Sequence[Contestant], rounds: int, repeats: int) -> None:
    """Let the contestants run in alternation, `rounds` rounds each time, and store their rates.

    Each contestant runs `repeats` times, after a first run that only warms up and does not count.
    """
    for number in range(repeats + 1):
        for contestant in contestants:
            rate = contestant.run(rounds)
            if number:
                contestant.rates.append(rate)
