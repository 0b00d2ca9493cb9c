"""Reads labelled text for the quick_start example: the tutorial's preprocessed directory, or raw text with labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from paddle_cluster.prepare.dataset import Dataset, Source
from paddle_cluster.prepare.errors import InputError
from paddle_cluster.prepare.input.fetch import fetch
from paddle_cluster.prepare.input.inputs import Input
from paddle_cluster.prepare.limits import OBJECT_BYTES, Meter
from paddle_cluster.prepare.split import LabelledLine, hold_out, shuffle
from paddle_cluster.prepare.values import Settings

DIGITS = 18  # maximum number of digits of a numeric label
UNKNOWN = "<unk>"
POLARITIES = ("neg", "pos")
MADE_HERE = re.compile(r"train\..*|test\.(txt|list)|pred\.list|dict\.txt|labels\.list")


def read_quick_start(settings: Settings, scratch: Path) -> Dataset:
    """Return text as lines `label<TAB>words`, with a dictionary and lists of labels as common files.

    Raises: InputError: if a directory has no text in a known format, or a line has no label.
    """
    with fetch(settings, scratch) as data:
        folder = data.nearest("train.txt")
        if folder is not None:
            return _preprocessed(data, folder, settings)
        return dataset_of_text(list(_raw(data, settings.data_encoding)), settings, data.memory)


def dataset_of_text(samples: Sequence[LabelledLine], settings: Settings, memory: Meter) -> Dataset:
    """Split labelled text into training and test, and create a dictionary from the training part.

    Args: memory: counts the bytes of the dictionary.
    """
    if not samples:
        raise InputError("the text has no samples")
    training, test = hold_out(shuffle(samples, settings.seed), settings.test_fraction)
    return _numbered(training, test, {}, settings.min_count, memory)


def _preprocessed(data: Input, folder: PurePosixPath, settings: Settings) -> Dataset:
    """Read the tutorial's format: keep its test set, dictionary and other files, and write new lists of files."""
    encoding = settings.data_encoding
    samples = shuffle(list(_labelled(data, str(folder / "train.txt"), encoding)), settings.seed)
    if data.has(folder / "test.txt"):
        test = list(_labelled(data, str(folder / "test.txt"), encoding))
    else:
        samples, test = hold_out(samples, settings.test_fraction)
    beside = [file for file in map(PurePosixPath, data.names) if file.parent == folder]
    common = {file.name: data.read(str(file)) for file in beside if not MADE_HERE.fullmatch(file.name)}
    dictionary = str(folder / "dict.txt")
    if dictionary in data.names:
        common["dict.txt"] = _as_bytes(_held(data, dictionary, encoding))
    return _numbered(samples, test, common, settings.min_count, data.memory)


def _held(data: Input, name: str, encoding: str) -> Iterator[str]:
    for line in data.lines(name, encoding):
        if line.strip():
            data.hold(line, name)
            yield line


def _raw(data: Input, encoding: str) -> Iterator[LabelledLine]:
    """Read `*.pos` and `*.neg` files with one text per line, or files with lines `label<TAB>text`."""
    files = [(name, PurePosixPath(name).suffix) for name in data.names]
    polar = [(name, suffix[1:]) for name, suffix in files if suffix[1:] in POLARITIES]
    for name, polarity in polar:
        for line in _held(data, name, encoding):
            yield LabelledLine(" ".join(line.split()), polarity)
    if polar:
        return
    tabbed = [name for name, suffix in files if data.is_file or suffix in (".txt", ".tsv")]
    if not tabbed:
        raise InputError(
            f"{data.path.name}: no text found; expected train.txt (the tutorial's format), *.pos and *.neg, "
            "or *.txt and *.tsv with lines label<TAB>words"
        )
    for name in tabbed:
        yield from _labelled(data, name, encoding)


def _labelled(data: Input, name: str, encoding: str) -> Iterator[LabelledLine]:
    """Read lines `label<TAB>words` into samples with the words as `line` and the label as `label`."""
    for number, line in enumerate(data.lines(name, encoding), start=1):
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        if not tab or not label.strip():
            raise InputError(f"{name} line {number}: the line is not of the form label<TAB>words: {line[:60]!r}")
        data.hold(line, name)
        yield LabelledLine(" ".join(text.split()), label.strip())


def _numbered(
    training: list[LabelledLine], test: list[LabelledLine], common: dict[str, bytes], min_count: int, memory: Meter
) -> Dataset:
    """Return the data set with labels replaced by numbers, and with a dictionary if `common` has none."""
    labels = sorted({sample.label for sample in (*training, *test)})
    numbers = _numbers(labels)
    if "dict.txt" not in common:
        common = {**common, "dict.txt": _as_bytes(_dictionary(training, min_count, memory))}
    if "pred.txt" in common:
        common = {**common, "pred.list": b"data/pred.txt\n"}
    ordered = sorted(numbers, key=lambda label: (numbers[label], label))
    common = {**common, "labels.list": _as_bytes(f"{label}\t{numbers[label]}" for label in ordered)}
    facts = {"classes": len(set(numbers.values())), "words": common["dict.txt"].count(b"\n")}
    return Dataset(_lines(training, numbers), _lines(test, numbers), common=common, facts=facts)


def _numbers(labels: Sequence[str]) -> dict[str, int]:
    """Keep numeric labels. Number other labels in alphabetical order, but `neg` is always 0, and `pos` is always 1."""
    if all(label.isascii() and label.isdigit() and len(label) <= DIGITS for label in labels):
        return {label: int(label) for label in labels}
    names = POLARITIES if set(labels) <= set(POLARITIES) else labels
    return {label: number for number, label in enumerate(names)}


def _lines(samples: Iterable[LabelledLine], numbers: dict[str, int]) -> list[LabelledLine]:
    return [LabelledLine(f"{numbers[sample.label]}\t{sample.line}", sample.label) for sample in samples]


def _dictionary(samples: Iterable[LabelledLine], min_count: int, memory: Meter) -> Iterator[str]:
    """Yield the line of `<unk>`, which gets id 0, and then lines `word<TAB>count`, the most frequent word first."""
    counts = Counter[str]()
    for sample in samples:
        before = len(counts)
        counts.update(sample.line.split())
        if len(counts) > before:
            memory.take((len(counts) - before) * OBJECT_BYTES, "dict.txt, the different words of the text")
    rare = sum(count for count in counts.values() if count < min_count)
    yield f"{UNKNOWN}\t{rare}"
    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if count >= min_count and word != UNKNOWN:
            yield f"{word}\t{count}"


def _as_bytes(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


QUICK_START = Source("quick_start", read_quick_start, "input", example="quick_start")
