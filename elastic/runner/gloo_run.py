"""Runs a command in each slot of a job; a program or a test may replace each function of this module.

Users call `elastic.launch` instead. Names, signatures and return values are those of `horovod.runner.gloo_run`. A slot
of another machine is refused, because these functions do not use ssh; `elastic.launch` starts workers on other machines
by agents. The secret of the job is in a file that a variable names, and never in a command line, which every user of
the machine can read.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from elastic.driver import ElasticDriver
from elastic.hosts import SlotInfo, get_host_assignments, parse_hosts
from elastic.http_server import RendezvousServer
from elastic.launching.judging import judge
from elastic.launching.output import keep_earlier
from elastic.launching.processes import check_local, keep_exported, list_slot_variables
from elastic.membership.results import Results
from elastic.rendezvous import create_rendezvous_handler
from elastic.runner.common import env as env_util
from elastic.runner.common import safe_shell_exec, secret
from elastic.runner.util import network, threads
from elastic.settings import BaseSettings, ElasticSettings, StaticSettings
from runtime.environment import SECRET, SECRET_FILE, HandedSecret, read_environment
from runtime.errors import PaddleError, UsageError
from runtime.health.steady_time import steady_time

Events = Sequence[threading.Event]
ExecCommand = Callable[[str, SlotInfo, Events], tuple[int, float]]


class MultiFile:
    """A stream that writes to several streams."""

    def __init__(self, files: Sequence[safe_shell_exec.TextSink]) -> None:
        self._files = files

    def write(self, text: str) -> None:
        """Write a text to each stream."""
        for file in self._files:
            file.write(text)

    def flush(self) -> None:
        """Flush each stream."""
        for file in self._files:
            file.flush()


def _pad_rank(rank: int, size: int) -> str:
    return str(rank).zfill(len(str(max(1, size) - 1)))


def _mkdir_p(path: str) -> None:
    Path(path).mkdir(parents=True, exist_ok=True)


def create_slot_env_vars(slot_info: SlotInfo) -> dict[str, str]:
    """Return the variables of a slot with its ranks."""
    return list_slot_variables(slot_info)


def create_run_env_vars(server_ip: str, nics: Sequence[str], port: int, elastic: bool = False) -> dict[str, Any]:
    """Return the variables that all workers have."""
    found = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": server_ip,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": next(iter(nics)),
        "NCCL_SOCKET_IFNAME": ",".join(nics),
    }
    return {**found, "HOROVOD_ELASTIC": "1"} if elastic else found


def get_run_command(
    command: Sequence[str], server_ip: str, nics: Sequence[str], port: int, elastic: bool = False
) -> str:
    """Return the command line of all workers, without the variables of a slot."""
    variables = create_run_env_vars(server_ip, nics, port, elastic)
    return " ".join([*_assign(variables), *map(quote, command)])


def _assign(variables: Mapping[str, Any]) -> list[str]:
    return [f"{name}={quote(str(value))}" for name, value in variables.items()]


def _slot_info_to_command_fn(run_command: str, env: Mapping[str, str]) -> Callable[[SlotInfo], str]:
    """Return a function that makes the command line of a slot, with the variables that this process does not have."""
    own = {
        name: value
        for name, value in env.items()
        if os.environ.get(name) != value and env_util.is_exportable(name) and name not in (SECRET, SECRET_FILE)
    }
    shown = {**own, "PYTHONUNBUFFERED": "1"}

    def slot_info_to_command(slot_info: SlotInfo) -> str:
        return " ".join(["env", *_assign(create_slot_env_vars(slot_info)), *_assign(shown), run_command])

    return slot_info_to_command


def _create_elastic_worker_fn(
    exec_command: ExecCommand, run_command: str, env: Mapping[str, str], event: threading.Event
) -> Callable[[SlotInfo, Any], tuple[int, float]]:
    """Return a function that runs the worker of a slot to its end, or until one of its events or `event` is set."""

    def create_worker(slot_info: SlotInfo, events: Any) -> tuple[int, float]:
        names = {
            "PADDLE_ELASTIC_INCARNATION": getattr(events, "incarnation", None),
            "PADDLE_ELASTIC_GENERATION": getattr(events, "generation", None),
        }
        own = {name: str(value) for name, value in names.items() if value is not None}
        command = _slot_info_to_command_fn(run_command, {**env, **own})(slot_info)
        return exec_command(command, slot_info, [event, *(events or ())])

    return create_worker


def _exec_command_fn(settings: BaseSettings) -> ExecCommand:
    """Return a function that runs a command line on this machine; without elasticity a failure ends all workers."""
    has_failed = None if settings.elastic else threading.Event()
    is_inherited = settings.key is None and bool(read_environment(os.environ).secret)
    made = None if is_inherited else _find_secret(settings)

    def _exec_command(command: str, slot_info: SlotInfo, events: Events) -> tuple[int, float]:
        index = slot_info.rank
        ends = [*(events or ()), *([has_failed] if has_failed else [])]
        if settings.verbose:
            print(command)
        try:
            check_local(slot_info.hostname)
            handed = contextlib.nullcontext() if made is None else HandedSecret(made)
            with handed as secret_file, _open_output(settings, index) as (stdout, stderr):
                code = safe_shell_exec.execute(
                    command,
                    env={**keep_exported(os.environ), **(secret_file.variables if secret_file is not None else {})},
                    stdout=stdout,
                    stderr=stderr,
                    index=index,
                    events=ends,
                    prefix_output_with_timestamp=settings.prefix_output_with_timestamp,
                )
        except (PaddleError, OSError) as exc:
            print(f"Process {index} could not be run: {exc}")
            code = 1
        if code and has_failed and not any(one.is_set() for one in ends):
            print(f"Process {index} ended with status {code}; all other workers are ended")
        if code and has_failed:
            has_failed.set()
        return code, steady_time()

    return _exec_command


@contextlib.contextmanager
def _open_output(settings: BaseSettings, rank: int) -> Iterator[tuple[MultiFile | None, MultiFile | None]]:
    """Yield the streams for the output of a rank: streams of this process and files of the rank, or None."""
    if not settings.output_filename:
        yield None, None
        return
    directory = Path(settings.output_filename) / f"rank.{_pad_rank(rank, settings.num_proc)}"
    directory.mkdir(parents=True, exist_ok=True)
    names = (directory / "stdout", directory / "stderr")
    for name in names:
        keep_earlier(name)
    with names[0].open("w", encoding="utf-8") as stdout, names[1].open("w", encoding="utf-8") as stderr:
        yield MultiFile([sys.stdout, stdout]), MultiFile([sys.stderr, stderr])


def _find_secret(settings: BaseSettings) -> str:
    """Return the secret of the settings or the environment; if both have none, store a new secret in the settings."""
    if settings.key is None:
        given = read_environment(os.environ).secret
        if given:
            return given
        settings.key = secret.make_secret_key()
    return settings.key.hex()


def register_shutdown_event() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set; if a thread other than the main thread calls, no signal sets it."""
    event = threading.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: event.set())
    return event


