"""The syntax of gflags, for all programs: `--name=value`, `--name value`, `--name`, `--noname`.

A program with a table of flags reads its command line by `read_arguments`. The launcher reads its command line by
`read_pairs`, because it passes most flags to other programs, and does not have their tables. The two functions raise
errors with equal messages. One dash is equivalent to two dashes. If a flag is given twice, the last value counts.

Source: gflags 2.2, gflags.cc (CommandLineFlagParser); spec/trainer.md 1.1.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import read_text_file
from paddle_base.runtime.errors import MissingInputError, UsageError

Value = bool | int | float | str

_INT32 = 1 << 31  # the integers of gflags have 32 bits with a sign
# gflags' words for true and false, in upper or lower case
_TRUE, _FALSE = ("1", "t", "true", "y", "yes"), ("0", "f", "false", "n", "no")
_FLAG = re.compile(r"--?([A-Za-z_][^=]*)(?:=(.*))?", re.DOTALL)
_GO_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)
_KINDS: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a text"}


class Status(Enum):
    """The effect of a flag that is given with another value than its default."""

    SUPPORTED = "supported"
    QUIET = "accepted, without meaning here"
    IGNORED = "accepted with a warning, without meaning here"


@dataclass(frozen=True)
class Flag:
    """One flag. The flag has the type of its default. `least` and `most` are inclusive bounds of a number."""

    name: str
    default: Value
    status: Status
    meaning: str
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def kind(self) -> type[Value]:
        """The type of the flag's values: bool, int, float or str."""
        return type(self.default)


_GLOG = "the log goes to stderr"
# the flags of gflags and glog themselves, which every program of v0.10 has
_OF_GFLAGS = ("flagfile", "fromenv", "tryfromenv", "undefok")
_OF_GLOG = (
    Flag("minloglevel", 0, Status.SUPPORTED, "least severity of the lines of the log: 0 INFO to 3 FATAL", 0, 3),
    Flag("logtostderr", True, Status.QUIET, _GLOG),
    Flag("alsologtostderr", False, Status.QUIET, _GLOG),
    Flag("stderrthreshold", 2, Status.QUIET, _GLOG),
    Flag("colorlogtostderr", False, Status.QUIET, "only lines on a terminal have colours"),
    Flag("logbuflevel", 0, Status.QUIET, "every line is written at once"),
    Flag("logbufsecs", 30, Status.QUIET, "every line is written at once"),
    Flag("log_prefix", True, Status.IGNORED, "every line has its prefix"),
    Flag("log_dir", "", Status.IGNORED, f"{_GLOG}; write it into a file by 2> FILE"),
    Flag("log_link", "", Status.IGNORED, _GLOG),
    Flag("max_log_size", 1800, Status.IGNORED, _GLOG),
    Flag("stop_logging_if_full_disk", False, Status.IGNORED, _GLOG),
    Flag("v", 0, Status.IGNORED, "there are no lines of VLOG"),
    Flag("vmodule", "", Status.IGNORED, "there are no lines of VLOG"),
    Flag("log_backtrace_at", "", Status.IGNORED, "no line has a stack trace"),
    Flag("symbolize_stacktrace", True, Status.IGNORED, "no line has a stack trace"),
    Flag("logemaillevel", 999, Status.IGNORED, "the log is not mailed"),
    Flag("alsologtoemail", "", Status.IGNORED, "the log is not mailed"),
    Flag("logmailer", "/bin/mail", Status.IGNORED, "the log is not mailed"),
)
LIBRARY_FLAGS: Mapping[str, Flag] = {
    flag.name: flag for flag in (*(Flag(name, "", Status.SUPPORTED, "") for name in _OF_GFLAGS), *_OF_GLOG)
}
LIBRARY_HELP = (
    "The flags of gflags and glog are accepted too: --flagfile=FILE has a flag a line, --minloglevel=1 drops INFO."
)
_GLOG_VARIABLE = "GLOG_"  # the start of the name of a variable, before the name of a flag of glog
_FLAG_OF = "flag"  # key of the metadata of a field
_MOST_FLAG_FILES = 100  # maximum number of flag files; a file that names itself would never end


def index_flags(*flags: Flag) -> dict[str, Flag]:
    """Return the flags by name, in their order."""
    return {flag.name: flag for flag in flags}


def flag(
    name: str, default: bool | int | float, meaning: str, least: float | None = None, most: float | None = None
) -> Any:
    """Return a field of a dataclass whose value is that of a flag, so the flag is declared where its value is used."""
    return field(default=default, metadata={_FLAG_OF: Flag(name, default, Status.SUPPORTED, meaning, least, most)})


