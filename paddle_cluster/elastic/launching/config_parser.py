"""The parameters of Horovod's command line: flags, the YAML file of `--config-file`, and variables of the workers.

    stall_check: {warning_time_seconds: 120}
    library_options: {gloo_timeout_seconds: 60}

Names and signatures are those of Horovod 0.28's `horovod.runner.common.util.config_parser`. A command line or a file
for Horovod works: parameters WITHOUT_EFFECT are accepted with any value, and a run warns of them.
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, MissingInputError, UsageError, reading_error
from paddle_base.runtime.regular_files import open_regular

LOG_LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"]
MOST_FILE_BYTES = 64 << 10
_MOST_NUMBER = 1 << 63  # exclusive maximum of a number, because programs read the variables as integers of 64 bits
_MOST_NAMES = 10  # maximum number of unknown keys in a message
_MOST_DEPTH = 20  # maximum levels of sections and lists; a parameter is at the second level
# exceptions of PyYAML for a value that does not fit its tag, for example `!!int ""`
_WRONG_VALUE = (ValueError, LookupError, ArithmeticError, AttributeError)


class ParameterError(UsageError, ValueError):
    """A parameter has a wrong value; Horovod raises ValueError in this case."""


def read_number(text: str) -> float:
    """Parse a number. A whole number becomes an integer, so the text of its variable has no fraction."""
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _flag(value: Any) -> int:
    return int(bool(value))


class LaunchParameter(NamedTuple):
    """A parameter.

    Attributes:
    - name: attribute of the command line; the flag has dashes in place of underscores.
    - place: section and key of the parameter in the YAML file.
    - kind: type of the value; bool: the flag takes no value.
    - variable: environment variable of the workers; "": the parameter has no effect, and its value is not checked.
    - convert: returns the value of the variable for a value of the parameter.
    """

    name: str
    place: tuple[str, str]
    kind: Callable[[str], Any]
    variable: str = ""
    convert: Callable[[Any], Any] = lambda value: value

    @property
    def flag(self) -> str:
        """The flag that sets the parameter."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def opposite(self) -> str:
        """The flag that sets the parameter to False."""
        if self.name == "log_with_timestamp":
            return "--log-without-timestamp"
        return f"--{self.flag[5:]}" if self.flag.startswith("--no-") else f"--no-{self.flag[2:]}"


USED = (
    LaunchParameter("no_stall_check", ("stall_check", "enabled"), bool, "HOROVOD_STALL_CHECK_DISABLE", _flag),
    LaunchParameter(
        "stall_check_warning_time_seconds",
        ("stall_check", "warning_time_seconds"),
        int,
        "HOROVOD_STALL_CHECK_TIME_SECONDS",
    ),
    LaunchParameter(
        "stall_check_shutdown_time_seconds",
        ("stall_check", "shutdown_time_seconds"),
        int,
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
    ),
    LaunchParameter(
        "gloo_timeout_seconds", ("library_options", "gloo_timeout_seconds"), read_number, "HOROVOD_GLOO_TIMEOUT_SECONDS"
    ),
    LaunchParameter("log_level", ("logging", "level"), str, "HOROVOD_LOG_LEVEL"),
    LaunchParameter(
        "log_with_timestamp", ("logging", "with_timestamp"), bool, "HOROVOD_LOG_HIDE_TIME", lambda value: int(not value)
    ),
)
# by section of the file: the names of parameters of Horovod's own transport, and of those without a value
_VALUES = {
    "params": ("fusion_threshold_mb", "cycle_time_ms", "cache_capacity"),
    "autotune": (
        "autotune_log_file", "autotune_warmup_samples", "autotune_steps_per_sample", "autotune_bayes_opt_max_samples",
        "autotune_gaussian_process_noise",
    ),
    "timeline": ("timeline_filename",),
    "library_options": ("num_nccl_streams", "thread_affinity"),
}  # fmt: skip
_SWITCHES = {
    "params": ("hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce"),
    "autotune": ("autotune",),
    "timeline": ("timeline_mark_cycles",),
    "library_options": ("mpi_threads_disable",),
}
WITHOUT_EFFECT = tuple(
    LaunchParameter(name, (section, "enabled" if name == section else name.removeprefix(f"{section}_")), kind)
    for kind, names in ((str, _VALUES), (bool, _SWITCHES))
    for section in names
    for name in names[section]
)
PARAMETERS = (*USED, *WITHOUT_EFFECT)
CONTROLLERS = ("gloo", "mpi")


def list_given(args: argparse.Namespace) -> set[str]:
    """Return the names of the parameters that a command line sets."""
    return {one.name for one in PARAMETERS if getattr(args, one.name, None) is not None}


