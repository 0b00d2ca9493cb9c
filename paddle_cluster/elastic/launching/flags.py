"""The flags of `paddle elastic run`, and the arguments of `paddle_cluster.elastic.launch.run`.

If Horovod 0.28 also has a flag, the flag and its attribute have the names of Horovod.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

from paddle_base.runtime.errors import UsageError
from paddle_base.runtime.gflags import suggest_flag
from paddle_base.runtime.network.interfaces import split_names
from paddle_cluster.elastic.constants import AGENT_PORT
from paddle_cluster.elastic.launching.config_parser import LOG_LEVELS, PARAMETERS, ParameterError
from paddle_cluster.elastic.membership.pods import SELECTOR

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


class RunParser(argparse.ArgumentParser):
    """A parser that raises UsageError instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Report a wrong command line. Raises: UsageError: always."""
        hint = suggest_flag(message, self.format_help())
        raise UsageError(f"{message}{hint}; 'paddle elastic run --help' lists all flags")


class _AddNames(argparse.Action):
    """Adds the names of a comma-separated list to a set."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        found: set[str] = getattr(namespace, self.dest) or set()
        setattr(namespace, self.dest, found | set(split_names(values)))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = RunParser(prog="paddle elastic run", allow_abbrev=False, description=WHAT)
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
    add(
        "--failures-per-host",
        type=int,
        help="number of failed workers after which a host is blacklisted (default: 1 with -H, --hostfile or "
        "--host-discovery-script, as in Horovod; else 2)",
    )
    add("--heartbeat-timeout", type=float, default=30.0, help="seconds after which a silent worker is ended (30)")
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


def _add_driver_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a driver that can be restarted, and of a driver with workers on other machines."""
    add = parser.add_argument
    add("--store-dir", default="", help="directory by which a restarted driver finds the workers of the job")
    add("--driver-grace", type=float, default=60.0, help="seconds for which workers wait for the next driver (60)")
    add("--hand-over", action="store_true", help="at SIGTERM end only the driver; its workers wait for the next driver")
    add("--discovery", choices=["kubernetes"], help="use the pods of --pod-selector as hosts; each runs an agent")
    add("--pod-selector", default=SELECTOR, help=f"label selector of --discovery=kubernetes ({SELECTOR})")
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
