"""Measure the memory of the pool of samples: the peak of a pass over the bytes of the samples in a full pool.

    .venv/bin/python bench/pool.py [--mib=128 --turns=3 --batch=16 --repository=DIRECTORY]

Each run reads one pass of a provider in a process of its own, without a network. The samples are dense vectors, or
sequences of frames, of 1 kB, 80 kB and 600 kB. A pool of `--mib` holds as many of them as fit. The pass has five pools
of
samples. The peak is the growth of the resident memory since the start of the pass. It includes the pool, the samples
that are read ahead, and one batch. The cases run in alternation; for each case, the program prints the ratio with its
spread, and the samples per second of processor time. `--repository` measures another checkout of this project.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from machine import describe_machine, spread

HERE = Path(__file__).parents[1]
SIZES = (1_000, 80_000, 600_000)  # bytes of a sample: a record of features, a small image, an image of 3 x 224 x 224
LEAST_TURNS = 3
POOLS = 5  # samples of a pass, as a multiple of the pool
CASES = {  # options of @provider; POOL is the number of samples that fit into --mib
    "shuffled": {"pool_size": "POOL"},
    "in order": {"pool_size": "POOL", "should_shuffle": False},
    "min_pool_size": {"pool_size": "POOL", "min_pool_size": 1},
    "no limit": {"pool_size": -1},
    "cached": {"pool_size": "POOL", "cache": 1},
}
# A run: argv has the options, the bytes of a sample, the samples of the pass, the batch size, and whether samples are
# sequences. It prints the peak in bytes, the seconds of processor time, and the samples.
RUN = """
import json, sys, time
import numpy as np
from trainer.arrays.rng import Stream
from trainer.data.provider2 import dense_vector, dense_vector_sequence, provider
from trainer.data.source import DataSource, DataStreams

options, size, count, batch, ragged = json.loads(sys.argv[1])
numbers, frames = size // 4, size // 200

def read(settings, file):
    for number in range(count):
        if ragged:  # half to three halves of the frames
            yield np.full((frames // 2 + number * 7919 % (frames + 1), 50), number, np.float32)
        else:
            yield np.full(numbers, number, np.float32)

def memory(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))

kind = dense_vector_sequence(50) if ragged else dense_vector(numbers)
settings = provider(input_types=[kind], **options)(read)(["f"], is_train=True, input_order=["x"])
shuffled = settings.should_shuffle is not False
source = DataSource(settings, ["f"], shuffled=shuffled, streams=DataStreams(Stream(1), mixing=Stream(1)))
before, began, samples = memory("VmRSS"), time.process_time(), 0
source.start_pass()
while (made := source.next_batch(batch)) is not None:
    samples += made[1]
    del made  # a trainer, too, holds one batch
print(json.dumps([memory("VmHWM") - before, time.process_time() - began, samples]))
"""


@dataclass(frozen=True)
class Measured:
    """The result of a run: the peak over the bytes that the samples need, and the samples per second."""

    ratio: float
    rate: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=128, help="size of a full pool in MiB")
    parser.add_argument("--turns", type=int, default=LEAST_TURNS)
    parser.add_argument("--batch", type=int, default=16, help="samples of a batch")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of a sample")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=tuple(CASES))
    parser.add_argument("--repository", type=Path, default=HERE, help="the checkout that is measured")
    arguments = parser.parse_args()
    print(describe_machine())
    for size in arguments.sizes:
        runs = [(name, ragged) for name in arguments.cases for ragged in (False, True)]
        found: dict[tuple[str, bool], list[Measured]] = {run: [] for run in runs}
        for _ in range(max(arguments.turns, LEAST_TURNS)):
            for name, ragged in runs:
                found[name, ragged].append(measure(arguments, name, size, ragged))
        print(f"\nsamples of {size} bytes, a pool of {arguments.mib} MiB, batches of {arguments.batch}")
        for (name, ragged), results in found.items():
            print(
                f"{name:13} {'sequences' if ragged else 'vectors':9} peak / bytes of the pool "
                f"{spread([one.ratio for one in results])}, "
                f"{statistics.median(one.rate for one in results):7.0f} samples in a second of the processor"
            )


def measure(arguments: argparse.Namespace, name: str, size: int, ragged: bool) -> Measured:
    """Read a pass in a process of its own."""
    pool = (arguments.mib << 20) // size
    options = {key: pool if value == "POOL" else value for key, value in CASES[name].items()}
    everything = name in ("no limit", "cached")
    count = pool if everything else POOLS * pool
    command = [sys.executable, "-c", RUN, json.dumps([options, size, count, arguments.batch, ragged])]
    environment = {**os.environ, "PYTHONPATH": str(arguments.repository)}
    output = subprocess.run(
        command, env=environment, cwd=arguments.repository, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    peak, seconds, samples = json.loads(output)
    assert samples == count
    return Measured(peak / (pool * size), samples / seconds)


if __name__ == "__main__":
    main()
