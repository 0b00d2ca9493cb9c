"""`python3 -m paddle_cluster.launcher.roles ROLE [FLAG...]`: run the program of a pod, and clean up after its end.

A Deployment or StatefulSet restarts a pod that has ended. With AT_END=wait the role of a master or server therefore
waits for SIGTERM after its program has ended with status 0. Before this wait the role scales the objects in
SCALE_TO_ZERO to 0 pods, and Kubernetes then sends the SIGTERM. A master ends with status 65 if the job has failed. The
role treats status 65 as an end of the job, too.

A trainer belongs to a Job, and its role has nothing to do after the program's end. That role therefore replaces its own
process with the program (exec), unless a shell runs the command of ENTRY, whose programs then get the signals. A driver
of an all-reduce job belongs to a Job, too. After the driver's end the role scales the workers to 0. After an exit
status in DRIVER_GOES_ON the role keeps the workers for the Job's next pod.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from paddle_base.runtime.environment import read_environment
from paddle_base.runtime.errors import (
    ApiForbiddenError,
    ConfigError,
    DataError,
    PeerUnreachableError,
    StoppedError,
    UsageError,
)
from paddle_base.runtime.network.redaction import Secrets
from paddle_base.runtime.rate_limit import WAIT_LINE_S, RateLimit
from paddle_cluster.launcher.entry import INIT
from paddle_cluster.launcher.errors import ApiError
from paddle_cluster.launcher.programs.process import Stop, copy_output, end_process, exit_code_of, wait_for_any
from paddle_cluster.launcher.programs.shell import ShellProgram
from paddle_cluster.launcher.roles.plan import KNOWN_TO_ROLES, ROLES, TRAINER, RoleError, RolePlan, plan_role
from paddle_cluster.launcher.roles.scaling import scale_to_zero
from paddle_cluster.launcher.settings import warn_of_misspelt
from paddle_cluster.launcher.text import LauncherLog, end_in_one_line, say

LONG_S = 3600.0  # maximum seconds of one wait for a signal or for the end of the program; the wait is then repeated
CONNECT_S = 3.0  # seconds to connect to an endpoint of etcd
LOOK_AT_ETCD = "check etcd's pods: kubectl get pods -l app.kubernetes.io/component=etcd"
RETRY_S = 5.0  # seconds between two requests to the API server


def main(arguments: Sequence[str]) -> int:
    """Run a role and return its exit status."""
    secrets = Secrets()
    with LauncherLog(secrets).installed():
        stop = Stop.of_process()
        return end_in_one_line(lambda: run_role(arguments, stop, secrets), secrets)


def run_role(arguments: Sequence[str], stop: Stop, secrets: Secrets) -> int:
    """Run a role and return its exit status.

    Raises: UsageError: there is no role of this name.  ConfigError: the error lists all missing and wrong variables.
    """
    if not arguments or arguments[0] not in ROLES:
        raise UsageError(f"there is no role {' '.join(arguments[:1])!r}; write start.sh {' | '.join(ROLES)}")
    # a trainer's PADDLE_INIT_X are flags, which the trainer checks
    names = [name for name in os.environ if arguments[0] != TRAINER or not name.startswith(INIT)]
    warn_of_misspelt(names, KNOWN_TO_ROLES, f"the role {arguments[0]}")
    try:
        plan = plan_role(arguments[0], arguments[1:], os.environ)
    except RoleError as problems:
        raise ConfigError(f"{problems}\nstart.sh --help describes the variables") from problems
    for note in plan.notes:
        say(note)
    say(f"exec {plan}")
    read_environment(os.environ)  # a missing secret is told before the wait: the same command makes etcd's Secrets
    wait_for_etcd(plan)
    if not plan.waits and not plan.targets and not plan.program:
        _become(plan.command)
    with stop.noted():
        status = run_entry(plan, stop) if plan.program else run_program(plan.command, stop)
        is_over = status == 0 or (status == DataError.exit_code and bool(plan.targets))
        is_over = is_over or bool(plan.goes_on and status not in plan.goes_on)
        if is_over and not stop.requested:
            finish(plan, stop, secrets)
    return status


def wait_for_etcd(plan: RolePlan) -> None:
    """Wait until one endpoint of etcd accepts a connection.

    All pods of a job start together, but etcd's large image takes time to pull. Without this wait the role's program
    would fail, and Kubernetes would restart the pod after increasing delays.

    Raises: PeerUnreachableError: no endpoint accepts a connection in time.
    """
    began = time.monotonic()
    lines = RateLimit(WAIT_LINE_S, began + WAIT_LINE_S)
    while plan.etcd:
        trouble = min(map(_reach, plan.etcd))  # "" sorts first
        if not trouble:
            return
        now = time.monotonic()
        if now - began >= plan.etcd_timeout:
            waited = f"no etcd has answered for {plan.etcd_timeout:g} s at ETCD_ENDPOINTS"
            raise PeerUnreachableError(f"{waited}: {trouble}; {LOOK_AT_ETCD}")
        if lines.is_due(now):
            say(f"waiting for etcd: {trouble}; {LOOK_AT_ETCD}")
        time.sleep(min(1.0, plan.etcd_timeout))


def _reach(place: tuple[str, int]) -> str:
    """Return why an endpoint accepts no connection, or "" if it accepts a connection."""
    try:
        with socket.create_connection(place, CONNECT_S):
            return ""
    except OSError as problem:
        return f"{place[0]}:{place[1]}: {problem.strerror or problem}"


def run_program(command: Sequence[str], stop: Stop) -> int:
    """Run a program to its end, forward a signal to it, and return its exit status."""
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as problem:
        raise _missing(command) from problem
    ending = os.pidfd_open(process.pid)
    try:
        is_told = False
        while process.poll() is None:
            if stop.requested and not is_told:
                is_told = True
                process.send_signal(signal.Signals[stop.requested])
            wait_for_any(LONG_S, ending, *([] if is_told else [stop.wakeup]))
    finally:
        os.close(ending)
    return exit_code_of(process.returncode)


def run_entry(plan: RolePlan, stop: Stop) -> int:
    """Run the command of ENTRY to its end, pass its output and signals on, and return the exit status of the pod."""
    environ = {**os.environ, **plan.variables}
    program = ShellProgram(TRAINER, plan.command, environ, Path(os.devnull), copied=True)
    try:
        is_told = is_read = False
        while program.process.poll() is None:
            if stop.requested and not is_told:
                is_told = True
                program.terminate()
            sources = [*([] if is_read else [program.output]), *([] if is_told else [stop.wakeup])]
            if program.output in wait_for_any(LONG_S, program.pidfd, *sources):
                is_read = not copy_output(program)
        while copy_output(program):
            pass
        if stop.requested or not program.status:
            return StoppedError.exit_code if program.status < 0 else program.status
        result = program.find_result()
        if result.message != program.describe_end():
            say(result.message)
        return result.status
    finally:
        program.close()


def finish(plan: RolePlan, stop: Stop, secrets: Secrets) -> None:
    """Scale the targets of the plan to 0 pods, and, with AT_END=wait, wait for SIGTERM."""
    for target in plan.targets:
        _scale_down(target, stop, secrets)
    if plan.waits and not stop.requested:
        say("the job is over; this pod waits until it is scaled to 0")
        while not stop.requested:
            wait_for_any(LONG_S, stop.wakeup)


def _scale_down(target: str, stop: Stop, secrets: Secrets) -> None:
    while not stop.requested:
        try:
            is_there = scale_to_zero(target, os.environ, secrets)
            say(f"the job is over: {target} {'is scaled to 0' if is_there else 'does not exist'}")
            return
        except ApiError as problem:
            say(f"{target} is not scaled to 0: {problem}")
            if problem.final is ApiForbiddenError:
                return
            wait_for_any(RETRY_S, stop.wakeup)


def _become(command: Sequence[str]) -> None:
    sys.stdout.flush()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], list(command))
    except OSError as problem:
        raise _missing(command) from problem


def _missing(command: Sequence[str]) -> ConfigError:
    return ConfigError(f"there is no program {command[0]!r} on PATH that this user may run: install the package")


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
