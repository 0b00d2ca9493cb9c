"""Groups of processes that take turns: each runs some rounds when it is told to, and rests while another one runs.

So all groups of a benchmark meet the same noise, and their ratios hold when the machine's speed drifts.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

DEADLINE_S = 120.0


def take_turns(one_round: Callable[[], object], begin: Callable[[], object] = lambda: None) -> None:
    """In a trainer: run as many rounds as each line of the input says, and write the seconds they took."""
    for line in sys.stdin:
        begin()
        began = time.perf_counter()
        for _ in range(int(line)):
            one_round()
        print(time.perf_counter() - began, flush=True)


class Group:
    """The servers and trainers of one contestant, running.

    Args: servers, trainers: command lines; trainers call `take_turns` and are told in turn.
    """

    def __init__(self, name: str, servers: Sequence[Sequence[str]], trainers: Sequence[Sequence[str]]) -> None:
        self.name = name
        self.rates: list[float] = []
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._servers = [subprocess.Popen(command, **quiet) for command in servers]
        self._trainers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for command in trainers
        ]

    def turn(self, rounds: int) -> float:
        """Run some rounds; return rounds a second, of the slowest trainer."""
        for one in self._trainers:
            print(rounds, file=one.stdin, flush=True)
        seconds = [one.stdout.readline() for one in self._trainers]
        if not all(seconds):
            raise SystemExit(f"bench: a trainer of '{self.name}' ended early")
        return rounds / max(map(float, seconds))

    def peaks(self) -> tuple[float, float]:
        """Return the most memory that a server and a trainer had so far, in MB."""
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
    """Return the most memory that a running process has had."""
    for line in Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def compete(groups: Sequence[Group], rounds: int, turns: int) -> None:
    """Let the groups take so many turns, after one to warm up; the rates are kept in them."""
    for number in range(turns + 1):
        for group in groups:
            rate = group.turn(rounds)
            if number:
                group.rates.append(rate)
