"""All settings of the data job. The job reads and checks the flags and the environment once, at its start."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar
from urllib.parse import unquote, urlsplit

from paddle_base.runtime.errors import ConfigError, UsageError
from paddle_base.runtime.gflags import suggest_flag
from paddle_cluster.prepare.dataset import Source
from paddle_cluster.prepare.sources import SOURCES
from paddle_cluster.prepare.values import MARKER, Settings

IMAGE_EXAMPLES = Path("/opt/paddle/examples")
MISSING = "NA,N/A,n/a,#N/A,<NA>,NaN,nan,NULL,null"  # what spreadsheets, databases, R and pandas write
MOST_WORDS = 10**9
MAX_SHARDS = 100_000  # the file names of v0.10 have numbers of five digits
MAX_FILES = 100_000  # maximum number of files of a shard; the file names have numbers of five digits


N = TypeVar("N", int, float, Fraction)


class Option(NamedTuple):
    """One setting. The flag is `--name`, and the variable is the name in capitals. The flag overrides the variable."""

    name: str
    default: str
    help: str


# the sources whose TEST_FRACTION has another default than most
FRACTIONS = [f"{one.name} {one.test_fraction}" for one in SOURCES.values() if one.test_fraction != Source.test_fraction]
SHAPES = {shape: example for one in SOURCES.values() for shape, example in one.shapes.items()}

OPTIONS = (
    Option("out_dir", "", "the job's directory on the volume, <mount>/<JOB_NAME>; required"),
    Option("require_volume", "0 (image: 1)", "1: fail with status 78 if out_dir is not on a volume of the container"),
    Option(
        "split_count",
        "CONF_PADDLE_GRADIENT_NUM",
        "number of shards; must equal CONF_PADDLE_GRADIENT_NUM, the number of trainers",
    ),
    Option("shard_files", "1", "number of files of a shard's training samples; a master assigns each file as one task"),
    Option("data_source", "by TRAIN_CONFIG_DIR", f"data set: {', '.join(SOURCES)}; digits if nothing is set"),
    Option("data_url", "", "https:// address of an archive or file (needs data_sha256), or file://"),
    Option("data_sha256", "", "SHA-256 of the input file, 64 hexadecimal digits; optional for file:// and data_path"),
    Option("data_path", "", "a mounted archive, file or folder with the data set, instead of data_url"),
    Option("data_timeout", "600", "seconds after which a download gives up"),
    Option("data_encoding", "auto", "for text: utf-8, latin-1, or auto (a file that is not UTF-8 is Latin-1)"),
    Option("data_max_bytes", "100Gi", "maximum bytes of input, downloaded and unpacked; Ki, Mi, Gi or Ti may follow"),
    Option("data_max_memory", "512Mi", "maximum bytes of input in memory; the source csv keeps no input in memory"),
    Option("csv_delimiter", "found", "for csv: the character between columns, or the word tab"),
    Option(
        "csv_header",
        "auto",
        "for csv: keep or drop the header line; none: there is no header; auto: drop a line that looks like a header",
    ),
    Option("csv_label", "", "for csv: the column to predict, by name or number; its classes are spread evenly"),
    Option("csv_task", "auto", "for csv: classes or number: what the column csv_label has; auto: by its values"),
    Option("csv_skip", "", "for csv: columns that the network does not get, such as ids, by name or number: id,2"),
    Option("csv_missing", MISSING, "for csv: the words, separated by commas, that stand for a missing value"),
    Option("min_count", "2", "minimum number of times that a word of dict.txt occurs in the training text"),
    Option("max_words", "all", "maximum number of words of dict.txt, beside <unk>; the most frequent words are kept"),
    Option(
        "test_fraction",
        f"{Source.test_fraction} ({', '.join(FRACTIONS)})",
        "fraction of samples to test with, if the source has no test set",
    ),
    Option("test_data", "whole", "whole: each trainer tests the whole test set; split: each trainer tests one part"),
    Option("seed", "1", "seed of the shuffle and of synthetic data"),
    Option("synthetic_shape", "by TRAIN_CONFIG_DIR", "text (for quick_start; default) or ratings (for recommendation)"),
    Option("synthetic_rows", "3000", "number of samples of synthetic data"),
    Option("train_config_dir", "by the source", "name of the example whose config is copied to out_dir"),
    Option("examples_dir", f"{IMAGE_EXAMPLES}", "directory of the examples; if absent, the examples of the checkout"),
    Option("replace_config", "0", "1: replace a config directory on the volume that differs from the example"),
    Option("data_owner", "that of the volume", "if prepare runs as root: uid:gid of the owner of the created files"),
)

DEFAULTS = {one.name: one.default for one in OPTIONS}


class _SettingsParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}{suggest_flag(message, help_table())}; see paddle prepare --help")


def help_table() -> str:
    """Return the table of flags, variables and defaults for the help."""
    rows = [("flag", "variable", "default", "meaning")]
    rows += [(f"--{o.name}=", o.name.upper(), o.default or "-", o.help) for o in OPTIONS]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join("  ".join([*(row[i].ljust(widths[i]) for i in range(3)), row[3]]) for row in rows)


def name_flags(message: str) -> str:
    """Return a text with the flag of each variable that an error message names, or "" if it names no variable."""
    names = [one.name for one in OPTIONS if re.search(rf"\b{one.name.upper()}\b", message)]
    return f" ({', '.join(f'{name.upper()} is --{name}' for name in names)})" if names else ""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _SettingsParser(
        prog="paddle prepare",
        usage="paddle prepare [--flag=value ...]",
        description="Write SPLIT_COUNT shards of a data set (<id>/data) and the config of its example into OUT_DIR.",
        epilog=help_table() + "\n\nA flag overrides its variable. An empty variable counts as unset. See docs/data.md.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for option in OPTIONS:
        parser.add_argument(f"--{option.name}", help=argparse.SUPPRESS)
    return parser


def read_settings(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Return the settings of this run.

    Raises: UsageError: if the command line is invalid.  ConfigError: if settings are wrong; the message names all
    wrong settings.
    """
    flags = vars(make_parser().parse_args(argv))
    given = {o.name: flags[o.name] if flags[o.name] is not None else environ.get(o.name.upper(), "") for o in OPTIONS}
    return _Reading(given, environ).settings()


