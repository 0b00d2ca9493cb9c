"""Interleaving: the contestants of a benchmark run in alternation, each for some rounds while the others wait.

The load and the speed of the machine then affect all contestants equally, so that a drift does not change their ratios.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

DEADLINE_S = 300.0  # maximum seconds until a process ends by itself
SHOWN = 4000  # characters of the trainers' last lines that are shown
CPUCLOCK_SCHED = 2  # of linux/posix-timers.h: the clock of the time that the scheduler has given to a process


class Rounds(NamedTuple):
    """What a trainer has spent on some rounds.

    `seconds`: by the clock.  `processor_s`: seconds of the processor.  `peak_mb`: peak memory of the process so far.
    """

    seconds: float
    processor_s: float
    peak_mb: float

    @classmethod
    def parse(cls, line: str) -> Rounds:
        """Return the rounds in a line that `serve_rounds` has written."""
        return cls(*map(float, line.split()))

    @classmethod
    def join(cls, rounds: Sequence[Rounds]) -> Rounds:
        """Return what several trainers have spent: the longest time, the sum of the processor's, the largest peak."""
        seconds, processor, peaks = zip(*rounds, strict=True)
        return cls(max(seconds), sum(processor), max(peaks))

    def __str__(self) -> str:
        return f"{self.seconds} {self.processor_s} {self.peak_mb}"


class Spent(NamedTuple):
    """Seconds of the processor in a round: of all servers together, and of all trainers together."""

    servers_s: float
    trainers_s: float


def serve_rounds(one_round: Callable[[], object], begin: Callable[[], object] = lambda: None) -> None:
    """For each line of stdin, run the number of rounds in this line, and write the `Rounds` to stdout.

    A trainer process calls this function.
    """
    for line in sys.stdin:
        begin()
        began = time.perf_counter()
        processor = time.process_time()
        for _ in range(int(line)):
            one_round()
        seconds = time.perf_counter() - began
        print(Rounds(seconds, time.process_time() - processor, peak_mb("self")), flush=True)


class Contestant:
    """The running servers and trainers of one contestant.

    Args: servers, trainers: command lines; a trainer calls `serve_rounds`.  environ: variables of these programs, in
        addition to those of this process.

    Attributes: rates: the rounds per second of each run that counts.  spent: the processor's time of each such run.
    """

    def __init__(
        self,
        name: str,
        servers: Sequence[Sequence[str]],
        trainers: Sequence[Sequence[str]],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.rates: list[float] = []
        self.spent: list[Spent] = []
        self._peak_mb = 0.0
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        # what the trainers say; it is shown if one of them ends early
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
        piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log, "text": True}
        environ = os.environ | (environ or {})
        self._servers = [subprocess.Popen(command, env=environ, **quiet) for command in servers]
        self._trainers = [subprocess.Popen(command, env=environ, **piped) for command in trainers]

    def run(self, rounds: int) -> float:
        """Run some rounds; return the rounds per second of the slowest trainer."""
        return self.measure(rounds)[0]

    def measure(self, rounds: int) -> tuple[float, Spent]:
        """Run some rounds; return the rounds per second of the slowest trainer, and the processor's time of a round."""
        before = [processor_s(one.pid) for one in self._servers]
        for one in self._trainers:
            with contextlib.suppress(BrokenPipeError):  # the trainer has ended; it has no line then
                print(rounds, file=one.stdin, flush=True)
        lines = [one.stdout.readline() for one in self._trainers]
        if not all(lines):
            self._log.seek(0)
            text = self._log.read().decode(errors="replace")
            raise SystemExit(f"bench: a trainer of '{self.name}' ended early:\n{text[-SHOWN:]}")
        # a server that has answered the last trainer waits; what it does after that is little
        served = sum(processor_s(one.pid) for one in self._servers) - sum(before)
        ran = Rounds.join([Rounds.parse(line) for line in lines])
        self._peak_mb = ran.peak_mb
        return rounds / ran.seconds, Spent(served / rounds, ran.processor_s / rounds)

    def peaks(self) -> tuple[float, float]:
        """Return the peak memory of the largest server, and of the largest trainer at its last run, in MB."""
        return max((peak_mb(one.pid) for one in self._servers), default=0.0), self._peak_mb

    def close(self) -> None:
        """End the trainers, and with them the servers."""
        for one in self._trainers:
            with contextlib.suppress(BrokenPipeError):
                one.stdin.close()
        for one in self._trainers + self._servers:
            try:
                one.wait(DEADLINE_S)
            finally:
                one.kill()
                one.wait()
        for one in self._trainers:
            one.stdout.close()
        self._log.close()


def processor_s(pid: int) -> float:
    """Return the seconds of the processor that a running process of this machine has used."""
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def peak_mb(pid: int | str) -> float:
    """Return the peak memory of a running process, in MB, since it began its program.

    The peak of `getrusage` may be that of the process that started it.
    """
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def run_interleaved(contestants: Sequence[Contestant], rounds: int, repeats: int) -> None:
    """Let the contestants run in alternation, `rounds` rounds each time, and store what they took.

    Each contestant runs `repeats` times, after a first run that only warms up and does not count.
    """
    for number in range(repeats + 1):
        for contestant in contestants:
            rate, spent = contestant.measure(rounds)
            if number:
                contestant.rates.append(rate)
                contestant.spent.append(spent)
