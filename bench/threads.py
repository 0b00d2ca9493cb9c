"""Measure where a second thread of --trainer_count saves time, and how much time too many threads of products cost.

usage: bench/threads.py [--only split|products] [--rounds N]

split: the networks have 1 to 8 fc layers of several widths, and a batch has 128 samples. The program prints the
processor milliseconds of a step (forward and backward, without the optimiser) of the whole batch (`whole`), and of the
two halves of the batch one after the other (`shares`). Other programs on the machine do not change processor time. The
difference `more` = `shares` - `whole` is time of the Python interpreter, which a second thread cannot save. A second
thread takes half of the other work. A second thread therefore saves at most (whole - more) / 2 - more. The program also
prints the number of operations of each layer, as trainer/network/batch_work.py estimates them; LEAST_OF_LAYER of that
module is the number at which nothing is saved. The last row is the network lr of quick_start, whose input is sparse.

products: `paddle train --job=time` runs four convolution layers with --trainer_count=2 and OPENBLAS_NUM_THREADS=2, in
alternation with the usual limit (processors / 2 threads for products) and without a limit (PADDLE_BLAS_THREADS=2).
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")  # before numpy
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

BATCH = 128
SHAPES = [(1, 32), (1, 64), (1, 128), (1, 512), (1, 1024), (3, 64), (3, 128), (3, 256), (8, 64), (8, 128), (8, 256)]
NETWORK = """
from paddle.trainer_config_helpers import *
settings(batch_size=1, learning_rate=0.1)
x = data_layer("x", {inputs})
for _ in range({layers}):
    x = fc_layer(x, {width})
outputs(classification_cost(fc_layer(x, 2, act=SoftmaxActivation()), data_layer("label", 2)))
"""
IMAGES = """
from paddle.trainer_config_helpers import *
define_py_data_sources2("list", None, "images", "process")
settings(batch_size=16, learning_rate=1e-6)
x = data_layer("x", 3 * 32 * 32)
for number, filters in enumerate([32, 32, 64, 64]):
    x = img_conv_layer(x, 3, filters, num_channels=3 if number == 0 else None, padding=1, act=ReluActivation())
    x = img_pool_layer(x, 2, stride=2) if number == 1 else x
outputs(classification_cost(fc_layer(x, 10, act=SoftmaxActivation()), data_layer("label", 10)))
"""
PROVIDER = """
from paddle.trainer.PyDataProvider2 import *
import numpy as np
@provider(input_types={"x": dense_vector(3072), "label": integer_value(10)})
def process(settings, name):
    draw = np.random.RandomState(0)
    for _ in range(64):
        yield {"x": draw.rand(3072).astype("f"), "label": int(draw.randint(10))}
"""


def spread(values: Iterable[float], form: str = "{:.2f}") -> str:
    """Returns the text 'median (smallest to largest)' for some values."""
    ordered = sorted(values)
    return f"{form.format(statistics.median(ordered))} ({form.format(ordered[0])} to {form.format(ordered[-1])})"


def processor_time(step: Callable[[], object], rounds: int, seconds: float = 0.2) -> float:
    """Returns the processor milliseconds of a call in the fastest round."""
    best = float("inf")
    for _ in range(rounds):
        count, end, begin = 0, time.perf_counter() + seconds, time.thread_time()
        while time.perf_counter() < end:
            step()
            count += 1
        best = min(best, 1e3 * (time.thread_time() - begin) / count)
    return best


def make_step(model: Any, batch: Any, shares: int) -> Callable[[], object]:
    """Returns a function that trains on the batch, as a whole or in parts that are computed one after the other."""
    from trainer.arrays.parameters import ParameterTable
    from trainer.arrays.rng import Stream
    from trainer.network.data_parallel import cut_batch
    from trainer.network.network import Network

    table = ParameterTable(model.parameters)
    table.randomize(Stream(1))
    tables = [table, *(table.replicate() for _ in range(1, shares))]
    networks = [Network(model, one) for one in tables]

    def step() -> None:
        for one, network, part in zip(tables, networks, cut_batch(batch, shares), strict=True):
            one.clear_gradients()
            network.forward(part or {}, Stream(1))
            network.backward()
        for one in tables[1:]:
            table.add_gradients_of(one)

    return step


def bench_split(rounds: int, directory: Path) -> None:
    """Prints a row for each network."""
    import numpy as np

    from trainer.arrays.arguments import Argument, Sparse
    from trainer.config import parse_config
    from trainer.network.batch_work import estimate

    logging.disable(logging.INFO)
    rng = np.random.default_rng(1)
    label = Argument(ids=rng.integers(0, 2, BATCH).astype(np.int32))
    offsets = np.arange(BATCH + 1) * 80
    sparse = Argument(sparse=Sparse(30000, offsets, np.sort(rng.integers(0, 30000, 80 * BATCH)).astype(np.int32)))
    print("| layers, width | million operations a layer | whole, ms | two shares, ms | saved at best, ms |")
    print("|---|---|---|---|---|")
    for layers, width in [*SHAPES, (0, 30000)]:
        (directory / "config.py").write_text(NETWORK.format(inputs=width, layers=layers, width=width))
        model = parse_config(str(directory / "config.py"), "").model_config
        x = sparse if not layers else Argument(value=rng.normal(size=(BATCH, width)).astype(np.float32))
        batch = {"x": x, "label": label}
        work = estimate(model)
        assert work is not None
        each = work.operations(batch) / work.layers / 1e6
        whole, shares = (processor_time(make_step(model, batch, count), rounds) for count in (1, 2))
        more = shares - whole
        name = f"{layers}, {width}" if layers else "lr, sparse"
        print(f"| {name} | {each:.2f} | {whole:.3f} | {shares:.3f} | {(whole - more) / 2 - more:.3f} |", flush=True)


def bench_products(rounds: int, directory: Path) -> None:
    """Prints the times of both settings."""
    (directory / "config.py").write_text(IMAGES)
    (directory / "images.py").write_text(PROVIDER)
    (directory / "list").write_text("one\n")
    found: dict[str, list[float]] = {"limited": [], "not limited": []}
    for _ in range(rounds):
        for name, times in found.items():
            environ = dict(os.environ, OPENBLAS_NUM_THREADS="2", PYTHONPATH=str(ROOT))
            environ.update({} if name == "limited" else {"PADDLE_BLAS_THREADS": "2"})
            command = [sys.executable, "-m", "paddle", "train", "--config=config.py", "--job=time", "--test_period=10"]
            done = subprocess.run(
                [*command, "--trainer_count=2"], cwd=directory, env=environ, capture_output=True, text=True, check=True
            )
            match = re.search(r" ([\d.e+]+) ms a batch, ", done.stderr)
            assert match is not None, done.stderr
            times.append(float(match[1]))
    ratios = [b / a for a, b in zip(found["limited"], found["not limited"], strict=True)]
    for name, times in found.items():
        print(f"{name}: {spread(times, '{:.0f}')} ms a batch")
    print(f"not limited / limited: {spread(ratios)}")


def main() -> None:
    """Runs the measurements that the options select."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["split", "products"])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for name, run in (("split", bench_split), ("products", bench_products)):
        if options.only in (None, name):
            with tempfile.TemporaryDirectory() as directory:
                run(options.rounds, Path(directory))


if __name__ == "__main__":
    main()