class _Reading:
    """Reads the values one by one, and collects the errors."""

    def __init__(self, given: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self.given = given
        self.environ = environ
        self.problems: list[str] = []

    def settings(self) -> Settings:
        source = self._source()
        shapes = {example: shape for shape, example in SHAPES.items()}
        shape = self._choice("synthetic_shape", tuple(SHAPES), shapes.get(self.given["train_config_dir"], "text"))
        settings = Settings(
            out_dir=self._out_dir(),
            require_volume=self._choice("require_volume", ("0", "1"), "0") == "1",
            split_count=self._split_count(),
            shard_files=self._number("shard_files", int, 1, MAX_FILES),
            data_source=source.name,
            data_url=self.given["data_url"],
            data_sha256=self.given["data_sha256"].lower(),
            data_path=Path(self.given["data_path"]) if self.given["data_path"] else None,
            data_timeout=self._number("data_timeout", float, 1.0, 86_400.0),
            data_encoding=self._choice("data_encoding", ("auto", "utf-8", "latin-1")),
            data_max_bytes=self._size("data_max_bytes"),
            data_max_memory=self._size("data_max_memory"),
            csv_delimiter=self._delimiter(),
            csv_header=self._choice("csv_header", ("auto", "keep", "drop", "none")),
            csv_label=self.given["csv_label"],
            csv_task=self._choice("csv_task", ("auto", "classes", "number")),
            csv_skip=self._words("csv_skip"),
            csv_missing=self._words("csv_missing"),
            min_count=self._number("min_count", int, 1, 10**9),
            max_words=self._number("max_words", int, 1, MOST_WORDS, str(MOST_WORDS)),
            test_fraction=self._number("test_fraction", Fraction, Fraction(0), Fraction(9, 10), source.test_fraction),
            test_data=self._choice("test_data", ("whole", "split")),
            seed=self._number("seed", int, 0, 2**63),
            synthetic_shape=shape,
            synthetic_rows=self._number("synthetic_rows", int, 1, 10**9),
            train_config_dir=self._config_name() or source.example_for(shape),
            examples_dir=self._examples_dir(),
            replace_config=self._choice("replace_config", ("0", "1")) == "1",
            data_owner=self._owner(),
        )
        self._check_input(settings)
        if self.problems:
            raise ConfigError("; ".join(self.problems))
        return settings

    def _choice(self, name: str, allowed: Sequence[str], default: str = "") -> str:
        default = default or DEFAULTS[name]
        value = self.given[name] or default
        if value not in allowed:
            self.problems.append(f"{name.upper()} is {value!r}; it must be one of {', '.join(allowed)}")
            return default
        return value

    def _number(self, name: str, read: Callable[[str], N], low: N, high: N, default: str = "") -> N:
        default = default or DEFAULTS[name]
        value = self.given[name] or default
        try:
            number = read(value)
            # `read` also accepts 1_0 and digits of other scripts
            if low <= number <= high and value.isascii() and "_" not in value:
                return number
        except (ValueError, ZeroDivisionError):
            pass
        self.problems.append(f"{name.upper()} is {value!r}; it must be a number from {low} to {high}")
        return read(default)

    def _size(self, name: str) -> int:
        default = DEFAULTS[name]
        value = self.given[name] or default
        match = re.fullmatch(r"([0-9]{1,18})(Ki|Mi|Gi|Ti|)", value)
        if match and int(match[1]):
            return int(match[1]) << 10 * ("", "Ki", "Mi", "Gi", "Ti").index(match[2])
        self.problems.append(f"{name.upper()} is {value!r}; it must be a number of bytes, e.g. {default}")
        return 1

    def _delimiter(self) -> str:
        value = {"tab": "\t", "\\t": "\t"}.get(self.given["csv_delimiter"], self.given["csv_delimiter"])
        if len(value) > 1 or value in ('"', "\n", "\r", "\0"):
            self.problems.append(f"CSV_DELIMITER is {value!r}; it must be one character, or the word tab")
            return ""
        return value

    def _words(self, name: str) -> tuple[str, ...]:
        """Read a list that commas separate; blanks around an entry do not count."""
        return tuple(word.strip() for word in (self.given[name] or DEFAULTS[name]).split(",") if word.strip())

    def _out_dir(self) -> Path:
        if not self.given["out_dir"]:
            self.problems.append("OUT_DIR is not set; set it to the job's directory on the volume, <mount>/<JOB_NAME>")
        return Path(self.given["out_dir"]).absolute()

    def _split_count(self) -> int:
        """Read SPLIT_COUNT and compare it with CONF_PADDLE_GRADIENT_NUM, the number of trainers."""
        trainers = self.environ.get("CONF_PADDLE_GRADIENT_NUM", "")
        is_number = re.fullmatch("[0-9]{1,18}", trainers) is not None and int(trainers) > 0
        given = self.given["split_count"] or trainers
        if not given:
            self.problems.append("SPLIT_COUNT is not set; set it to the number of trainers, e.g. 3")
            return 1
        count = (
            self._number("split_count", int, 1, MAX_SHARDS, trainers if is_number else "1")
            if self.given["split_count"]
            else 0
        )
        if trainers and not is_number:
            self.problems.append(f"CONF_PADDLE_GRADIENT_NUM is {trainers!r}; it must be the number of trainers, e.g. 3")
            return count or 1
        if trainers and count and count != int(trainers):
            self.problems.append(
                f"SPLIT_COUNT is {count} but CONF_PADDLE_GRADIENT_NUM is {trainers}; each trainer needs one shard"
            )
        return count or int(trainers)

    def _source(self) -> Source:
        """Read DATA_SOURCE; if it is not set, return the source of the example that TRAIN_CONFIG_DIR names."""
        if self.given["data_source"]:
            return SOURCES[self._choice("data_source", tuple(SOURCES), "digits")]
        config = self.given["train_config_dir"] or "digits"
        for source in SOURCES.values():
            if config in (source.name, source.example or source.named_example):
                return source
        self.problems.append(
            f"DATA_SOURCE is not set and TRAIN_CONFIG_DIR is {config!r}, which is not an example of this project; "
            f"set DATA_SOURCE to one of {', '.join(SOURCES)}"
        )
        return SOURCES["digits"]

    def _config_name(self) -> str:
        name = self.given["train_config_dir"]
        if name and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            self.problems.append(f"TRAIN_CONFIG_DIR is {name!r}; it must be one directory name, e.g. quick_start")
        if name.isdigit() or name in ("output", MARKER):
            self.problems.append(f"TRAIN_CONFIG_DIR is {name!r}, which is reserved for a shard, output or {MARKER}")
        return name

    def _examples_dir(self) -> Path:
        if self.given["examples_dir"]:
            return Path(self.given["examples_dir"]).absolute()
        return IMAGE_EXAMPLES if IMAGE_EXAMPLES.is_dir() else Path(__file__).absolute().parents[2] / "examples"

    def _owner(self) -> tuple[int, int] | None:
        value = self.given["data_owner"]
        match = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", value)
        if value and not match:
            self.problems.append(f"DATA_OWNER is {value!r}; it must be uid:gid in numbers, e.g. 1000:1000")
        return (int(match[1]), int(match[2])) if match else None

    def _check_input(self, settings: Settings) -> None:
        """Check that only one input is given, and that a download has a SHA-256."""
        if settings.data_sha256 and not re.fullmatch(r"[0-9a-f]{64}", settings.data_sha256):
            self.problems.append(f"DATA_SHA256 is {settings.data_sha256!r}; it must be 64 hexadecimal digits")
        if settings.data_url and settings.data_path:
            self.problems.append("DATA_URL and DATA_PATH are both set; set only one of them")
        source = SOURCES[settings.data_source]
        if source.reads == "nothing":
            *names, last = (one.name for one in SOURCES.values() if one.reads != "nothing")
            self.problems += [
                f"{name} is set, but DATA_SOURCE={source.name} reads no input; "
                f"set DATA_SOURCE to {', '.join(names)} or {last}"
                for name in ("DATA_URL", "DATA_PATH")
                if self.given[name.lower()]
            ]
        if source.reads == "input" and not settings.data_url and not settings.data_path:
            self.problems.append(f"DATA_SOURCE={source.name} needs DATA_PATH or DATA_URL; set one of them")
        if settings.csv_task != "auto" and not settings.csv_label:
            self.problems.append(
                f"CSV_TASK is {settings.csv_task}, but CSV_LABEL is not set; set it to the label's column"
            )
        url = urlsplit(settings.data_url)
        if settings.data_path:
            self._check_place("DATA_PATH", settings.data_path, settings.out_dir)
        elif url.scheme == "file":
            self._check_place("DATA_URL", Path(unquote(url.path)), settings.out_dir)
        if not settings.data_url:
            return
        scheme = url.scheme
        if scheme not in ("https", "file"):
            self.problems.append(f"DATA_URL is {settings.data_url!r}; only https:// and file:// are read")
        elif scheme == "https" and not settings.data_sha256:
            self.problems.append("DATA_URL is downloaded, so DATA_SHA256 must name the expected digest")

    def _check_place(self, name: str, path: Path, out_dir: Path) -> None:
        """Reject input that lies inside OUT_DIR after links are resolved, because prepare would read its own output."""
        place = Path(os.path.realpath(path))
        if self.given["out_dir"] and place.is_relative_to(os.path.realpath(out_dir)):
            self.problems.append(
                f"{name} {path} lies in OUT_DIR {out_dir}, so prepare would read its own output; "
                "name another OUT_DIR, or move the data out of OUT_DIR"
            )
