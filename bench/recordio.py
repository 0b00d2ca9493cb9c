"""Compare RecordIO files with plain files of the same records: bytes of records per second, read and written.

    .venv/bin/python bench/recordio.py [--mib=64 --turns=7 --directory=/where/the/volume/is]

The ways to read and write run in alternation. For small and large records, the program prints the MB/s of every way and
its ratio to the plain file in the same turn. The plain file is read in blocks of 1 MiB; `lines` reads the same file
line by line, which is the usual way to read records without RecordIO. The files that are read are in the page cache.
Every write ends with fsync. The rates per second of processor time do not depend on other programs.
"""

from __future__ import annotations

import sys
from pathlib import Path

# comes before bench/, because this file has the name of the package that it measures
sys.path.insert(0, str(Path(__file__).parents[1]))

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence

from machine import describe_machine, spread

from paddle_base.recordio.index import read_index
from paddle_base.recordio.layout import Compression
from paddle_base.recordio.reading import RecordIOReader
from paddle_base.recordio.writing import RecordIOWriter

BLOCK = 1 << 20
SIZES = (100, 10_000)  # bytes of a small record, such as a text, and of a large record, such as an image
WORDS = 5000  # number of different words
LEAST_TURNS = 3
Way = Callable[[], int]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64, help="size of all records in MiB")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--directory", type=Path, help="directory to write to; default: that of temporary files")
    arguments = parser.parse_args()
    print(describe_machine())
    for size in SIZES:
        records = make_records(size, (arguments.mib << 20) // size)
        with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
            ways = list_ways(Path(folder), records)
            rates = measure(ways, sum(map(len, records)), max(arguments.turns, LEAST_TURNS))
            packed = {one.name: (Path(folder) / one.name).stat().st_size / size / len(records) for one in Compression}
            seconds = measure_index(Path(folder) / "chunks", records)
        print(f"\n{len(records)} records of {size} bytes, median (lowest to highest)")
        for name, found in rates.items():
            base = rates["write plain" if name.startswith("write") else "read plain"]
            ratios = [one / other for (one, _), (other, _) in zip(found, base, strict=True)]
            print(
                f"{name:14} {statistics.median(one for one, _ in found):7.0f} MB/s, of the plain file "
                f"{spread(ratios)}; "
                f"{statistics.median(one for _, one in found):7.0f} MB in a second of the processor"
            )
        print("file bytes for each byte of a record: " + ", ".join(f"{name} {one:.2f}" for name, one in packed.items()))
        print(f"index of a file with a chunk for each of {len(records)} records: {seconds:.2f} s of the processor")


def make_records(size: int, count: int) -> list[bytes]:
    """Return records of words; each record has `size` bytes and contains no line feed."""
    dice = random.Random(1)
    words = [bytes(dice.choices(b"abcdefghijklmnopqrstuvwxyz", k=dice.randint(2, 9))) for _ in range(WORDS)]
    text = b" ".join(dice.choices(words, k=size * 40))
    starts = [dice.randrange(len(text) - size) for _ in range(count)]
    return [text[start : start + size] for start in starts]


def list_ways(folder: Path, records: Sequence[bytes]) -> dict[str, Way]:
    """Return the measured functions, by name; each function returns the number of bytes that it has read or written."""
    plain = folder / "plain"

    def write_plain() -> int:
        with plain.open("wb") as file:
            for record in records:
                file.write(record + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return plain.stat().st_size

    def read_plain() -> int:
        with plain.open("rb", buffering=0) as file:
            return sum(iter(lambda: len(file.read(BLOCK)), 0))

    def read_lines() -> int:
        with plain.open("rb") as file:
            return sum(len(line) for line in file)

    def write(compression: Compression) -> int:
        with RecordIOWriter(folder / compression.name, compression) as writer:
            for record in records:
                writer.write(record)
        return (folder / compression.name).stat().st_size

    def read(compression: Compression) -> int:
        return sum(len(record) for record in RecordIOReader(folder / compression.name))

    ways: dict[str, Way] = {"write plain": write_plain, "read plain": read_plain, "read lines": read_lines}
    for one in Compression:
        ways[f"write {one.name.lower()}"] = lambda one=one: write(one)
        ways[f"read {one.name.lower()}"] = lambda one=one: read(one)
    return ways


def measure(ways: dict[str, Way], size: int, turns: int) -> dict[str, list[tuple[float, float]]]:
    """Return the MB/s of each way in every turn, by the clock and by the processor's time."""
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(-1, turns):  # the first turn only warms up
        for name, way in ways.items():
            began, busy = time.perf_counter(), time.thread_time()
            way()
            took, used = time.perf_counter() - began, time.thread_time() - busy
            if turn >= 0:
                rates[name].append((size / took / 1e6, size / used / 1e6))
    return rates


def measure_index(path: Path, records: Sequence[bytes]) -> float:
    """Return the seconds of processor time in which `read_index` reads a file that has a chunk for each record."""
    with RecordIOWriter(path, Compression.NONE, 1) as writer:
        for record in records:
            writer.write(record)
    began = time.thread_time()
    read_index(path)
    return time.thread_time() - began


if __name__ == "__main__":
    main()
