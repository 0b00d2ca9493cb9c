"""Compare the forms in which samples can lie: samples per second from files to batches, as a trainer takes them.

    .venv/bin/python bench/provider.py [--samples=50000 --turns=5 --directory=/where/the/volume/is]

The same samples lie in Parquet, in CSV and in text. Each form is read by its provider, and taken in batches of 128 as
`paddle train` does, in the order of the file and shuffled. `pyarrow alone` reads the same Parquet file in batches of
4096 rows and makes nothing of them. The forms run in alternation, and each ratio is of the same turn. The files are in
the page cache.

Dense samples have 64 numbers and a label; the text form of these is SimpleData. Texts have 20 to 60 ids and a label;
the text form has words, and its provider looks each word up, as that of the example quick_start does.
"""

from __future__ import annotations

import sys
from pathlib import Path

# comes before bench/, because this file has the name of a module of the project
sys.path.insert(0, str(Path(__file__).parents[1]))

import argparse
import csv
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from machine import describe_machine, spread
from pyarrow import parquet

from trainer.arrays.rng import Stream
from trainer.data.older import text
from trainer.data.provider2 import DataProvider, dense_vector, integer_value, integer_value_sequence, provider
from trainer.data.source import DataSource, DataStreams
from trainer.data.tables.provider import make_provider

WIDTH, CLASSES, WORDS = 64, 10, 30_000
BATCH = 128
LEAST_TURNS = 3
DENSE = {"x": dense_vector(WIDTH), "y": integer_value(CLASSES)}
TEXTS = {"x": integer_value_sequence(WORDS), "y": integer_value(CLASSES)}
Way = Callable[[], int]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="directory to write to; default: that of temporary files")
    arguments = parser.parse_args()
    print(describe_machine())
    for name, make in (("dense samples", make_dense_ways), ("texts", make_text_ways)):
        with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
            ways = make(Path(folder), arguments.samples)
            rates = measure(ways, arguments.samples, max(arguments.turns, LEAST_TURNS))
        print(f"\n{name}: samples per second, median (lowest to highest); ratios to Parquet in the order of the file")
        for way, found in rates.items():
            ratios = [one / other for one, other in zip(found, rates["Parquet"], strict=True)]
            print(f"{way:24} {statistics.median(found):12,.0f}  {spread(ratios)}")


