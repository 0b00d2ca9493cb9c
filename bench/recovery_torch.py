"""Measure for how long the workers of an elastic job stand still when one is killed, and when a host comes or goes.

usage: bench/recovery_torch.py [--plain] [--turns N] [--processes N ...] [--parameters N] [--wait-for-replacement]

Each job has a model of 25 million parameters, whose workers have child processes, as with a DataLoader. Four times
are measured, each as the longest of all workers that were there before and after:
1. from SIGKILL of a worker to the next step of the others (goal: 0.1 s)
2. the interval between the two steps around the return of the killed worker's slot (goal: 0.3 s)
3. the interval between the two steps around the loss of a host, which the discovery removes (goal: 0.2 s)
4. the interval between the two steps around the return of this host (goal: 0.3 s)
With --plain the model is of numpy arrays, and each worker sleeps for 3 s in place of `import torch`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the workers, which also run this script, import the project

from machine import describe_machine, spread
from recovery import DEADLINE_S, LOOK_S

IMPORT_S = 3.0  # seconds of an import of torch on a machine with other work
CHILDREN = 2  # number of child processes of a worker
COMMIT = 10  # number of steps between two commits
STEP_S = 0.005
LAYERS = 50
OTHER = "127.0.0.2"  # the host that comes and goes
GOALS = {"kill to next step": 0.1, "slot filled again": 0.3, "host removed": 0.2, "host added": 0.3}


# ----- A worker


def make_state(count: int, *, is_plain: bool) -> Any:
    """Joins the job first, as most scripts do; returns a state with a model, an optimizer, and the number of steps.

    The parameters are no zeros, because the system maps the pages of zeros only when they are written.
    """
    if is_plain:
        time.sleep(IMPORT_S)
        import paddle.elastic as hvd

        hvd.init()
        model = {f"layer-{number}": np.ones(count // LAYERS, np.float32) for number in range(LAYERS)}
        return hvd.elastic.ArrayState(model=model, steps=0)
    import torch

    import paddle.elastic.torch as hvd_torch

    hvd_torch.init()
    torch.set_num_threads(1)
    layers = torch.nn.ParameterList(torch.ones(count // LAYERS) for _ in range(LAYERS))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1, momentum=0.9)
    return hvd_torch.elastic.TorchState(layers, hvd_torch.DistributedOptimizer(optimizer), steps=0)


def hold_children(*, is_plain: bool) -> object:
    """Starts child processes that live as long as this worker; returns what must not be forgotten until then."""
    if is_plain:
        reading, writing = os.pipe()
        for _ in range(CHILDREN):
            if not os.fork():
                os.close(writing)
                os.read(reading, 1)
                os._exit(0)
        return writing
    from torch.utils.data import DataLoader

    batches = iter(DataLoader(list(range(1 << 20)), batch_size=8, num_workers=CHILDREN, persistent_workers=True))
    next(batches)
    return batches


def work(directory: Path, count: int, *, is_plain: bool) -> None:
    """Runs as a worker: writes the time in seconds of `time.monotonic`, and the number of workers, after each step."""
    state = make_state(count, is_plain=is_plain)
    import paddle.elastic as hvd

    children = hold_children(is_plain=is_plain)
    own = directory / f"steps.{os.getpid()}"

    @hvd.elastic.run
    def train(state: Any) -> None:
        (directory / f"pid.{os.environ['HOROVOD_HOSTNAME']}.{os.environ['HOROVOD_LOCAL_RANK']}").write_text(
            str(os.getpid())
        )
        with own.open("a", buffering=1) as file:
            while not (directory / "stop").exists():
                state.steps += int(hvd.allreduce(np.ones(1), name="step")[0])
                file.write(f"{time.monotonic()} {hvd.size()}\n")
                if state.steps % COMMIT == 0:
                    state.commit()
                time.sleep(STEP_S)
        os._exit(0)  # the job is over, and its result is of no interest

    train(state)
    del children


# ----- The job


class Step(NamedTuple):
    """A step of a worker: its time in seconds of `time.monotonic`, and the number of workers."""

    at: float
    size: int


class Job:
    """A running job of `size` workers, one of which is on the host `OTHER`."""

    def __init__(self, directory: Path, size: int, options: argparse.Namespace) -> None:
        self.directory, self.size = directory, size
        self.set_hosts(with_other=True)
        more = ["--wait-for-replacement"] if options.wait_for_replacement else []
        command = [sys.executable, "-m", "paddle", "elastic", "run", "-np", str(size), "--min-np", "1", *more]
        command += ["--max-np", str(size), "--failures-per-host", "1000", "--host-discovery-script", "cat hosts"]
        command += [sys.executable, __file__, "--worker", str(directory), "--parameters", str(options.parameters)]
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
        with (directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command + ["--plain"] * options.plain, cwd=directory, env=environ, stdout=log, stderr=log
            )

    def set_hosts(self, *, with_other: bool) -> None:
        new = self.directory / "hosts.new"
        new.write_text(f"localhost:{self.size - 1}\n" + f"{OTHER}:1\n" * with_other)
        new.replace(self.directory / "hosts")

    def read_steps(self) -> list[list[Step]]:
        """Returns the steps of each process."""
        found = []
        for path in self.directory.glob("steps.*"):
            words = (line.split() for line in path.read_text().split("\n")[:-1])
            found.append([Step(float(at), int(size)) for at, size in words])
        return found

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_so():
            if time.monotonic() > deadline or self.process.poll() is not None:
                log = (self.directory / "log").read_text(errors="replace")
                raise SystemExit(f"bench/recovery_torch.py: no {what} within {DEADLINE_S:g} s:\n{log[-3000:]}")
            time.sleep(20 * LOOK_S)

    def wait_for_size(self, size: int, since: float) -> None:
        """Waits until `size` workers have made 20 steps."""

        def is_so() -> bool:
            steps = self.read_steps()
            return sum(sum(one.at > since and one.size == size for one in own) >= 20 for own in steps) == size

        self.wait(is_so, f"generation of {size} workers")

    def measure_change(self, size: int, since: float, begin: float | None = None) -> float:
        """Returns the seconds between the steps around the change to `size` workers, or from `begin` to the later one.

        The result is the longest time of all workers that have both steps.
        """
        self.wait_for_size(size, since)
        found = []
        for own in self.read_steps():
            place = next((number for number, one in enumerate(own) if one.at > since and one.size == size), 0)
            if place:
                found.append(own[place].at - (own[place - 1].at if begin is None else begin))
        return max(found)

    def run_turn(self, waits: bool) -> dict[str, float]:
        """Lets a worker be killed, and a host go and come back; returns the four times."""
        figures = {}
        pid = int((self.directory / f"pid.{OTHER}.0").read_text())
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        if waits:
            self.wait(lambda: not Path(f"/proc/{pid}").exists(), "end of a killed worker")
            figures["kill to next step"] = self.measure_change(self.size, killed + 0.5, killed)
        else:
            figures["kill to next step"] = self.measure_change(self.size - 1, killed, killed)
            figures["slot filled again"] = self.measure_change(self.size, killed + figures["kill to next step"])
        for name, with_other in (("host removed", False), ("host added", True)):
            changed = time.monotonic()
            self.set_hosts(with_other=with_other)
            figures[name] = self.measure_change(self.size - 1 + with_other, changed)
        return figures

    def close(self) -> None:
        (self.directory / "stop").touch()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE_S)


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--parameters", type=int, default=25_000_000)
    parser.add_argument("--wait-for-replacement", action="store_true")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options.worker, options.parameters, is_plain=options.plain)
        return
    print(describe_machine(), flush=True)
    what = "numpy, 3 s of start" if options.plain else "torch"
    print(f"{options.parameters:,} parameters, {what}, {CHILDREN} child processes a worker, {options.turns} turns")
    print("| processes | time | seconds | goal |\n|---|---|---|---|")
    for size in options.processes:
        with tempfile.TemporaryDirectory() as directory:
            job = Job(Path(directory), size, options)
            try:
                job.wait_for_size(size, 0.0)
                turns = [job.run_turn(options.wait_for_replacement) for _ in range(options.turns)]
            finally:
                job.close()
        for name, goal in GOALS.items():
            if values := [turn[name] for turn in turns if name in turn]:
                print(f"| {size} | {name} | {spread(values)} | {goal} |", flush=True)


if __name__ == "__main__":
    main()
