"""Labelled text for the quick_start example: the tutorial's preprocessed folder, or raw text with labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from prepare.dataset import Dataset
from prepare.errors import DataError
from prepare.fetch import fetch
from prepare.settings import Settings
from prepare.split import Sample, hold_out, shuffle

UNKNOWN = "<unk>"
POLARITIES = ("neg", "pos")
MADE_HERE = re.compile(r"train\..*|test\.(txt|list)|pred\.list|dict\.txt|labels\.list")


def read_quick_start(settings: Settings, scratch: Path) -> Dataset:
    """Return text as lines `label<TAB>words`, with a dictionary and lists of labels beside them.

    Raises: DataError: for a folder without text that can be recognised, and for lines without a label.
    """
    path = fetch(settings, scratch)
    folder = _folder_of(path, "train.txt")
    if folder is not None:
        return _preprocessed(folder, settings)
    return dataset_of_text(list(_raw(path, settings.data_encoding)), settings)


def dataset_of_text(samples: Sequence[Sample], settings: Settings) -> Dataset:
    """Divide labelled text into training and test, and make its dictionary of the training part."""
    if not samples:
        raise DataError("the text has no samples")
    training, test = hold_out(shuffle(samples, settings.seed), settings.test_fraction)
    return _numbered(training, test, {}, settings.min_count)


def _folder_of(path: Path, name: str) -> Path | None:
    """Return the folder, the nearest to the top, that holds a file of this name."""
    if path.is_file():
        return None
    found = [*path.rglob(name)]
    return min(found, key=lambda file: (len(file.parts), file)).parent if found else None


def read_lines(path: Path, encoding: str) -> list[str]:
    """Return the lines of a text file; `auto` is UTF-8 where the whole file is that, else Latin-1.

    Raises: DataError: if the bytes are not of the encoding.
    """
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig" if encoding in ("auto", "utf-8") else encoding)
    except UnicodeDecodeError as error:
        if encoding != "auto":
            raise DataError(f"{path.name}: not {encoding}: {error}") from error
        text = content.decode("latin-1")
    return text.replace("\r\n", "\n").split("\n")


def _preprocessed(folder: Path, settings: Settings) -> Dataset:
    """Read the tutorial's format: its split, dictionary and other files are kept, its lists are made anew."""
    samples = shuffle(list(_labelled(folder / "train.txt", settings.data_encoding)), settings.seed)
    test_file = folder / "test.txt"
    if test_file.is_file():
        test = list(_labelled(test_file, settings.data_encoding))
    else:
        samples, test = hold_out(samples, settings.test_fraction)
    common = {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if _is_common(file)}
    dictionary = folder / "dict.txt"
    if dictionary.is_file():
        common["dict.txt"] = _as_bytes(line for line in read_lines(dictionary, settings.data_encoding) if line.strip())
    return _numbered(samples, test, common, settings.min_count)


def _is_common(file: Path) -> bool:
    return file.is_file() and not file.name.startswith(".") and not MADE_HERE.fullmatch(file.name)


def _raw(path: Path, encoding: str) -> Iterator[Sample]:
    """Read `*.pos` and `*.neg` files, one text a line, or files of lines `label<TAB>text`."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    polar = [file for file in files if file.suffix[1:] in POLARITIES]
    if polar:
        for file in polar:
            texts = (" ".join(line.split()) for line in read_lines(file, encoding))
            yield from (Sample(text, file.suffix[1:]) for text in texts if text)
        return
    tabbed = [file for file in files if path.is_file() or file.suffix in (".txt", ".tsv")]
    if not tabbed:
        raise DataError(
            f"{path.name}: no text found; expected train.txt (the tutorial's format), *.pos and *.neg, "
            "or *.txt and *.tsv with lines label<TAB>words"
        )
    for file in tabbed:
        yield from _labelled(file, encoding)


def _labelled(file: Path, encoding: str) -> Iterator[Sample]:
    """Read lines `label<TAB>words`; the samples' lines are the words alone."""
    for number, line in enumerate(read_lines(file, encoding), start=1):
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        if not tab or not label.strip():
            raise DataError(f"{file.name} line {number}: not label<TAB>words: {line[:60]!r}")
        yield Sample(" ".join(text.split()), label.strip())


def _numbered(training: list[Sample], test: list[Sample], common: dict[str, bytes], min_count: int) -> Dataset:
    """Replace labels by numbers, and add the dictionary where there is none."""
    labels = sorted({sample.label for sample in (*training, *test)})
    numbers = _numbers(labels)
    if "dict.txt" not in common:
        common = {**common, "dict.txt": _as_bytes(_dictionary(training, min_count))}
    if "pred.txt" in common:
        common = {**common, "pred.list": b"data/pred.txt\n"}
    ordered = sorted(numbers, key=lambda label: (numbers[label], label))
    common = {**common, "labels.list": _as_bytes(f"{label}\t{numbers[label]}" for label in ordered)}
    facts = {"classes": len(set(numbers.values())), "words": common["dict.txt"].count(b"\n")}
    return Dataset(_lines(training, numbers), _lines(test, numbers), common=common, facts=facts)


def _numbers(labels: Sequence[str]) -> dict[str, int]:
    """Keep labels that are numbers; negative is 0 and positive 1 as in the tutorial; others count up in their order."""
    if all(label.isascii() and label.isdigit() for label in labels):
        return {label: int(label) for label in labels}
    names = POLARITIES if set(labels) <= set(POLARITIES) else labels
    return {label: number for number, label in enumerate(names)}


def _lines(samples: Iterable[Sample], numbers: dict[str, int]) -> list[Sample]:
    return [Sample(f"{numbers[sample.label]}\t{sample.line}", sample.label) for sample in samples]


def _dictionary(samples: Iterable[Sample], min_count: int) -> Iterator[str]:
    """Yield `word<TAB>count`, the most frequent first; id 0 is what the provider takes for unknown words."""
    counts = Counter(word for sample in samples for word in sample.line.split())
    rare = sum(count for count in counts.values() if count < min_count)
    yield f"{UNKNOWN}\t{rare}"
    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if count >= min_count and word != UNKNOWN:
            yield f"{word}\t{count}"


def _as_bytes(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