def measure(ways: dict[str, Way], samples: int, turns: int) -> dict[str, list[float]]:
    """Return the samples per second of each way in every turn."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(-1, turns):  # the first turn only warms up
        for name, way in ways.items():
            began = time.perf_counter()
            count = way()
            took = time.perf_counter() - began
            if count != samples:
                raise SystemExit(f"{name} gives {count} samples instead of {samples}")
            if turn >= 0:
                rates[name].append(samples / took)
    return rates


def take_all(made: type[DataProvider], path: Path, *, shuffled: bool) -> int:
    """Take a pass of batches, as a trainer does, and return the number of samples."""
    settings = made([str(path)], is_train=True, input_order=["x", "y"])
    streams = DataStreams(Stream(1), mixing=Stream(1))
    source = DataSource(settings, [str(path)], shuffled=shuffled, streams=streams)
    source.start_pass()
    count = 0
    while (batch := source.next_batch(BATCH)) is not None:
        count += batch[1]
    return count


def read_alone(path: Path) -> int:
    """Read a Parquet file by pyarrow only."""
    return sum(batch.num_rows for batch in parquet.ParquetFile(path).iter_batches(4096, use_threads=False))


def of_parquet(kinds: dict[str, Any]) -> type[DataProvider]:
    """Return the provider of columns that have the names of the slots."""
    slots = [(name, kind.dim, kind.seq_type, kind.type, [name]) for name, kind in kinds.items()]
    return make_provider({"slots": slots})


def list_ways(table: pa.Table, folder: Path, kinds: dict[str, Any], others: dict[str, Any]) -> dict[str, Way]:
    """Return the measured functions. Args: others: a provider and a file by the name of the form."""
    path = folder / "samples.parquet"
    parquet.write_table(table, path, row_group_size=10_000)
    made = of_parquet(kinds)
    ways: dict[str, Way] = {
        "pyarrow alone": lambda: read_alone(path),
        "Parquet": lambda: take_all(made, path, shuffled=False),
        "Parquet, shuffled": lambda: take_all(made, path, shuffled=True),
    }
    for name, (one, file) in others.items():
        ways[name] = lambda one=one, file=file: take_all(one, file, shuffled=False)
        ways[f"{name}, shuffled"] = lambda one=one, file=file: take_all(one, file, shuffled=True)
    return ways


def make_dense_ways(folder: Path, samples: int) -> dict[str, Way]:
    """Write dense samples in each form."""
    dice = np.random.default_rng(1)
    numbers = dice.random((samples, WIDTH), np.float32)
    labels = dice.integers(CLASSES, size=samples)
    column = pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), WIDTH)
    rows = [[str(label), *map("{:.6f}".format, row)] for label, row in zip(labels, numbers.tolist(), strict=True)]
    with (folder / "samples.csv").open("w", newline="") as output:
        csv.writer(output).writerows(rows)
    (folder / "samples.txt").write_text("".join(" ".join(row) + "\n" for row in rows))

    @provider(input_types=DENSE)
    def read_csv(settings: Any, name: str) -> Iterator[Any]:
        with open(name, newline="") as file:  # noqa: PTH123 - as users write it
            for label, *row in csv.reader(file):
                yield {"x": list(map(float, row)), "y": int(label)}

    @provider(input_types=text.slots_of(WIDTH))
    def read_text(settings: Any, name: str) -> Iterator[Any]:
        yield from text.read_lines(name, WIDTH)

    others = {"CSV": (read_csv, folder / "samples.csv"), "text (SimpleData)": (read_text, folder / "samples.txt")}
    return list_ways(pa.table({"x": column, "y": labels}), folder, DENSE, others)


def make_text_ways(folder: Path, samples: int) -> dict[str, Way]:
    """Write texts as ids and as words."""
    dice = np.random.default_rng(2)
    lengths = dice.integers(20, 60, size=samples)
    ids = np.minimum(dice.zipf(1.3, size=int(lengths.sum())), WORDS) - 1
    labels = dice.integers(CLASSES, size=samples)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    words = [f"word{number}" for number in range(WORDS)]
    known = {word: number for number, word in enumerate(words)}
    rows = [[words[one] for one in ids[first:last]] for first, last in itertools.pairwise(offsets)]
    lines = [f"{label}\t{' '.join(row)}\n" for label, row in zip(labels, rows, strict=True)]
    (folder / "samples.txt").write_text("".join(lines))
    with (folder / "samples.csv").open("w", newline="") as output:
        csv.writer(output).writerows([label, " ".join(row)] for label, row in zip(labels, rows, strict=True))

    def look_up(pairs: Iterator[Sequence[str]]) -> Iterator[Any]:
        for label, words_of_text in pairs:
            yield {"x": [known.get(word, 0) for word in words_of_text.split()], "y": int(label)}

    @provider(input_types=TEXTS)
    def read_csv(settings: Any, name: str) -> Iterator[Any]:
        with open(name, newline="") as file:  # noqa: PTH123 - as users write it
            yield from look_up(csv.reader(file))

    @provider(input_types=TEXTS)
    def read_text(settings: Any, name: str) -> Iterator[Any]:
        with open(name) as file:  # noqa: PTH123 - as users write it
            yield from look_up(line.split("\t") for line in file)

    column = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ids, pa.int32()))
    others = {"CSV": (read_csv, folder / "samples.csv"), "text": (read_text, folder / "samples.txt")}
    return list_ways(pa.table({"x": column, "y": labels}), folder, TEXTS, others)


if __name__ == "__main__":
    main()