def time_flag(name: str, default: str, meaning: str) -> Any:
    """Return a field like `flag` for a time: the flag has a text such as "20m", and the field has its seconds."""
    declared = Flag(name, default, Status.SUPPORTED, meaning)
    return field(default=read_seconds(name, default), metadata={_FLAG_OF: declared})


def flags_of(settings: type[Any]) -> dict[str, Flag]:
    """Return {name of a field: its flag} of a dataclass, in the order of the fields."""
    return {one.name: one.metadata[_FLAG_OF] for one in fields(settings)}


def read_arguments(arguments: Sequence[str], flags: Mapping[str, Flag]) -> dict[str, Any]:
    """Return the values of the given flags, in the order of their first occurrence.

    The flags of gflags and glog themselves take effect at once and are not in the result. As in glog, a variable of the
    environment GLOG_<name> gives the value of a flag of glog that is not given.

    Raises: UsageError: an argument is not a flag, a flag is unknown (with the closest name), or its value is invalid.
        MissingInputError: a flag file cannot be read.
    """
    given: dict[str, Any] = {}
    rest, of_library, files = list(arguments), dict[str, Any](), 0
    while rest:
        name, text = split_argument(rest.pop(0))
        if name in str(of_library.get("undefok", "")).split(",") and name not in flags:
            continue
        flag, negated = _find(name, flags)
        if negated and text is not None:
            raise UsageError(f"--{name}={text}: a negated flag takes no value; write --{name} or --{flag.name}={text}")
        if text is None and flag.kind is not bool:
            if not rest:
                raise UsageError(f"--{flag.name} needs a value: --{flag.name}=...")
            text = rest.pop(0)
        taken = given if flag.name in flags else of_library
        taken[flag.name] = not negated if text is None else convert(flag, text)
        if taken is of_library and flag.name in ("flagfile", "fromenv", "tryfromenv"):
            files += str(text).count(",") + 1 if flag.name == "flagfile" else 0  # a flag may name several files
            if files > _MOST_FLAG_FILES:
                raise UsageError(f"--flagfile={text}: more than {_MOST_FLAG_FILES} flag files; one names itself")
            rest[:0] = _read_flags(flag.name, str(text))
    _use_glog_flags(of_library)
    return given


def _read_flags(name: str, text: str) -> list[str]:
    """Return the arguments in files (--flagfile), or in variables FLAGS_<name> (--fromenv, --tryfromenv)."""
    found: list[str] = []
    for item in filter(None, text.split(",")):
        if name != "flagfile":
            value = os.environ.get(f"FLAGS_{item}")
            if value is None and name == "fromenv":
                raise UsageError(f"--fromenv={text}: the environment has no FLAGS_{item}; set it, or use --tryfromenv")
            found += [] if value is None else [f"--{item}={value}"]
            continue
        try:
            lines = os.fsdecode(read_text_file(Path(item))).splitlines()
        except OSError as error:
            raise MissingInputError(f"--flagfile={item} cannot be read: {error.strerror}; correct its name") from error
        for number, line in enumerate((line.strip() for line in lines), 1):
            if line and not line.startswith("#"):
                if not _FLAG.fullmatch(line):
                    raise UsageError(f"{item} line {number}: {line!r}; write one flag a line, as --name=value")
                found.append(line)
    return found


def _use_glog_flags(given: Mapping[str, Any]) -> None:
    """Set the least severity of the log, and warn of each flag or variable of glog that has no effect."""
    variables = {flag: os.environ.get(f"{_GLOG_VARIABLE}{flag.name}", "") for flag in _OF_GLOG}
    values = {
        flag.name: convert(flag, text, f"the variable {_GLOG_VARIABLE}")
        for flag, text in variables.items()
        if text and flag.name not in given
    }
    least = {**values, **given}.get("minloglevel")
    if least is not None:
        glog.set_least_severity(least)
    for start, source in (("--", given), (_GLOG_VARIABLE, values)):
        for flag in (LIBRARY_FLAGS[name] for name in source):
            if flag.status is Status.IGNORED and source[flag.name] != flag.default:
                glog.warning(f"{start}{flag.name} has no meaning here ({flag.meaning})")


