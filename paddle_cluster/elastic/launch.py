"""`paddle elastic run`: starts the workers of a job on this machine, and starts further workers as hosts come and go.

    paddle elastic run -np 2 --min-np 1 --max-np 4 --host-discovery-script ./discover.sh python train.py

Flags and the names of their attributes are those of Horovod 0.28's `horovodrun`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import PaddleError, UsageError
from paddle_cluster.elastic.agent.service import run_agent
from paddle_cluster.elastic.constants import MOST_S
from paddle_cluster.elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript, check_cooldown_range
from paddle_cluster.elastic.hosts import MOST_HOST_SLOTS, parse_host_files, parse_hosts_and_slots
from paddle_cluster.elastic.job import NOT_BEGUN, run_job
from paddle_cluster.elastic.launching.flags import (
    WITHOUT_EFFECT,
    ParameterError,
    check_possible,
    list_given,
    make_arguments,
    make_parser,
    read_config_file,
    set_args_from_config,
    set_env_from_args,
    validate_config_args,
)
from paddle_cluster.elastic.launching.processes import WorkerProgram, start_command
from paddle_cluster.elastic.membership.results import JobFailedError
from paddle_cluster.elastic.process.features import gloo_built, mpi_built
from paddle_cluster.elastic.settings import ElasticSettings

# settings that have the names of the command line's attributes, and their values
_SAME = (
    "num_proc", "wait_for_replacement", "heartbeat_timeout", "gloo_timeout_seconds", "nics",
    "prefix_output_with_timestamp", "store_dir", "driver_grace", "agent_port", "agent_timeout", "address", "port",
)  # fmt: skip


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse a command line, and the file of its `--config-file`; the default is the command line of this process.

    Raises: UsageError: the command line, or the file, is wrong.  MissingInputError: the file cannot be read.
    """
    args = make_parser().parse_args(argv)
    if args.command[:1] == ["--"]:
        del args.command[0]
    if args.config_file:
        set_args_from_config(args, read_config_file(args.config_file), list_given(args))
    validate_config_args(args)
    return args


def make_settings(args: argparse.Namespace) -> ElasticSettings:
    """Return the settings of the job that a command line describes.

    Raises: ParameterError: a value is wrong, or two values contradict each other.  MissingInputError, VolumeError: the
        file of the hosts cannot be read.
    """
    if args.num_proc is None:
        raise ParameterError("-np is missing; give the number of workers with which the job begins")
    least = args.num_proc if args.min_num_proc is None else args.min_num_proc
    _check_sizes(least, args.num_proc, args.max_num_proc)
    _check_ranges(args)
    if args.hand_over and not args.store_dir:
        raise ParameterError("--hand-over needs --store-dir, in which the next driver finds the workers")
    try:
        cooldown_range = check_cooldown_range(args.cooldown_range)
        discovery = make_discovery(args)
    except (ValueError, OSError) as exc:
        raise ParameterError(str(exc)) from exc
    return ElasticSettings(
        discovery,
        least,
        args.max_num_proc,
        args.elastic_timeout,
        args.reset_limit,
        cooldown_range,
        elastic=_is_elastic(args),
        failures_per_host=args.failures_per_host or _choose_failures(args),
        output_filename=args.output_filename or "",
        verbose=int(args.verbose),
        hands_over=args.hand_over,
        has_agents=args.has_agents or args.discovery is not None,
        variables=dict(set_env_from_args({}, args)),
        **{name: getattr(args, name) for name in _SAME},
    )


def _choose_failures(args: argparse.Namespace) -> int:
    """Return the default of --failures-per-host: Horovod's, if the hosts are named by flags that Horovod has, too."""
    return 2 if all(one is None for one in (args.host_discovery_script, args.hosts, args.hostfile)) else 1


def _check_sizes(least: int, begin: int, most: int | None) -> None:
    """Check that the numbers of workers agree. Raises: ParameterError: two numbers contradict each other."""
    for name, number in (("-np", begin), ("--min-np", least)):
        if number < 1:
            raise ParameterError(f"{name} is {number}; it has to be at least 1")
    if least > begin:
        raise ParameterError(f"--min-np is {least}, which is more than -np, {begin}: the job would never begin")
    if most is not None and begin > most:
        raise ParameterError(f"--max-np is {most}, which is less than -np, {begin}")


