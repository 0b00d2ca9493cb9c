"""All settings of the data job. The job reads and checks the flags and the environment once, at its start."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from paddle_base.remote.addresses import HTTPS, Address, is_address, parse_address
from paddle_base.runtime.errors import ConfigError, UsageError
from paddle_base.runtime.gflags import suggest_flag
from paddle_cluster.prepare.dataset import Source
from paddle_cluster.prepare.sources import SOURCES
from paddle_cluster.prepare.values import MARKER, Parse, Settings, choice, options_of

LISTED = 400  # maximum number of characters of names in a message
IMAGE_EXAMPLES = Path("/opt/paddle/examples")

# the sources whose TEST_FRACTION has another default than most
FRACTIONS = [f"{one.name} {one.test_fraction}" for one in SOURCES.values() if one.test_fraction != Source.test_fraction]
SHAPES = {shape: example for one in SOURCES.values() for shape, example in one.shapes.items()}

_TEXTS = {
    "sources": ", ".join(SOURCES),
    "fractions": f"{Source.test_fraction} ({', '.join(FRACTIONS)})",
    "examples": str(IMAGE_EXAMPLES),
}
OPTIONS = tuple(
    one._replace(default=one.default.format_map(_TEXTS), help=one.help.format_map(_TEXTS))
    for one in options_of(Settings)
)
_BY_NAME = {one.name: one for one in OPTIONS}


class _SettingsParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}{suggest_flag(message, help_table())}; see paddle prepare --help")


def help_table() -> str:
    """Return the table of flags, variables and defaults for the help."""
    rows = [("flag", "variable", "default", "meaning")]
    rows += [
        (f"--{o.name}=" + f", --{o.short}=" * bool(o.short), o.name.upper(), o.default or "-", o.help) for o in OPTIONS
    ]
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
        usage="paddle prepare [--flag=value ...] [OUT]",
        description="Write SPLIT_COUNT shards of a data set (<id>/data) and the config of its example into OUT_DIR.",
        epilog=help_table() + "\n\nA flag overrides its variable. An empty variable counts as unset. See docs/data.md.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for option in OPTIONS:
        parser.add_argument(f"--{option.name}", *([f"--{option.short}"] * bool(option.short)), help=argparse.SUPPRESS)
    parser.add_argument("out", nargs="*", help=argparse.SUPPRESS)
    return parser


def read_settings(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Return the settings of this run.

    Raises: UsageError: if the command line is invalid.  ConfigError: if settings are wrong; the message names all
    wrong settings.
    """
    flags = vars(make_parser().parse_intermixed_args(argv))
    outs = flags["out"] + [flags["out_dir"]] * (flags["out_dir"] is not None)
    if len(outs) > 1:
        raise UsageError(
            f"there are several output directories: {', '.join(outs)[:LISTED]}; give one, and quote a pattern of "
            "--input, so that the shell does not make several names of it"
        )
    flags["out_dir"] = outs[0] if outs else None
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
        default = shapes.get(self.given["train_config_dir"], "text")
        shape = self._value("synthetic_shape", default, choice(*SHAPES))
        special: Mapping[str, Callable[[], Any]] = {
            "out_dir": self._out_dir,
            "split_count": self._split_count,
            "data_source": lambda: source.name,
            "test_fraction": lambda: self._value("test_fraction", source.test_fraction),
            "synthetic_shape": lambda: shape,
            "train_config_dir": lambda: self._config_name() or source.example_for(shape),
            "examples_dir": self._examples_dir,
            "data_url": lambda: self._address("data_url"),
            "data_path": lambda: self._address("data_path") or self._value("data_path"),
        }
        settings = Settings(**{one.name: special.get(one.name, partial(self._value, one.name))() for one in OPTIONS})
        self._check_input(settings)
        if self.problems:
            raise ConfigError("; ".join(self.problems))
        return settings

    def _value(self, name: str, absent: str = "", parse: Parse | None = None) -> Any:
        """Return the value of a setting; after an error, that of `absent`. Args: absent, parse: if not the option's."""
        option = _BY_NAME[name]
        absent, parse = absent or option.absent, parse or option.parse
        text = self.given[name] or absent
        try:
            return parse(text)
        except ValueError as expected:
            self.problems.append(f"{name.upper()} is {text!r}; it must be {expected}")
            return parse(absent)

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
        known = len(self.problems)
        count = self._value("split_count") if self.given["split_count"] else 0
        if len(self.problems) > known:
            count = 0  # a wrong number is not compared
        if trainers and not is_number:
            self.problems.append(f"CONF_PADDLE_GRADIENT_NUM is {trainers!r}; it must be the number of trainers, e.g. 3")
            return count or 1
        if trainers and count and count != int(trainers):
            self.problems.append(
                f"SPLIT_COUNT is {count} but CONF_PADDLE_GRADIENT_NUM is {trainers}; each trainer needs one shard"
            )
        return count or (int(trainers) if is_number else 1)

    def _source(self) -> Source:
        """Read DATA_SOURCE; if it is not set, return the source of the example that TRAIN_CONFIG_DIR names."""
        if self.given["data_source"]:
            return SOURCES[self._value("data_source", "digits", choice(*SOURCES))]
        of_table = "quick_start" if self.given["csv_text"] else "csv" if self.given["csv_label"] else "digits"
        config = self.given["train_config_dir"] or of_table
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
        if source.reads == "input" and not self.given["data_url"] and not self.given["data_path"]:
            self.problems.append(f"DATA_SOURCE={source.name} needs DATA_PATH or DATA_URL; set one of them")
        if settings.csv_text and (source.name != "quick_start" or not settings.csv_label):
            self.problems.append("CSV_TEXT is for DATA_SOURCE=quick_start with CSV_LABEL; set both, or unset CSV_TEXT")
        if settings.csv_task != "auto" and not settings.csv_label:
            self.problems.append(
                f"CSV_TASK is {settings.csv_task}, but CSV_LABEL is not set; set it to the label's column"
            )
        for name, place in (("DATA_PATH", settings.data_path), ("DATA_URL", settings.data_url)):
            if isinstance(place, Path) or (place is not None and place.is_local):
                self._check_place(name, Path(str(place)), settings.out_dir)
            elif place is not None and place.scheme == HTTPS and not settings.data_sha256:
                self.problems.append(f"{name} is downloaded, so DATA_SHA256 must name the expected digest")

    def _address(self, name: str) -> Address | None:
        """Read the address in a setting; None for a path, which DATA_URL must not be."""
        text = self.given[name]
        try:
            if is_address(text):
                return parse_address(text, name.upper())
        except ConfigError as error:
            self.problems.append(str(error))
            return None
        if text and name == "data_url":
            self.problems.append(f"DATA_URL is {text!r}; write an address such as https://..., or set DATA_PATH")
        return None

    def _check_place(self, name: str, path: Path, out_dir: Path) -> None:
        """Reject input that lies inside OUT_DIR after links are resolved, because prepare would read its own output."""
        place = Path(os.path.realpath(path))
        if self.given["out_dir"] and place.is_relative_to(os.path.realpath(out_dir)):
            self.problems.append(
                f"{name} {path} lies in OUT_DIR {out_dir}, so prepare would read its own output; "
                "name another OUT_DIR, or move the data out of OUT_DIR"
            )
