"""Reads labelled text for the quick_start example: the tutorial's preprocessed directory, or raw text with labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from paddle_base.runtime.errors import DataError
from paddle_cluster.prepare.dataset import Dataset, Source
from paddle_cluster.prepare.input.fetch import fetch
from paddle_cluster.prepare.input.inputs import Input
from paddle_cluster.prepare.limits import OBJECT_BYTES, Meter
from paddle_cluster.prepare.log import say
from paddle_cluster.prepare.sources.classes import warn_of_classes
from paddle_cluster.prepare.sources.columnar import ColumnarTable, find_columnar
from paddle_cluster.prepare.sources.table import DelimitedTable, Table
from paddle_cluster.prepare.split import LabelledLine, hold_out, is_test_file, shuffle
from paddle_cluster.prepare.values import Settings

DIGITS = 18  # maximum number of digits of a numeric label
MOST_LABEL = 9999  # greatest numeric label that stays as it is; a network has a class for each number up to it
UNKNOWN = "<unk>"
POLARITIES = ("neg", "pos")
MADE_HERE = re.compile(r"train\..*|test\.(txt|list)|pred\.list|dict\.txt|labels\.list")


def read_quick_start(settings: Settings, scratch: Path) -> Dataset:
    """Return text as lines `label<TAB>words`, with a dictionary and lists of labels as common files.

    Raises: DataError: if a directory has no text in a known format, or a line has no label.
    """
    with fetch(settings, scratch) as data:
        folder = data.nearest("train.txt")
        if folder is not None:
            return _preprocessed(data, folder, settings)
        found = list(_raw(data, settings))
        held_out = [sample for name, sample in found if is_test_file(name)]
        if data.is_file or len(held_out) == len(found):
            return dataset_of_text([sample for _, sample in found], settings, data.memory)
        samples = [sample for name, sample in found if not is_test_file(name)]
        if not held_out:
            return dataset_of_text(samples, settings, data.memory)
        return _numbered(shuffle(samples, settings.seed), held_out, {}, settings, data.memory)


def dataset_of_text(samples: Sequence[LabelledLine], settings: Settings, memory: Meter) -> Dataset:
    """Split labelled text into training and test, and create a dictionary from the training part.

    Args: memory: counts the bytes of the dictionary.
    """
    if not samples:
        raise DataError("the text has no samples")
    training, test = hold_out(shuffle(samples, settings.seed), settings.test_fraction)
    return _numbered(training, test, {}, settings, memory)


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
    return _numbered(samples, test, common, settings, data.memory)


def _held(data: Input, name: str, encoding: str) -> Iterator[str]:
    for line in data.lines(name, encoding):
        if line.strip():
            data.hold(line, name)
            yield line


def _raw(data: Input, settings: Settings) -> Iterator[tuple[str, LabelledLine]]:
    """Read tables, or `*.pos` and `*.neg` files with one text per line, or files with lines `label<TAB>text`.

    Yields: (name of the file, sample).
    """
    encoding = settings.data_encoding
    files = [(name, PurePosixPath(name).suffix) for name in data.names]
    polar = [(name, suffix[1:]) for name, suffix in files if suffix[1:] in POLARITIES]
    for name, polarity in polar:
        for line in _held(data, name, encoding):
            yield name, LabelledLine(" ".join(line.split()), polarity)
    if polar:
        return
    tables = [name for name, suffix in files if data.is_file or suffix in (".csv", ".tsv")]
    columnar = find_columnar(data, [] if data.is_file else tables)
    if columnar and not settings.csv_label:
        raise DataError(
            f"{columnar[0]} is a table; set CSV_LABEL to the column of labels, and CSV_TEXT to that of the texts"
        )
    if columnar:
        only = ("CSV_LABEL", "CSV_TEXT") if settings.csv_text else None
        yield from _rows(data, ColumnarTable(data, columnar, settings, only), settings)
        return
    if settings.csv_label and tables:
        yield from _rows(data, DelimitedTable(data, tables, settings), settings)
        return
    tabbed = [name for name, suffix in files if data.is_file or suffix in (".txt", ".tsv")]
    if not tabbed:
        raise DataError(
            f"{data.path.name}: no text found; expected train.txt (the tutorial's format), *.pos and *.neg, "
            "*.csv with CSV_LABEL, *.parquet with CSV_LABEL, or *.txt and *.tsv with lines label<TAB>words"
        )
    for name in tabbed:
        yield from ((name, sample) for sample in _labelled(data, name, encoding))


def _rows(data: Input, table: Table, settings: Settings) -> Iterator[tuple[str, LabelledLine]]:
    """Read the rows of tables: the column CSV_LABEL has the label, and CSV_TEXT the text.

    Without CSV_TEXT the text is in all other columns but those of CSV_SKIP.
    """
    place = table.place_of("CSV_LABEL", settings.csv_label)
    left_out = {place, *(table.place_of("CSV_SKIP", name) for name in settings.csv_skip)}
    of_text = [table.place_of("CSV_TEXT", name) for name in settings.csv_text]
    if place in of_text:
        raise DataError(f"CSV_TEXT has {settings.csv_label}, the column of CSV_LABEL; remove it from CSV_TEXT")
    of_text = of_text or [number for number in range(len(table.columns)) if number not in left_out]
    unlabelled, first = 0, ""
    for row in table.rows():
        label = row.fields[place].strip()
        if not label or label in settings.csv_missing:
            unlabelled, first = unlabelled + 1, first or row.place
            continue
        text = " ".join(row.fields[number] for number in of_text)
        data.hold(text, row.name)
        yield row.name, LabelledLine(" ".join(text.split()), " ".join(label.split()))
    if unlabelled:
        say(
            f"WARNING: {unlabelled} rows without a label in {table.columns[place].name!r} are left out, the first is "
            f"{first}"
        )


def _labelled(data: Input, name: str, encoding: str) -> Iterator[LabelledLine]:
    """Read lines `label<TAB>words` into samples with the words as `line` and the label as `label`."""
    for number, line in enumerate(data.lines(name, encoding), start=1):
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        if not tab or not label.strip():
            is_table = PurePosixPath(name).suffix == ".csv"
            hint = "; if it is a row of a table, set CSV_LABEL to the column of the labels" if is_table else ""
            raise DataError(f"{name} line {number}: the line is not of the form label<TAB>words: {line[:60]!r}{hint}")
        data.hold(line, name)
        yield LabelledLine(" ".join(text.split()), label.strip())


def _numbered(
    training: list[LabelledLine], test: list[LabelledLine], common: dict[str, bytes], settings: Settings, memory: Meter
) -> Dataset:
    """Return the data set with labels replaced by numbers, and with a dictionary if `common` has none."""
    empty = sum(not sample.line for sample in (*training, *test))
    if empty:
        say(f"WARNING: {empty} of {len(training) + len(test)} texts have no words; remove them if they are mistakes")
    warn_of_classes(Counter(sample.label for sample in training), Counter(sample.label for sample in test))
    labels = sorted({sample.label for sample in (*training, *test)})
    numbers = _numbers(labels)
    if "dict.txt" not in common:
        common = {**common, "dict.txt": _as_bytes(_dictionary(training, settings, memory))}
    if "pred.txt" in common:
        common = {**common, "pred.list": b"data/pred.txt\n"}
    ordered = sorted(numbers, key=lambda label: (numbers[label], label))
    common = {**common, "labels.list": _as_bytes(f"{label}\t{numbers[label]}" for label in ordered)}
    facts = {"classes": len(set(numbers.values())), "words": common["dict.txt"].count(b"\n")}
    return Dataset(_lines(training, numbers), _lines(test, numbers), common=common, facts=facts)


def _numbers(labels: Sequence[str]) -> dict[str, int]:
    """Keep small numbers. Number other labels in their order, but `neg` is always 0, and `pos` is always 1."""
    if all(label.isascii() and label.isdigit() and len(label) <= DIGITS for label in labels):
        if max(map(int, labels)) <= MOST_LABEL:
            return {label: int(label) for label in labels}
        different = sorted({int(label) for label in labels})
        return {label: different.index(int(label)) for label in labels}
    names = POLARITIES if set(labels) <= set(POLARITIES) else labels
    return {label: number for number, label in enumerate(names)}


def _lines(samples: Iterable[LabelledLine], numbers: dict[str, int]) -> list[LabelledLine]:
    return [LabelledLine(f"{numbers[sample.label]}\t{sample.line}", sample.label) for sample in samples]


def _dictionary(samples: Iterable[LabelledLine], settings: Settings, memory: Meter) -> Iterator[str]:
    """Yield the line of `<unk>`, which gets id 0, and then lines `word<TAB>count`, the most frequent word first.

    At most MAX_WORDS words that occur MIN_COUNT times follow; the count of `<unk>` is that of all other words.
    """
    counts = Counter[str]()
    for sample in samples:
        before = len(counts)
        counts.update(sample.line.split())
        if len(counts) > before:
            memory.take((len(counts) - before) * OBJECT_BYTES, "dict.txt, the different words of the text")
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    known = [item for item in ordered if item[1] >= settings.min_count and item[0] != UNKNOWN][: settings.max_words]
    yield f"{UNKNOWN}\t{counts.total() - sum(count for _, count in known)}"
    yield from (f"{word}\t{count}" for word, count in known)


def _as_bytes(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


QUICK_START = Source("quick_start", read_quick_start, "input", example="quick_start")
