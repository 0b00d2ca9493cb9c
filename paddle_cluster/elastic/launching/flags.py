"""The flags of `paddle elastic run`, and the arguments of `paddle_cluster.elastic.launch.run`.

If Horovod 0.28 also has a flag, the flag and its attribute have the names of Horovod.
"""

from __future__ import annotations

import argparse
import importlib
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, MissingInputError, UsageError, reading_error
from paddle_base.runtime.gflags import suggest_flag
from paddle_base.runtime.network.interfaces import split_names
from paddle_base.runtime.regular_files import open_regular
from paddle_cluster.elastic.constants import AGENT_PORT, POD_SELECTOR

WHAT = "Start the workers of a job on this machine, and by agents on other machines; adapt to hosts that come and go."

# by argument of `run`: the equivalent flag of `paddle elastic run`
FLAGS = {
    "num_proc": "-np",
    "min_num_proc": "--min-np",
    "max_num_proc": "--max-np",
    "slots": "--slots-per-host",
    "reset_limit": "--reset-limit",
    "cooldown_range": "--blacklist-cooldown-range",
    "hosts": "--hosts",
    "hostfile": "--hostfile",
    "host_discovery_script": "--host-discovery-script",
    "start_timeout": "--start-timeout",
    "output_filename": "--output-filename",
    "verbose": "--verbose",
    "network_interfaces": "--network-interfaces",
    "prefix_output_with_timestamp": "--prefix-output-with-timestamp",
    "failures_per_host": "--failures-per-host",
}
# by older name of an argument of `run`: the present name of the argument
OLDER = {
    "np": "num_proc",
    "min_np": "min_num_proc",
    "max_np": "max_num_proc",
    "network_interface": "network_interfaces",
}
_NO_SSH = "the driver starts workers on its own machine"
NOT_HERE = {
    "use_mpi": "the workers exchange data over their own connections",
    "mpi_args": "the workers exchange data over their own connections",
    "ssh_port": _NO_SSH,
    "ssh_identity_file": _NO_SSH,
    "use_jsrun": "the workers exchange data over their own connections",
    "binding_args": "the workers exchange data over their own connections",
}


class FlagParser(argparse.ArgumentParser):
    """A parser that raises UsageError instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Report a wrong command line. Raises: UsageError: always."""
        hint = suggest_flag(message, self.format_help())
        raise UsageError(f"{message}{hint}; '{self.prog} --help' lists all flags")


class _AddNames(argparse.Action):
    """Adds the names of a comma-separated list to a set."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        found: set[str] = getattr(namespace, self.dest) or set()
        setattr(namespace, self.dest, found | set(split_names(values)))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = FlagParser(prog="paddle elastic run", allow_abbrev=False, description=WHAT)
    add = parser.add_argument
    add("-np", "--num-proc", dest="num_proc", type=int, help="minimum number of workers with which the job begins")
    add(
        "--min-np",
        "--min-num-proc",
        dest="min_num_proc",
        type=int,
        help="minimum number of workers with which the job continues after a change (default: -np)",
    )
    add("--max-np", "--max-num-proc", dest="max_num_proc", type=int, help="maximum number of workers (default: none)")
    add("--host-discovery-script", help="command that prints one host per line, as name or name:slots")
    add("-H", "--hosts", help="fixed hosts as name:slots,name:slots, in place of a discovery script")
    add("-hostfile", "--hostfile", help="file with fixed hosts; each line has the form name slots=number")
    add("--slots-per-host", dest="slots", type=int, help="slots of a host for which the script prints no number")
    add("--elastic-timeout", type=float, help="seconds to wait for slots (default is HOROVOD_ELASTIC_TIMEOUT, or 600)")
    add("--reset-limit", type=int, help="maximum number of changes after which workers continue (default: no limit)")
    add(
        "--blacklist-cooldown-range",
        dest="cooldown_range",
        nargs=2,
        type=float,
        metavar=("MIN", "MAX"),
        help="seconds after which a blacklisted host may be used again (default: never)",
    )
    _add_failure_flags(parser)
    _add_driver_flags(parser)
    add("--start-timeout", type=int, help="accepted without effect: no interfaces are probed")
    add(
        "--network-interface",
        "--network-interfaces",
        dest="nics",
        action=_AddNames,
        help="network interface of the connections between workers",
    )
    add("--output-filename", help="directory for output (rank.0/stdout, ...) and the state that `paddle status` shows")
    add(
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        action="store_true",
        help="begin each line of output with the time",
    )
    add("--disable-cache", action="store_true", help="accepted without effect: nothing is cached")
    add("--verbose", action="store_true", help="logs more")
    add("--config-file", help="YAML file of Horovod's parameters; a flag of the command line has priority")
    _add_parameters(parser)
    _add_controllers(parser)
    parser.set_defaults(run_func=None, executable=None)
    add("command", nargs=argparse.REMAINDER, help="command of a worker, with its arguments")
    return parser


def _add_failure_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags about workers that fail, and their replacements."""
    add = parser.add_argument
    add(
        "--failures-per-host",
        type=int,
        help="number of failed workers after which a host is blacklisted (default: 1 with -H, --hostfile or "
        "--host-discovery-script, as in Horovod; else 2)",
    )
    add(
        "--wait-for-replacement",
        action="store_true",
        help="let all workers wait for the start of a new worker, as in Horovod (default: the others continue)",
    )
    add("--heartbeat-timeout", type=float, default=30.0, help="seconds after which a silent worker is ended (30)")