def read_config_file(path: str) -> dict[str, Any]:
    """Return the content of a YAML file of parameters; tags in the file create no Python objects.

    Raises: MissingInputError, VolumeError: the file cannot be read.  ParameterError: the file is too large, is not
        YAML, or does not consist of sections.  ConfigError: PyYAML is not installed.
    """
    try:
        yaml = importlib.import_module("yaml")  # no other part of a job needs the package
    except ImportError as exc:
        raise ConfigError("--config-file needs PyYAML, which is not installed; pip install pyyaml") from exc
    try:
        with open_regular(Path(path)) as file:
            text = file.read(MOST_FILE_BYTES + 1)
    except OSError as exc:
        raise reading_error(MissingInputError, f"--config-file: {path} cannot be read", exc) from exc
    if len(text) > MOST_FILE_BYTES:
        raise ParameterError(f"--config-file: {path} has more than {MOST_FILE_BYTES} bytes")
    try:
        _check_events(path, yaml.parse(text, yaml.SafeLoader), yaml)
        found = yaml.safe_load(text)
    except ParameterError:
        raise
    except (yaml.YAMLError, *_WRONG_VALUE) as exc:
        raise ParameterError(f"--config-file: {path} is not YAML: {glog.clean(exc, 300)}") from exc
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ParameterError(f"--config-file: {path} is a {type(found).__name__}; write sections, e.g. params:")
    return found


def _check_events(path: str, events: Iterator[Any], yaml: ModuleType) -> None:
    """Refuse a text that may need much more memory or time than its length suggests.

    A short text with nested aliases can stand for a huge value. This value would fill the memory when keys are merged,
    or when the value is written into a message.
    Raises: ParameterError: the text has an alias, or is nested too deeply.
    """
    depth = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise ParameterError(f"--config-file: {path} has an alias in line {line}; write the value itself")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MOST_DEPTH:
            raise ParameterError(f"--config-file: {path} has more than {_MOST_DEPTH} levels in line {line}")


def set_args_from_config(args: argparse.Namespace, config: Mapping[str, Any], override_args: Collection[str]) -> None:
    """Set the parameters of a command line from the content of a file.

    Args: override_args: names of the parameters that the command line itself sets; the file does not change these
        parameters.
    Raises: ParameterError: a value or a section has a wrong type.
    """
    controller = config.get("controller")
    if controller and not args.use_gloo and not args.use_mpi:
        if not isinstance(controller, str) or controller.lower() not in CONTROLLERS:
            raise ParameterError(f"controller is {_show(controller)}; it has to be gloo or mpi")
        setattr(args, f"use_{controller.lower()}", True)
    sections = {one.place[0]: _read_section(config, one.place[0]) for one in PARAMETERS}
    for one in PARAMETERS:
        section, key = one.place
        value = sections[section].get(key)
        if value is None or one.name in override_args:
            continue
        if one.variable:
            _check_type(one, value)
        setattr(args, one.name, not value if one.name == "no_stall_check" else value)
    unknown = list(_list_unknown(config, sections))
    if unknown:
        more = f" and {len(unknown) - _MOST_NAMES} more" if len(unknown) > _MOST_NAMES else ""
        glog.warning(
            f"--config-file: {', '.join(unknown[:_MOST_NAMES])}{more} "
            f"{'is no parameter, and changes' if len(unknown) == 1 else 'are no parameters, and change'} nothing"
        )


def _read_section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name) or {}
    if not isinstance(section, Mapping):
        raise ParameterError(f"{name} is {_show(section)}; it has to be a section with keys")
    return section


def _list_unknown(config: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    known = {one.place for one in PARAMETERS}
    yield from (_show(name) for name in config if name not in (*sections, "controller"))
    for name, section in sections.items():
        yield from (f"{name}.{_show(key)}" for key in section if (name, key) not in known)


def _show(value: object) -> str:
    """Return a value of the file for a message."""
    try:
        return glog.clean(value, 40)
    except ValueError:  # Python does not convert an integer of more than 4300 digits to text
        return "a number of more than 4300 digits"


def _check_type(parameter: LaunchParameter, value: Any) -> None:
    if parameter.kind is bool:
        is_right, wanted = isinstance(value, bool), "true or false"
    elif parameter.kind is str:
        is_right, wanted = isinstance(value, str), "a text"
    else:
        whole = parameter.kind is int
        is_right = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        wanted = "a whole number" if whole else "a number"
    if not is_right:
        raise ParameterError(f"{'.'.join(parameter.place)} is {_show(value)}; it has to be {wanted}")


def validate_config_args(args: argparse.Namespace) -> None:
    """Check that the used parameters of a command line are in their bounds.

    Raises: ParameterError: a parameter is out of its bounds; the text names the parameter.
    """
    for one in USED:
        value = getattr(args, one.name)
        if value is None or isinstance(value, bool | str):
            continue
        if not 0 <= value < math.inf:
            raise ParameterError(f"{one.flag} is {_show(value)}; it has to be at least 0")
        if value >= _MOST_NUMBER:
            raise ParameterError(f"{one.flag} is {_show(value)}; it has to be below {_MOST_NUMBER}")
    if args.log_level is not None and args.log_level not in LOG_LEVELS:
        raise ParameterError(f"--log-level is {glog.clean(args.log_level, 40)}; it is one of {', '.join(LOG_LEVELS)}")


def set_env_from_args(env: MutableMapping[str, str], args: argparse.Namespace) -> MutableMapping[str, str]:
    """Set the variables of the workers for the parameters that a command line or its file sets; return `env`."""
    for one in USED:
        value = getattr(args, one.name, None)
        if value is not None:
            env[one.variable] = str(one.convert(value))
    return env
