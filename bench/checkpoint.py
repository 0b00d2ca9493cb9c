"""Measure how long the checksums of a checkpoint's files take: a checkpoint is written with and without checksums.

    .venv/bin/python bench/checkpoint.py [--mib=64 --repeats=15 --directory=/where/the/volume/is]

The ways to write run in alternation. The program prints the machine, the ratio of each time to the time without
checksums, and the spread over the repeats. The state is the state of Adam: values, and two arrays of the same size.
With OPENSSL_ia32cap=:~0x20000000 in the environment, OpenSSL computes SHA-256 as on a processor without SHA
instructions.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # comes before bench/, which also has a module `pserver`

import argparse
import contextlib
import hashlib
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator

import numpy as np
from machine import describe_machine, spread

from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.runtime.durable_files import Content
from pserver.store.snapshot import CheckpointState, Part
from trainer.arrays.parameters import ParameterTable
from trainer.storage import checkpoint
from trainer.storage.sums import sum_of

PARAMETERS = 8
LEAST_REPEATS = 3


class NoSums:
    """Replaces `trainer.storage.sums.Summing`, and computes no checksum."""

    def __enter__(self) -> NoSums:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add(self, name: str, content: Content) -> Content:
        """Return the content unchanged."""
        return content

    def result(self) -> dict[str, str]:
        """Return no checksums."""
        return {}


class SumsInLine(NoSums):
    """Computes the checksum of every file before the file is written, without a thread."""

    def add(self, name: str, content: Content) -> Content:
        """Compute the checksum of the content."""
        parts = list(content)
        sum_of(parts)
        return parts


class Others(checkpoint.Summing):
    """Computes another kind of checksum in a thread."""

    function: Callable[[list[bytes | memoryview]], str]

    def add(self, name: str, content: Content) -> Content:
        """Begin to compute the checksum of the content."""
        parts = list(content)
        self._sums[name] = self._pool.submit(type(self).function, parts)
        return parts


class Digests(Others):
    """Computes SHA-256 in a thread."""

    @staticmethod
    def function(parts: list[bytes | memoryview]) -> str:
        """Return the SHA-256 of some bytes."""
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        return digest.hexdigest()


class Checks(Others):
    """Computes CRC-32 in a thread."""

    @staticmethod
    def function(parts: list[bytes | memoryview]) -> str:
        """Return the CRC-32 of some bytes."""
        found = 0
        for part in parts:
            found = zlib.crc32(part, found)
        return f"{found:08x}"


CONTESTANTS = {
    "without sums": NoSums,
    "sums in a thread": checkpoint.Summing,
    "sums in line": SumsInLine,
    "CRC-32 in a thread": Checks,
    "SHA-256 in a thread": Digests,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64, help="MiB of the values; a checkpoint is three times as large")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--directory", type=Path, help="directory to write to; default: that of temporary files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        times = measure(Path(folder), arguments.mib << 20, max(arguments.repeats, LEAST_REPEATS))
    print(describe_machine())
    print(f"{3 * arguments.mib} MiB a checkpoint, {len(times['without sums'])} repeats, median (lowest to highest)")
    for name, found in times.items():
        ratios = [one / other for one, other in zip(found, times["without sums"], strict=True)]
        least = min(found) / min(times["without sums"])
        print(f"{name:20} {spread(found)} s, ratio {spread(ratios)}, of the quickest writes {least:.2f}")
    for name, function in (("sums", sum_of), ("CRC-32", Checks.function), ("SHA-256", Digests.function)):
        print(f"{f'{name} alone':20} {spread(speeds_of(function, arguments.mib << 20))} GB in a second of processor")


def measure(folder: Path, size: int, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of every write, by the name in CONTESTANTS."""
    elements = size // 4 // PARAMETERS
    table = ParameterTable(
        [ParameterConfig(name=f"w{k}", size=elements, dims=[1, elements]) for k in range(PARAMETERS)]
    )
    dice = np.random.default_rng(1)
    table.values[:] = dice.standard_normal(table.values.size, np.float32)
    state = {name: dice.standard_normal(table.values.size, np.float32) for name in ("state.mom", "state.v")}
    gathered = CheckpointState([Part({}, {"values": table.values, **state})], [None])
    times: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for number in range(-1, repeats):  # the first write only warms up
        for name, contestant in CONTESTANTS.items():
            target = folder / "state" / "pass-00000"
            with replaced(contestant):
                began = time.perf_counter()
                checkpoint.write_checkpoint(target, gathered, table, {}, {})
                took = time.perf_counter() - began
            shutil.rmtree(target)
            if number >= 0:
                times[name].append(took)
    return times


@contextlib.contextmanager
def replaced(contestant: type) -> Iterator[None]:
    """Let this class compute the checksums of checkpoints inside the block."""
    before = checkpoint.Summing
    checkpoint.Summing = contestant  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        checkpoint.Summing = before  # type: ignore[misc]


def speeds_of(function: Callable[[list[bytes | memoryview]], str], size: int) -> list[float]:
    """Return the speeds of five checksums in GB per second of processor time, which other programs do not change."""
    data = np.random.default_rng(2).bytes(size)
    speeds = []
    for _ in range(5):
        began = time.thread_time()
        function([data])
        speeds.append(size / (time.thread_time() - began) / 1e9)
    return speeds


if __name__ == "__main__":
    main()