@contextlib.contextmanager
def _shutdown_event() -> Iterator[threading.Event]:
    """Yield the event of `register_shutdown_event`; at the end, restore the former signal handlers."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield register_shutdown_event()
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def launch_gloo(
    command: Sequence[str],
    exec_command: ExecCommand,
    settings: StaticSettings,
    nics: Sequence[str],
    env: Mapping[str, str],
    server_ip: str,
) -> None:
    """Run a command in each slot of `settings.hosts` to its end.

    Args: exec_command: runs a command line, and returns the exit code and the time of the end.  nics: interfaces of the
        workers.  env: variables of the workers.  server_ip: address at which the workers reach this program.
    Raises: JobFailedError: a worker has failed.  ValueError: there are too few slots.
    """
    if settings.output_filename:
        _mkdir_p(settings.output_filename)
    slots = get_host_assignments(parse_hosts(settings.hosts or ""), settings.num_proc)
    rendezvous = RendezvousServer(settings.verbose, _find_secret(settings))
    port = rendezvous.start()
    try:
        rendezvous.init(slots)
        make_command = _slot_info_to_command_fn(get_run_command(command, server_ip, nics, port), env)
        with _shutdown_event() as event:
            calls = [[make_command(slot), slot, [event]] for slot in slots]
            ends = threads.execute_function_multithreaded(exec_command, calls) or {}
    finally:
        rendezvous.stop()
    judge(Results(None, {f"{slots[index].hostname}[{slots[index].local_rank}]": end for index, end in ends.items()}))


def gloo_run(
    settings: StaticSettings, nics: Sequence[str], env: Mapping[str, str], server_ip: str, command: Sequence[str]
) -> None:
    """Run a command in each slot of `settings.hosts`, as processes of this machine; see `launch_gloo`."""
    launch_gloo(command, _exec_command_fn(settings), settings, nics, env, server_ip)


def _get_min_start_hosts(settings: ElasticSettings) -> int:  # Horovod's tests replace this function
    """Return 1, because no interfaces are probed, so one host is enough."""
    return 1


def launch_gloo_elastic(
    command_or_func: Any,
    exec_command: ExecCommand,
    settings: ElasticSettings,
    env: Mapping[str, str],
    get_common_interfaces: Callable[[ElasticDriver], Sequence[str]],
    rendezvous: RendezvousServer,
    executable: str | None = None,
) -> None:
    """Run a command in the slots of a job whose hosts come and go, until the job is over.

    Args: get_common_interfaces: returns the interfaces of the workers.  rendezvous: server with the secret of the
        settings.  The other arguments are those of `launch_gloo`.
    Raises: JobFailedError: the job has failed.  TimeoutException, RuntimeError: the job could not begin.
        UsageError: the job is to run a function and not a command.
    """
    if settings.run_func_mode or callable(command_or_func):
        raise UsageError("this function runs only commands; elastic.launch.run() runs a function on the workers")
    if settings.output_filename:
        _mkdir_p(settings.output_filename)
    driver = ElasticDriver(
        rendezvous,
        settings.discovery,
        settings.min_num_proc,
        settings.max_num_proc,
        settings.elastic_timeout,
        settings.reset_limit,
        settings.cooldown_range,
        settings.verbose,
        secret=_find_secret(settings),
    )
    try:
        port = rendezvous.start(create_rendezvous_handler(driver))
        driver.wait_for_available_slots(settings.num_proc)
        nics = get_common_interfaces(driver)
        run_command = get_run_command(command_or_func, network.get_driver_ip(nics), nics, port, elastic=True)
        with _shutdown_event() as event:
            driver.start(settings.num_proc, _create_elastic_worker_fn(exec_command, run_command, env, event))
            results = driver.get_results()
    finally:
        driver.stop()
    judge(results)


def gloo_run_elastic(
    settings: ElasticSettings, env: Mapping[str, str], command_or_func: Any, executable: str | None = None
) -> None:
    """Run a command in the slots of a job, as processes of this machine; see `launch_gloo_elastic`."""

    def get_common_interfaces(driver: ElasticDriver) -> Sequence[str]:
        driver.wait_for_available_slots(settings.num_proc, min_hosts=_get_min_start_hosts(settings))
        return settings.join_nics().split(",") if settings.nics else sorted(network.get_local_intfs())

    rendezvous = RendezvousServer(settings.verbose, _find_secret(settings))
    run = _exec_command_fn(settings)
    launch_gloo_elastic(command_or_func, run, settings, env, get_common_interfaces, rendezvous, executable)
