"""The settings of the data job: their names, defaults, meanings, parsers and values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from paddle_base.remote.addresses import Address
from paddle_base.runtime.errors import DataError

MARKER = "prepared.json"  # the file in OUT_DIR that shows that the data set is complete
MISSING = "NA,N/A,n/a,#N/A,<NA>,NaN,nan,NULL,null"  # what spreadsheets, databases, R and pandas write
MOST_WORDS = 10**9
MAX_FILES = 100_000  # maximum number of files of a shard; the file names have numbers of five digits

Parse = Callable[[str], Any]  # returns the value of a text; raises ValueError with what the text must be


class Option(NamedTuple):
    """One setting. The flag is `--name`, and the variable is the name in capitals. The flag overrides the variable.

    Attributes: default: as the help shows it. absent: the text that an empty text stands for; `parse` accepts it.
    short: another name of the flag, or "".
    """

    name: str
    default: str
    help: str
    parse: Parse
    absent: str
    short: str


def option(default: str, help: str, parse: Parse = str, absent: str | None = None, short: str = "") -> Any:
    """Return a field of Settings. Args: see Option; `absent` is by default the same as `default`."""
    return dataclasses.field(metadata={"option": (default, help, parse, default if absent is None else absent, short)})


def options_of(settings: type[Any]) -> Iterator[Option]:
    """Yield the option of each field of a dataclass."""
    return (Option(one.name, *one.metadata["option"]) for one in dataclasses.fields(settings))


def choice(*allowed: str) -> Parse:
    """Return a parser of these words."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return text

    return parse


def switch(text: str) -> bool:
    """Parse 0 or 1."""
    return bool(choice("0", "1")(text) == "1")


def number(read: Callable[[str], Any], low: Any, high: Any) -> Parse:
    """Return a parser of numbers in [low, high]. Args: read: int, float or Fraction."""

    def parse(text: str) -> Any:
        try:
            value = read(text)
            # `read` also accepts 1_0 and digits of other scripts
            if low <= value <= high and text.isascii() and "_" not in text:
                return value
        except (ValueError, ZeroDivisionError):
            pass
        raise ValueError(f"a number from {low} to {high}")

    return parse


def size(example: str) -> Parse:
    """Return a parser of numbers of bytes, such as 512Mi. Args: example: for the error."""

    def parse(text: str) -> int:
        match = re.fullmatch(r"([0-9]{1,18})(Ki|Mi|Gi|Ti|)", text)
        if not match or not int(match[1]):
            raise ValueError(f"a number of bytes, e.g. {example}")
        return int(match[1]) << 10 * ("", "Ki", "Mi", "Gi", "Ti").index(match[2])

    return parse


def delimiter(text: str) -> str:
    """Parse one character, or the word tab."""
    value = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(value) > 1 or value in ('"', "\n", "\r", "\0"):
        raise ValueError("one character, or the word tab")
    return value


