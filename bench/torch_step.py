"""Measure a training step of PyTorch models with `paddle.elastic.torch`, and with DistributedDataParallel and gloo.

    python bench/torch_step.py [--sizes 2 4] [--rounds N] [--repeats N] [--bucket-view]

The model has the 161 parameters of ResNet-50 (25.6M numbers). Its backward only copies a gradient for each parameter,
one after another, so that a step is mostly the exchange and the update by SGD. The time of the processor says most on
a machine with other load. Each rank is a process with one thread,
and runs all ways in alternation: "memory" is `DistributedOptimizer` over shared memory, "connections" is the same over
TCP connections, and "gloo" is DistributedDataParallel. The rows are:

- step: zero_grad, forward, backward and step; "fp16" is the same step with fp16 compression.
- many: 161 all-reduces in place that begin before the first wait, against those of torch.distributed.
- memory: the peak memory of a process over that of a process with the same model and no other ranks.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the ranks, which also run this script, import the project

from machine import describe_machine, spread

WAYS = ("memory", "connections", "gloo")
ROWS = {"step": ("memory", "memory fp16", "connections", "connections fp16", "gloo"), "many": WAYS}
DEADLINE_S = 300.0


def list_shapes() -> list[tuple[int, ...]]:
    """Return the shapes of the parameters of ResNet-50 in their order."""
    shapes: list[tuple[int, ...]] = []

    def add(*convolution: int) -> None:  # a convolution without a bias, and its batch norm
        shapes.extend([convolution, convolution[:1], convolution[:1]])

    add(64, 3, 7, 7)
    inputs = 64
    for planes, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            add(planes, inputs, 1, 1)
            add(planes, planes, 3, 3)
            add(4 * planes, planes, 1, 1)
            if block == 0:
                add(4 * planes, inputs, 1, 1)
            inputs = 4 * planes
    return [*shapes, (1000, inputs), (1000,)]


# ----- A rank -----


def make_model() -> Any:
    """Return a model whose backward copies a gradient for each parameter, from the last one to the first."""
    import torch

    class CopyGradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, parameter: Any) -> Any:
            ctx.save_for_backward(parameter)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient, ctx.saved_tensors[0].clone()

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            parameters = [torch.nn.Parameter(torch.full(shape, 0.001)) for shape in list_shapes()]
            self.parameters_ = torch.nn.ParameterList(parameters)

        def forward(self, x: Any) -> Any:
            for parameter in self.parameters_:
                x = CopyGradient.apply(x, parameter)
            return x

    return Model()


class Rank:
    """The models and groups of a rank, by way; those of a way are made when it first runs."""

    def __init__(self, rank: int, ports: dict[str, list[int]], has_view: bool) -> None:
        import torch

        torch.set_num_threads(1)
        self.rank, self.ports, self.has_view = rank, ports, has_view
        self.groups: dict[str, Any] = {}
        self.steps: dict[tuple[str, str], Any] = {}

    def join(self, way: str) -> None:
        """Form the group of a way, or let the collectives of this project use it."""
        ports = self.ports[way]
        if way == "gloo":
            import torch.distributed as dist

            if not dist.is_initialized():
                dist.init_process_group("gloo", f"tcp://127.0.0.1:{ports[0]}", rank=self.rank, world_size=len(ports))
            return
        from paddle_cluster.elastic.collectives.forming import form
        from paddle_cluster.elastic.collectives.joining import GroupPlan
        from paddle_cluster.elastic.process.membership import WORKER

        class FixedStore:
            def put(self, scope: str, key: str, value: bytes) -> None: ...

            def get(self, scope: str, key: str, wait: float = 0.0) -> bytes | None:
                return json.dumps({"host": "127.0.0.1", "port": ports[int(key)]}).encode() if key.isdigit() else None

        if way not in self.groups:
            plan = GroupPlan(self.rank, len(ports), way, secret="secret", timeout=120.0, port=ports[self.rank])
            self.groups[way] = form(plan, FixedStore(), near=None if way == "memory" else ())
        WORKER.sets.whole.register(0, self.groups[way])

    def make_step(self, row: str, way: str) -> Any:
        """Return a function that runs one round of a row in a way."""
        import torch

        if row == "many":
            return self.make_many(way)
        model = make_model()
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=1e-6)
        if way == "gloo":
            model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=self.has_view)
        elif way != "alone":
            import paddle.elastic.torch as hvd

            compression = hvd.Compression.fp16 if way.endswith("fp16") else hvd.Compression.none
            optimizer = hvd.DistributedOptimizer(optimizer, list(model.named_parameters()), compression)
        x = torch.ones(1, requires_grad=True)

        def step() -> None:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        return step

    def make_many(self, way: str) -> Any:
        import torch

        tensors = [torch.full(shape, 1e-30) for shape in list_shapes()]
        if way == "gloo":
            import torch.distributed as dist

            def reduce() -> None:
                for work in [dist.all_reduce(one, async_op=True) for one in tensors]:
                    work.wait()

            return reduce
        import paddle.elastic.torch as hvd

        def reduce_ours() -> None:
            names = [hvd.allreduce_async_(one, op=hvd.Sum, name=str(number)) for number, one in enumerate(tensors)]
            for name in names:
                hvd.synchronize(name)

        return reduce_ours

    def run(self, row: str, way: str, rounds: int) -> float:
        """Return the seconds of some rounds."""
        if way != "alone":
            self.join(way.split()[0])
        if (row, way) not in self.steps:
            self.steps[row, way] = self.make_step(row, way)
        step = self.steps[row, way]
        began = time.perf_counter()
        for _ in range(rounds):
            step()
        return time.perf_counter() - began

    def forget(self) -> None:
        """Free the models of a row."""
        self.steps.clear()


def serve(rank: int, ports: dict[str, list[int]], has_view: bool) -> None:
    """Run as a rank: read rows, ways and numbers of rounds from stdin, and write the seconds."""
    own = Rank(rank, ports, has_view)
    last = ""
    for line in sys.stdin:
        row, way, rounds = json.loads(line)
        if row != last:
            own.forget()
        last = row
        before = time.process_time()
        seconds = own.run(row, way, rounds)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps([seconds, time.process_time() - before, peak]), flush=True)


# ----- The parent -----


class Ranks:
    """The processes of the ranks."""

    def __init__(self, size: int, has_view: bool) -> None:
        ports = {way: find_ports(size) for way in WAYS}
        self.processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank", json.dumps([rank, ports, has_view])],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for rank in range(size)
        ]  # fmt: skip

    def run(self, row: str, way: str, rounds: int) -> tuple[float, float, float]:
        """Run some rounds.

        Returns: the milliseconds of a round, and those of processor time, of the slowest rank; the largest peak memory.
        """
        for one in self.processes:
            print(json.dumps([row, way, rounds]), file=one.stdin, flush=True)
        lines = [one.stdout.readline() for one in self.processes]
        if not all(lines):
            raise SystemExit("bench: a rank ended early")
        answers = [json.loads(line) for line in lines]
        seconds, busy, peak = (max(column) for column in zip(*answers, strict=True))
        return 1000 * seconds / rounds, 1000 * busy / rounds, peak

    def close(self) -> None:
        """End the processes."""
        for one in self.processes:
            one.stdin.close()
        for one in self.processes:
            try:
                one.wait(DEADLINE_S)
            finally:
                one.kill()
                one.wait()
            one.stdout.close()


def find_ports(count: int) -> list[int]:
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in holders]
    for one in holders:
        one.close()
    return ports


def compare(ranks: Ranks, size: int, row: str, rounds: int, repeats: int) -> None:
    """Measure and print a row."""
    times: dict[str, list[float]] = {way: [] for way in ROWS[row]}
    busy: dict[str, list[float]] = {way: [] for way in ROWS[row]}
    for number in range(repeats + 1):  # the first time only warms up
        for way in times:
            found, used, _ = ranks.run(row, way, rounds)
            if number:
                times[way].append(found)
                busy[way].append(used)
    for way, own in times.items():
        line = f"{size} processes, {row}, {way}: {spread(own)} ms, of the processor {spread(busy[way])} ms"
        if way != "gloo":
            line += f"; {divide(own, times['gloo'])} x gloo"
        if way.endswith("fp16"):
            line += f"; {divide(own, times[way.split()[0]])} x float32"
        print(line, flush=True)


def divide(own: list[float], others: list[float]) -> str:
    return spread([a / b for a, b in zip(own, others, strict=True)])


def measure_memory(size: int, has_view: bool) -> None:
    """Print the peak memory of a rank in each way, over that of the same model without other ranks."""
    peaks = {}
    for way in ("alone", *WAYS):
        ranks = Ranks(1 if way == "alone" else size, has_view)
        try:
            peaks[way] = ranks.run("step", way, 5)[2]
        finally:
            ranks.close()
    own = {way: peaks[way] - peaks["alone"] for way in WAYS}
    for way, more in own.items():
        ratio = more / own["gloo"]
        print(f"{size} processes, memory, {way}: {more:.0f} MB over {peaks['alone']:.0f} MB; {ratio:.2f} x gloo")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--bucket-view", action="store_true", help="let DDP's gradients be views of its buckets")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        serve(*json.loads(args.rank))
        return
    shapes = list_shapes()
    print(describe_machine())
    print(f"{len(shapes)} parameters, {sum(map(math.prod, shapes)):,} numbers", flush=True)
    for size in args.sizes:
        ranks = Ranks(size, args.bucket_view)
        try:
            for row in ROWS:
                compare(ranks, size, row, args.rounds, args.repeats)
        finally:
            ranks.close()
        measure_memory(size, args.bucket_view)


if __name__ == "__main__":
    main()