def read_pairs(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return name and value of every flag, without a table of flags.

    The word after `--name` is its value, except if this word looks like a flag. A `--name` without value is true.
    `--noname` sets `name` to false: no flag of the programs has a name that begins with "no".
    Raises: UsageError: an argument is neither a flag nor the value of a flag.
    """
    pairs: list[tuple[str, str]] = []
    rest = list(arguments)
    while rest:
        name, text = split_argument(rest.pop(0))
        if text is None and name.startswith("no") and name != "no":
            name, text = name.removeprefix("no"), "false"
        elif text is None:
            has_value = bool(rest) and not _FLAG.fullmatch(rest[0])
            text = rest.pop(0) if has_value else "true"
        pairs.append((name, text))
    return pairs


def split_argument(argument: str) -> tuple[str, str | None]:
    """Return the name of a flag, and the text after the equals sign, or None without an equals sign.

    Raises: UsageError: the argument is not a flag.
    """
    match = _FLAG.fullmatch(argument)
    if not match:
        raise UsageError(f"Unknown commandline argument: {argument}; write flags as --name=value")
    return match[1], match[2]


def convert(flag: Flag, text: str, start: str = "--") -> Value:
    """Return a text as a value of a flag's type. Args: start: the text before the flag's name in an error.

    Raises: UsageError: the value has another type, is out of bounds, or is not one of the choices.
    """
    converters: Mapping[type, Callable[[str], Value]] = {bool: _truth, int: _whole, float: _finite}
    try:
        value = converters.get(flag.kind, str)(text)
    except ValueError:
        raise UsageError(f"{start}{flag.name} is '{text}'; it must be {_KINDS[flag.kind]}") from None
    if flag.choices and value not in flag.choices:
        raise UsageError(f"{start}{flag.name} is '{value}'; it must be one of {', '.join(flag.choices)}")
    if flag.kind in (int, float) and not isinstance(value, str):
        _check_bounds(flag, value, start)
    return value


def read_seconds(name: str, text: str) -> float:
    """Return the seconds of a time: a number, or hours, minutes and seconds in Go's notation.

    Raises: UsageError: the text is not such a time, or the time is longer than 30 days.
    """
    try:
        seconds = float(_plain(text))
    except ValueError:
        match = _GO_TIME.fullmatch(text)
        hours, minutes, rest = (float(one or 0) for one in match.groups()) if match and text else (-1.0, 0.0, 0.0)
        seconds = hours * 3600 + minutes * 60 + rest
    if not 0 <= seconds <= 30 * 86400:
        raise UsageError(f"--{name} is '{text}'; it must be a time such as 16s, 20m or 1h30m, of at most 30 days")
    return seconds


def _truth(text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError
    return text.lower() in _TRUE


def _whole(text: str) -> int:
    return int(_plain(text))


def _plain(text: str) -> str:
    """Return the text of a number; raise ValueError for what only Python reads: 1_000 and digits of other scripts."""
    if not text.isascii() or "_" in text:
        raise ValueError
    return text


def _finite(text: str) -> float:
    value = float(_plain(text))
    if not math.isfinite(value):
        raise ValueError
    return value


def _check_bounds(flag: Flag, value: float, start: str) -> None:
    least, most = flag.least, flag.most
    if flag.kind is int:
        least, most = (-_INT32 if least is None else least), (_INT32 - 1 if most is None else most)
    if (least is None or value >= least) and (most is None or value <= most):
        return
    if least is not None and most is not None:
        raise UsageError(f"{start}{flag.name} is {value}; it must be in [{least}, {most}]")
    bound = f"at least {least}" if least is not None else f"at most {most}"
    raise UsageError(f"{start}{flag.name} is {value}; it must be {bound}")


def _find(name: str, flags: Mapping[str, Flag]) -> tuple[Flag, bool]:
    """Return the flag with a name, and whether the name negates it."""
    for table in (flags, LIBRARY_FLAGS):
        if name in table:
            return table[name], False
        plain = name.removeprefix("no")
        if plain != name and plain in table and table[plain].kind is bool:
            return table[plain], True
    close = difflib.get_close_matches(name, flags, 1)
    hint = f"; did you mean --{close[0]}?" if close else "; --help lists all"
    raise UsageError(f"unknown command line flag '{name}'{hint}")


def suggest_flag(message: str, manual: str) -> str:
    """Return "; did you mean --flag?" if argparse reports a flag that resembles a flag of the manual, else ""."""
    unknown = re.search(r"unrecognized arguments: (-[^\s=]+)", message)
    # a manual also names flags of other commands
    known = [flag for flag in re.findall(r"--[a-z][\w-]*", manual) if unknown and flag != unknown[1]]
    close = difflib.get_close_matches(unknown[1], known, 1) if unknown else []
    return f"; did you mean {close[0]}?" if close else ""
