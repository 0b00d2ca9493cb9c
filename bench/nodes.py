"""Measure how fast recommendation trains on several nodes of this machine, compared with torch, in alternation.

usage: bench/nodes.py [--torch PYTHON] [--nodes N] [--passes N] [--rounds N] [--batches N]
       [--only sockets servers collective torch]

    sockets     `paddle pserver` and `paddle train --local=0` on each node, synchronously; all of them exchange data
                over sockets, as gloo does
    servers     the same, but each node has an address, and a trainer shares memory with the server of its node
    collective  `paddle train --collective` under `paddle elastic run`: all-reduce, and an optimiser on each node
    torch       DistributedDataParallel over gloo with the same network (bench/torch_baseline): also all-reduce

Every node reads all samples in a separate order, in batches of 1600, and computes with one thread. All nodes begin with
the same parameters. The figure is the number of samples per second of all nodes together. The first pass, in which the
provider reads the data, does not count. All nodes are on one machine, and gloo uses TCP: so the row "sockets" compares
like with like, and comes first. In the rows "servers" and "collective" programs of one node, or of all, share memory,
as `paddle` does wherever it can. The ratios to torch have the goals of at least 2 for sockets, 3 for servers and 1.5
for collective. `--torch` names the Python of an environment with torch; without torch only `paddle` is measured. The
default sizes take 200 seconds of processor time, half of them torch's; the figures of RESULTS.md are of `--passes 3
--batches 20`.

Before the table, the program prints the costs of the first pass, which must be similar. The costs are not equal,
because the orders of the samples and the roundings differ, and torch's RMSprop begins with longer steps. If `--only`
does not contain torch, no ratios are printed.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from machine import describe_machine, spread
from processes import Ended, find_peer, find_port, run_processes, thread_environment
from timing import (
    FLAGS,
    HERE,
    PADDLE,
    count_parameters,
    find_rates,
    read_baseline,
    read_passes,
    run_trainer,
    show_rates,
)
from workloads import WORKLOADS, Sizes, Workload, prepare

GOALS = {"sockets": 2.0, "servers": 3.0, "collective": 1.5}
ALIKE = 1.5  # maximum ratio of two costs of the first pass
HEADER = """
| way | nodes | samples/s of all | x torch | goal | peak of a trainer | of a server |
|---|---|---|---|---|---|---|"""


class JobRun(NamedTuple):
    """A training on all nodes: samples per second of each pass after the first, the first cost, and peak memory."""

    rates: list[float]
    first_cost: float
    trainer_mb: float
    server_mb: float | None = None


class Jobs:
    """Starts the training in each of the ways, with the data of a directory.

    Args: model: the initial parameters.  python: path of a Python that has torch, or None.
    """

    def __init__(self, workload: Workload, directory: Path, model: Path, nodes: int, python: str | None) -> None:
        self._workload, self._directory, self._model, self._nodes = workload, directory, model, nodes
        self._python = python
        self._flags = [f"--config={workload.config}", f"--init_model_path={model}", *FLAGS]

    def ways(self) -> Mapping[str, Callable[[int], JobRun]]:
        """Returns for each way a function that trains the first pass and a given number of further passes."""
        of_torch = {"torch": self.run_torch} if self._python else {}
        return {
            "sockets": self.run_sockets,
            "servers": self.run_servers,
            "collective": self.run_collective,
            **of_torch,
        }

    def run_servers(self, passes: int) -> JobRun:
        return self._run_servers(passes, self._list_addresses(0))

    def run_sockets(self, passes: int) -> JobRun:
        # a trainer shares memory with a server that has the trainer's address, and so with none
        return self._run_servers(passes, self._list_addresses(1))

    def _list_addresses(self, network: int) -> list[str]:
        return [f"127.0.{network}.{node + 1}" for node in range(self._nodes)]

    def _run_servers(self, passes: int, of_trainers: list[str]) -> JobRun:
        hosts = self._list_addresses(0)
        common = [f"--port={find_port(hosts)}", "--ports_num=1", f"--num_gradient_servers={self._nodes}"]
        commands = [[*PADDLE, "pserver", *common, f"--nics={host}"] for host in hosts]
        for node, address in enumerate(of_trainers):
            named = ["--local=0", f"--trainer_id={node}", f"--pservers={','.join(hosts)}", f"--nics={address}"]
            commands.append([*PADDLE, "train", *named, *common, *self._flags, f"--num_passes={passes + 1}"])
        ended = self._run(commands, HERE.parent)
        servers, trainers = ended[: self._nodes], ended[self._nodes :]
        run = self._read_log(trainers[0].text, trainers)
        return run._replace(server_mb=max(one.peak_mb for one in servers))

    def run_collective(self, passes: int) -> JobRun:
        driver = [*PADDLE, "elastic", "run", "-np", str(self._nodes), "-H", f"localhost:{self._nodes}"]
        trainer = [*PADDLE, "train", "--collective", *self._flags, f"--num_passes={passes + 1}"]
        ended = self._run([[*driver, *trainer]], HERE.parent)  # the peak of the driver includes its largest child
        first = re.findall(r"^\[0\]<\w+>:(.*)", ended[0].text, re.MULTILINE)
        return self._read_log("\n".join(first), ended)

    def run_torch(self, passes: int) -> JobRun:
        command = [self._python or sys.executable, "-m", "torch_baseline", self._workload.name]
        command += [str(self._directory), str(self._model), f"--passes={passes + 1}"]
        command += [f"--ranks={self._nodes}", f"--port={find_port(['127.0.0.1'])}"]
        ended = self._run([[*command, f"--rank={rank}"] for rank in range(self._nodes)], HERE)
        lines = read_baseline(ended[0].text)
        samples = self._nodes * self._workload.count_samples(self._directory)
        rates = [samples / seconds for seconds, _ in lines[1:]]
        return JobRun(rates, lines[0][1], max(one.peak_mb for one in ended))

    def _run(self, commands: list[list[str]], path: Path) -> list[Ended]:
        return run_processes(commands, self._directory, thread_environment(1, PYTHONPATH=str(path)))

    def _read_log(self, log: str, trainers: list[Ended]) -> JobRun:
        lines = read_passes(log)
        rates = find_rates(lines, self._nodes * lines[0].samples)
        return JobRun(rates, float(lines[0].cost), max(one.peak_mb for one in trainers))


def require_alike(runs: Mapping[str, JobRun]) -> None:
    """Prints the costs of the first pass.

    Raises: SystemExit: the costs are so different that the trainings cannot be the same.
    """
    costs = {way: run.first_cost for way, run in runs.items()}
    shown = ", ".join(f"{way} {cost:.5g}" for way, cost in costs.items())
    print(f"costs of the first pass: {shown}", flush=True)
    if not max(costs.values()) <= ALIKE * min(costs.values()):
        raise SystemExit("bench/nodes.py: the costs differ too much, so the ways do not do the same work")


def show_row(way: str, nodes: int, runs: list[JobRun], torch_runs: list[JobRun]) -> str:
    """Returns a row of the table; a ratio compares the runs of one round."""
    rates = show_rates([rate for run in runs for rate in run.rates])
    ratio = ""
    if torch_runs and way != "torch":
        pairs = zip(runs, torch_runs, strict=True)
        ratio = spread([statistics.median(own.rates) / statistics.median(its.rates) for own, its in pairs])
    servers = [run.server_mb for run in runs if run.server_mb is not None]
    cells = [way, str(nodes), rates, ratio, f"{GOALS[way]:g}" if way in GOALS else ""]
    cells += [f"{max(run.trainer_mb for run in runs):.0f} MB", f"{max(servers):.0f} MB" if servers else ""]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the costs of the first pass, then a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable, help="path of a Python that has torch")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--passes", type=int, default=2, help="number of timed passes in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=6, help="number of batches of a pass on each node")
    parser.add_argument("--only", nargs="+", choices=[*GOALS, "torch"], default=[*GOALS, "torch"])
    options = parser.parse_args()
    print(describe_machine())
    python = find_peer(options.torch, "torch.distributed", "torch") if "torch" in options.only else None
    workload = next(one for one in WORKLOADS if one.name == "recommendation")
    with tempfile.TemporaryDirectory() as scratch:
        directory = prepare(workload, Path(scratch, "job"), Sizes(batches=options.batches))
        run_trainer(workload, directory, "--num_passes=1", "--save_dir=start")
        model = directory / "start/pass-00000"
        print(f"{count_parameters(model):,} parameters")
        jobs = Jobs(workload, directory, model, options.nodes, python).ways()
        chosen = {way: run for way, run in jobs.items() if way in options.only}
        runs: dict[str, list[JobRun]] = {way: [] for way in chosen}
        for number in range(options.rounds):
            for way, run in chosen.items():
                runs[way].append(run(options.passes))
            if not number and chosen:
                require_alike({way: ran[0] for way, ran in runs.items()})
    print(HEADER)
    for way, ran in runs.items():
        print(show_row(way, options.nodes, ran, runs.get("torch", [])))
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