def _add_driver_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a driver that can be restarted, and of a driver with workers on other machines."""
    add = parser.add_argument
    add("--store-dir", default="", help="directory by which a restarted driver finds the workers of the job")
    add("--driver-grace", type=float, default=60.0, help="seconds for which workers wait for the next driver (60)")
    add("--hand-over", action="store_true", help="at SIGTERM end only the driver; its workers wait for the next driver")
    add("--discovery", choices=["kubernetes"], help="use the pods of --pod-selector as hosts; each runs an agent")
    add("--pod-selector", default=POD_SELECTOR, help=f"label selector of --discovery=kubernetes ({POD_SELECTOR})")
    add("--namespace", default="", help="namespace of the pods (default: namespace of the service account)")
    add("--agents", dest="has_agents", action="store_true", help="let an agent start the workers of this machine, too")
    add("--agent-port", type=int, default=AGENT_PORT, help=f"port of the agents ({AGENT_PORT})")
    add("--agent-timeout", type=float, default=10.0, help="seconds after which a silent agent is lost (default: 10)")
    add("--address", default="", help="name or address at which workers of agents reach the driver (default: detected)")
    add("--port", type=int, default=0, help="port at which workers reach the driver (default: any free port)")


def _add_parameters(parser: argparse.ArgumentParser) -> None:
    """Add the flags of Horovod's parameters, which `--config-file` may set too."""
    helps = {
        "no_stall_check": "disable the warning that names the ranks for which other ranks wait",
        "stall_check_warning_time_seconds": "seconds until a warning names the ranks for which other ranks wait "
        "(default: 60)",
        "stall_check_shutdown_time_seconds": "seconds until a wait for ranks ends the generation (default: 1800)",
        "gloo_timeout_seconds": "maximum seconds until the workers have connected to each other (default: 30)",
    }
    for one in PARAMETERS:
        text = helps.get(one.name, "accepted without effect")
        if one.kind is not bool:
            choices = LOG_LEVELS if one.name == "log_level" else None
            parser.add_argument(one.flag, dest=one.name, type=one.kind, choices=choices, help=text)
            continue
        pair = parser.add_mutually_exclusive_group()
        older = one.name == "log_with_timestamp"
        yes, no = (["--no-log-hide-timestamp"], ["--log-hide-timestamp"]) if older else ([], [])
        pair.add_argument(one.flag, *yes, dest=one.name, action="store_const", const=True, help=text)
        pair.add_argument(one.opposite, *no, dest=one.name, action="store_const", const=False, help=argparse.SUPPRESS)


def _add_controllers(parser: argparse.ArgumentParser) -> None:
    """Add Horovod's flags for MPI and ssh; a run refuses most of these flags, and says why (`check_possible`)."""
    one_of = parser.add_mutually_exclusive_group()
    one_of.add_argument(
        "--gloo", dest="use_gloo", action="store_true", help="accepted without effect: there is no other transport"
    )
    one_of.add_argument("--mpi", dest="use_mpi", action="store_true", help=argparse.SUPPRESS)
    one_of.add_argument("--jsrun", dest="use_jsrun", action="store_true", help=argparse.SUPPRESS)
    add = parser.add_argument
    add("--mpi-args", help=argparse.SUPPRESS)
    add("--binding-args", help=argparse.SUPPRESS)
    add("--tcp", dest="tcp_flag", action="store_true", help="accepted without effect: there is no other transport")
    add("-p", "--ssh-port", type=int, help=argparse.SUPPRESS)
    add("-i", "--ssh-identity-file", help=argparse.SUPPRESS)


def check_possible(options: Mapping[str, Any]) -> None:
    """Check that a job supports the arguments of `run`, or the attributes of a command line.

    Raises: ParameterError: an argument asks for an unsupported feature.
    """
    for name, why in NOT_HERE.items():
        if options.get(name):
            raise ParameterError(f"{name} is not supported: {why}")


def make_arguments(options: Mapping[str, Any]) -> list[str]:
    """Return the flags of `paddle elastic run` that are equivalent to arguments of `run`.

    Raises: ParameterError: an argument asks for an unsupported feature.
    """
    check_possible(options)
    for older, name in OLDER.items():
        if options.get(older) is not None:
            warnings.warn(f"{older} is deprecated, use {name} instead", DeprecationWarning, stacklevel=3)
            options = {**options, name: options[older]}
    words: list[str] = []
    for name, flag in FLAGS.items():
        value = options.get(name)
        if value is None or value is False:
            continue
        words.append(flag)
        if value is not True:
            values = [str(one) for one in (value if isinstance(value, tuple | list) else [value])]
            words += [",".join(values)] if name == "network_interfaces" else values
    return words


# ----- The parameters of Horovod's command line -----


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