def _check_ranges(args: argparse.Namespace) -> None:
    """Check single numbers. Raises: ParameterError: a number is out of its range."""
    # without hosts, -np or --max-np is the number of slots of this machine
    for name, number in (("-np", args.num_proc), ("--max-np", args.max_num_proc), ("--slots-per-host", args.slots)):
        if (number or 0) > MOST_HOST_SLOTS:
            raise ParameterError(f"{name} is {number}; it has to be at most {MOST_HOST_SLOTS}")
    for name, value, lowest in (
        ("--slots-per-host", args.slots, 1),
        ("--elastic-timeout", args.elastic_timeout, 0),
        ("--reset-limit", args.reset_limit, 0),
        ("--failures-per-host", args.failures_per_host, 1),
        ("--heartbeat-timeout", args.heartbeat_timeout, 0),
        ("--gloo-timeout-seconds", args.gloo_timeout_seconds, 0.1),
        ("--driver-grace", args.driver_grace, 1),
        ("--agent-timeout", args.agent_timeout, 0.1),
        ("--start-timeout", args.start_timeout, 0),
    ):
        if value is not None and not lowest <= value:  # also for nan
            raise ParameterError(f"{name} is {value}; it has to be at least {lowest}")
        if isinstance(value, float) and value > MOST_S:
            raise ParameterError(f"{name} is {value:g}; it has to be at most {MOST_S:.0f}")
    if not 0 <= args.port <= 65535 or not 1 <= args.agent_port <= 65535:
        raise ParameterError(f"--port is {args.port} and --agent-port is {args.agent_port}; a port is at most 65535")


def _is_elastic(args: argparse.Namespace) -> bool:
    """Return whether workers may come and go."""
    given = (args.host_discovery_script, args.min_num_proc, args.max_num_proc, args.discovery)
    return any(one is not None for one in given)


def make_discovery(args: argparse.Namespace) -> HostDiscovery:
    """Return the discovery of the hosts that a command line names.

    Raises: ParameterError: the command line names hosts in two ways.  ValueError: the hosts are wrong.
        MissingInputError, VolumeError: the file of the hosts cannot be read.
    """
    if sum(one is not None for one in (args.host_discovery_script, args.hosts, args.hostfile, args.discovery)) > 1:
        raise ParameterError("--host-discovery-script, --hosts, --hostfile and --discovery exclude each other")
    if args.discovery is not None:
        kubernetes = importlib.import_module(
            "paddle_cluster.elastic.membership.kubernetes"
        )  # no other discovery needs `requests`
        found: HostDiscovery = kubernetes.PodDiscovery(os.environ, args.namespace, args.pod_selector, args.slots or 1)
        return found
    if args.host_discovery_script is not None:
        return HostDiscoveryScript(args.host_discovery_script, args.slots)
    hosts = args.hosts if args.hostfile is None else parse_host_files(args.hostfile)
    if hosts is None:
        return FixedHosts({"localhost": args.max_num_proc or args.num_proc})
    named = "-H" if args.hostfile is None else args.hostfile
    if not hosts:
        raise ParameterError(f"{named} names no host")
    slots = parse_hosts_and_slots(hosts)[1]
    if sum(slots.values()) < args.num_proc:  # fixed hosts never change
        raise ParameterError(
            f"-np is {args.num_proc}, which is more than the slots of {named}, {sum(slots.values())}: give more slots, "
            "or a lower -np"
        )
    return FixedHosts(slots)


def is_gloo_used(use_gloo: bool | None = None, use_mpi: bool | None = None, use_jsrun: bool | None = None) -> bool:
    """Return whether `run_controller` chooses `gloo_run`."""
    return bool(use_gloo) or not (use_mpi or use_jsrun or mpi_built())


def run_controller(
    use_gloo: bool | None,
    gloo_run: Callable[[], object],
    use_mpi: bool | None,
    mpi_run: Callable[[], object],
    use_jsrun: bool | None,
    js_run: Callable[[], object],
    verbosity: int | None,
) -> None:
    """Call the function of the chosen transport; without a choice, call `mpi_run` if there is MPI, else `gloo_run`.

    Raises: ParameterError: the chosen transport is not available.
    """
    verbose = verbosity is not None and verbosity >= 2
    is_mpi = bool(use_mpi or use_jsrun) and not use_gloo
    if is_mpi or (not use_gloo and mpi_built(verbose=verbose)):
        if not mpi_built(verbose=verbose):
            raise ParameterError("MPI support has not been built: workers have connections of their own; leave MPI out")
        (js_run if use_jsrun and not use_mpi else mpi_run)()
        return
    if not gloo_built(verbose=verbose):
        raise ParameterError("Gloo support has not been built, and MPI support has not been built either")
    gloo_run()