def words(text: str) -> tuple[str, ...]:
    """Parse a list that commas separate; blanks around an entry do not count."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def owner(text: str) -> tuple[int, int] | None:
    """Parse uid:gid; None if the text is empty."""
    match = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", text)
    if text and not match:
        raise ValueError("uid:gid in numbers, e.g. 1000:1000")
    return (int(match[1]), int(match[2])) if match else None


@dataclasses.dataclass(frozen=True)
class Settings:
    """The checked settings. To add a setting, add a field: its name is the flag, and in capitals the variable.

    `settings.py` fills in the texts that `{sources}` and so on stand for, and reads the settings that depend on others.
    """

    out_dir: Path = option("", "the job's directory on the volume, <mount>/<JOB_NAME>; required; or the argument OUT")  # noqa: RUF009
    require_volume: bool = option(
        "0 (image: 1)", "1: fail with status 78 if out_dir is not on a volume of the container", switch, "0"
    )
    split_count: int = option(
        "CONF_PADDLE_GRADIENT_NUM",
        "number of shards; must equal CONF_PADDLE_GRADIENT_NUM, the number of trainers",
        number(int, 1, 100_000),  # the file names of v0.10 have numbers of five digits
        "1",
        "shards",
    )
    shard_files: int = option(
        "1",
        "number of files of a shard's training samples; a master assigns each file as one task",
        number(int, 1, MAX_FILES),
    )
    data_source: str = option(
        "by TRAIN_CONFIG_DIR",
        "data set: {sources}; if nothing is set, quick_start with csv_text, csv with csv_label, or else digits",
    )
    data_url: Address | None = option(  # noqa: RUF009
        "", "https:// address of an archive or file (needs data_sha256), file://, or an address as in data_path"
    )
    data_sha256: str = option(
        "", "SHA-256 of the input file, 64 hexadecimal digits; optional for file:// and data_path", str.lower
    )
    data_path: Path | Address | None = option(  # noqa: RUF009
        "",
        "a mounted archive, file or folder with the data set, instead of data_url; or an address in a bucket, as "
        "s3://BUCKET/KEY, gs:// or az://: an object, a prefix, or a pattern with * and **",
        lambda text: Path(text) if text else None,
        short="input",
    )
    data_timeout: float = option("600", "seconds after which a download gives up", number(float, 1.0, 86_400.0))
    data_encoding: str = option(
        "auto",
        "for text: utf-8, latin-1, or auto (a file that is not UTF-8 is Latin-1)",
        choice("auto", "utf-8", "latin-1"),
    )
    data_max_bytes: int = option(
        "100Gi", "maximum bytes of input, downloaded and unpacked; Ki, Mi, Gi or Ti may follow", size("100Gi")
    )
    data_max_memory: int = option(
        "512Mi", "maximum bytes of input in memory; the source csv keeps no input in memory", size("512Mi")
    )
    csv_delimiter: str = option("found", "for csv: the character between columns, or the word tab", delimiter, "")
    csv_header: str = option(
        "auto",
        "for csv: keep or drop the header line; none: there is no header; auto: drop a line that looks like a header",
        choice("auto", "keep", "drop", "none"),
    )
    csv_label: str = option(
        "", "for tables: the column to predict, by name or number; its classes are spread evenly", short="label"
    )
    csv_text: tuple[str, ...] = option(
        "all others", "for quick_start: the columns that have the text, by name or number", words, "", "text"
    )
    csv_task: str = option(
        "auto",
        "for csv: classes or number: what the column csv_label has; auto: by its values",
        choice("auto", "classes", "number"),
    )
    csv_skip: tuple[str, ...] = option(
        "", "for tables: columns that the network does not get, such as ids, by name or number: id,2", words
    )
    csv_missing: tuple[str, ...] = option(
        MISSING, "for tables: the words, separated by commas, that stand for a missing value", words
    )
    min_count: int = option(
        "2", "minimum number of times that a word of dict.txt occurs in the training text", number(int, 1, 10**9)
    )
    max_words: int = option(
        "all",
        "maximum number of words of dict.txt, beside <unk>; the most frequent words are kept",
        number(int, 1, MOST_WORDS),
        str(MOST_WORDS),
    )
    test_fraction: Fraction = option(  # noqa: RUF009
        "{fractions}",
        "fraction of samples to test with, if the source has no test set",
        number(Fraction, Fraction(0), Fraction(9, 10)),
    )
    test_data: str = option(
        "whole",
        "whole: each trainer tests the whole test set; split: each trainer tests one part",
        choice("whole", "split"),
    )
    seed: int = option("1", "seed of the shuffle and of synthetic data", number(int, 0, 2**63))
    synthetic_shape: str = option(
        "by TRAIN_CONFIG_DIR", "text (for quick_start; default) or ratings (for recommendation)"
    )
    synthetic_rows: int = option("3000", "number of samples of synthetic data", number(int, 1, 10**9))
    train_config_dir: str = option("by the source", "name of the example whose config is copied to out_dir")
    examples_dir: Path = option("{examples}", "directory of the examples; if absent, the examples of the checkout")  # noqa: RUF009
    replace_config: bool = option(
        "0", "1: replace a config directory on the volume that differs from the example", switch
    )
    data_owner: tuple[int, int] | None = option(
        "that of the volume", "if prepare runs as root: uid:gid of the owner of the created files", owner, ""
    )

    def check_counts(self, training: int, test: int) -> None:
        """Check that the samples suffice for all shards; a trainer without training or test samples would fail.

        Raises: DataError: if there are too few samples; the message names the numbers of samples and of shards.
        """
        count = self.split_count
        if training < count:
            raise DataError(f"{training} training samples cannot be split into {count} shards; lower SPLIT_COUNT")
        if training < count * self.shard_files:
            parts = f"{count} x {self.shard_files} files"
            raise DataError(f"{training} training samples cannot be split into {parts}; lower SHARD_FILES")
        if self.test_data == "split" and 0 < test < count:
            raise DataError(f"{test} test samples cannot be split into {count} shards; set TEST_DATA=whole")