def _run(args: argparse.Namespace) -> list[Any] | None:
    """Run the job of a command line; return the results of the function in `args.run_func`, if there is one.

    Args: args: attributes of a command line; a missing attribute gets the default of its flag.
    Raises: see `run`.
    """
    args = _complete(args)
    return _run_elastic(args) if _is_elastic(args) else _run_static(args)


def _run_static(args: argparse.Namespace) -> list[Any] | None:
    """Run a job that ends with its first failure; see `_run`."""
    return _run_checked(_complete(args))


def _run_elastic(args: argparse.Namespace) -> list[Any] | None:
    """Run a job whose workers may come and go; see `_run`."""
    return _run_checked(_complete(args))


class _HorovodArgs(argparse.Namespace):
    """The attributes of a command line with a single worker, for a program that then sets further attributes itself."""

    def __init__(self) -> None:
        super().__init__(**{**vars(parse_args([])), "num_proc": 1})


def _complete(args: argparse.Namespace) -> argparse.Namespace:
    """Return the attributes of a command line; an attribute that is missing or None gets the default of its flag."""
    given = {name: value for name, value in vars(args).items() if value is not None}
    return argparse.Namespace(**(vars(parse_args([])) | given))


def _run_checked(args: argparse.Namespace) -> list[Any] | None:
    check_possible(vars(args))
    unused = [one.flag for one in WITHOUT_EFFECT if one.name in list_given(args)]
    if unused:
        glog.warning(f"flags without effect, because workers use their own connections: {', '.join(unused)}")
    settings = make_settings(args)
    function = args.run_func
    if function is None:
        run_job(settings, WorkerProgram(args.command, os.environ, start_command(args.command)))
        return None
    from paddle_cluster.elastic.launching.function import FunctionCall, run_function

    call = function if isinstance(function, FunctionCall) else FunctionCall(function, (), {})
    return run_function(call, args.executable, lambda program: run_job(settings, program))


def run(
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[float] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
    failures_per_host: int | None = None,
) -> list[Any]:
    """Run a function on the workers of a job, and return the results of the function by rank, as `horovod.run` does.

    Args:
    - func: any function; on another machine, or with `executable`, a function that its module exports by name.
    - args, kwargs: arguments of the function; on another machine, or with `executable`, only plain data and arrays.
    - executable: another Python for the workers.
    - disable_cache, use_gloo: have no effect.
    - failures_per_host: as --failures-per-host; Horovod does not have this argument.
    - np, min_np, max_np, network_interface: older names of num_proc, min_num_proc, max_num_proc, network_interfaces.

    Raises: UsageError: an argument is wrong.  JobFailedError: a worker has failed.  TimeoutException, RuntimeError: the
        job could not begin.
    """
    # the first statement, while locals() has nothing but the arguments
    options = {**locals(), "verbose": bool(verbose)}
    if not callable(func):
        raise UsageError(f"run() got {type(func).__name__}, which is no function")
    from paddle_cluster.elastic.launching.function import FunctionCall

    given = parse_args(make_arguments(options))
    given.run_func, given.executable = FunctionCall(func, tuple(args), kwargs or {}), executable
    return _run(given) or []


def main(argv: Sequence[str]) -> int:
    """Run `paddle elastic` with these arguments, and return the exit code."""
    try:
        if list(argv[:1]) == ["agent"]:
            run_agent(argv[1:])
            return 0
        if list(argv[:1]) != ["run"]:
            if list(argv[:1]) in (["--help"], ["-h"], []):
                make_parser().print_help()
                return 0
            raise UsageError(
                f"there is no command 'paddle elastic {glog.clean(argv[0], 40)}'; there are 'run' and 'agent'"
            )
        _run_words(argv[1:])
    except (PaddleError, JobFailedError) as exc:
        glog.fatal(str(exc))
        return exc.exit_code
    except RuntimeError as exc:
        glog.fatal(str(exc))
        return NOT_BEGUN
    return 0


def run_commandline() -> None:
    """Run the job of the command line of this process to its end; raise an error if the job fails.

    Raises: see `run`.  UsageError: the command line is wrong.  MissingInputError: a file that the command line names
        cannot be read.
    """
    _run_words(sys.argv[1:])


def _run_words(words: Sequence[str]) -> None:
    args = parse_args(words)
    if not args.command:
        raise UsageError("the command of a worker is missing, e.g. python train.py")
    _run(args)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
