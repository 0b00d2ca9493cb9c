#!/usr/bin/env python3
"""Launches one pod of a distributed training job: pserver and trainer, with the ids that all pods of the job agree on.

usage: start_paddle.py [--dry_run] [--help] [--FLAG=VALUE ...]
       start_paddle.py status [JOB] [--namespace=NAME] [--job_path=DIRECTORY]

What it does, in this order:
  1. reads and checks the environment (table below) and the flags; every problem is reported, then status 78 or 64
  2. asks the Kubernetes API for the pods of the job until exactly CONF_PADDLE_GRADIENT_NUM of them are Running
  3. gives every pod its trainer id: the completion index of an Indexed Job, else the place of its IP when sorted
  4. agrees with the other pods, through output/job.json, on an attempt: its number, its set of pods, and the newest
     checkpoint or pass that it goes on from (trainer 0 decides)
  5. starts `paddle pserver` (output/node_<id>/server.log; only trainer ids below CONF_PADDLE_PSERVER_NUM), and
     meanwhile copies this pod's shard, <JOB_PATH>/<JOB_NAME>/<id>/data, to ./data
  6. waits until every pserver of the job answers, then runs `paddle train` (output/node_<id>/train.log, and stdout)
  7. when a peer is lost or a program of its own fails, stops both programs and begins again at 2, in the same pod; what
     no retry mends (64, 65, 66, 77, 78) ends the pod at once, and so do RESTARTS attempts in vain
  8. ends with the trainer's exit status, once the pserver has seen all trainers leave
Meanwhile a thread answers the probes of the pod, where CONF_PADDLE_METRICS_PORT names its port: /healthz, which fails
when a program of the pod is stuck, and /readyz, which is true while its programs train.

Flags: --dry_run prints the plan (pods, ids, both command lines) and exits. Every other flag is handed to `paddle train`
(--flag, --k=v, --k v); where it names a flag that the launcher sets too, the passed one wins, for the pserver as well.

status prints how a job is: its pods with ids and nodes, attempt, pass, cost, slowest trainer, and how its attempts
ended. Inside a pod (kubectl exec POD -- /root/start_paddle.py status) it asks the API, elsewhere kubectl; progress is
read from the volume, DIRECTORY/JOB/output (default: JOB_PATH).

Environment:
{environment}

Exit status: 0 done. Not worth a retry: 64 wrong flag, 65 bad data, provider or config, 66 missing input, 77 forbidden
by the API, 78 bad environment or config, or a Job that has given up. Worth a retry, and retried in the same pod: 69
peer or API unreachable, 70 a bug of ours, 74 volume full or not writable, 75 lost peer, port in use, or a program
killed by a signal. 143 stopped by SIGTERM.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import email.utils
import errno
import functools
import hashlib
import http.client
import http.server
import itertools
import json
import math
import os
import random
import re
import selectors
import shlex
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import requests

JsonObject = dict[str, Any]
Answer = TypeVar("Answer")

CALLS_PER_SECOND = 200  # that all launchers of a job together may ask of the API server
HEADROOM = 1.6  # their calls come at random: on average so much fewer, so that the busiest second stays below too
PODS_PER_SECOND = 500  # in all answers to them together: a pod is 12 kB, and 0.1 to 0.4 ms of the API server's time
FEW = 16  # up to so many launchers each list all pods; of more only trainer 0 does
CALM_S = 60.0  # after which a wait in which nothing changes is slowed down
LONGEST_INTERVAL_S = 60.0  # between two lists
LOOKS_PER_SECOND = 1000  # that all launchers of a job together may take at job.json
REQUEST_TIMEOUT_S = 10.0  # to connect, and again to read
REPEAT_PERIOD_S = 30.0  # a wait says the same thing again after this long
PROBE_PERIOD_S = 10.0  # that pservers do not answer, before the set of pods is looked at again
LAST_LINES = 5  # of a program's log, in a message about its end
NEVER_RETRY = (64, 65, 66, 77, 78)  # fail the same way every time
NOTICE_S = 5.0  # for a trainer to find out by itself that its pserver has failed, and why
FAILED_STOP_S = 20.0  # at most, for a program of a failed attempt to end: it has nothing left to save
LONGEST_PAUSE_S = 60.0  # between two attempts without progress
WATCH_PERIOD_S = 3.0  # between two looks at the volume, while the trainer runs, for the end of the attempt elsewhere
END_PERIOD_S = 0.5  # between two looks at job.json for the end of the job
KEPT_ATTEMPTS = 100  # in job.json
ATTEMPT = ("name", "started", "origin")  # what each of them has
ASK_TIMEOUT_S = 1.0  # for a program to say how it is
JUDGED_S = 1.0  # so long the same answer is given to probes
MOST_CALLERS = 16  # of /healthz and /readyz at a time; one more, and the oldest goes
REPORT_LIMIT_S = 20.0  # for `paddle report`; it takes less than a second, but the volume may be the trouble
LAST_REPORT_LIMIT_S = 5.0  # the same where the pod's grace period runs
KUBECTL_LIMIT_S = 30.0  # for `kubectl get pods`
OVERDUE_S = 30.0  # that a pod may still be listed after its deletion was due, clocks being what they are
TABLE_ROWS = 20  # of the table of pods at a deadline, and pods named in a line
CGROUP = Path("/sys/fs/cgroup")  # where a container sees the kernel's accounts of itself
END_OF_TIME = 1e11  # seconds since the epoch, in the year 5138
NO_LIMIT = 1 << 60  # bytes; cgroup v1 says "none" by a number a little below 2^63
MEMORY_ADVICE = "raise resources.limits.memory in the Job, or choose smaller batches or a smaller pool_size"


# ----- Errors


class LaunchError(Exception):
    """The launch cannot go on. `exit_code` is from the table in the module's docstring."""

    exit_code = 70


class UsageError(LaunchError):
    """A flag is wrong."""

    exit_code = 64


class MissingInputError(LaunchError):
    """The config or the data of this trainer are not on the volume."""

    exit_code = 66


class UnreachableError(LaunchError):
    """The API server or the other pods did not get ready before the deadline."""

    exit_code = 69


class VolumeError(LaunchError):
    """The volume is full, read-only or not writable for this user."""

    exit_code = 74


class LostMountError(VolumeError):
    """This pod cannot reach the volume any more, however well that is."""


class LostPeerError(LaunchError):
    """A program or another pod of the job ended before the job did."""

    exit_code = 75


class ForbiddenError(LaunchError):
    """The API server refuses this service account."""

    exit_code = 77


class BadEnvironmentError(LaunchError):
    """The environment of the pod is incomplete or contradicts the cluster."""

    exit_code = 78


class GivenUpError(LaunchError):
    """This Job has had RESTARTS attempts in vain; ends the Job, which would replace pods for ever."""

    exit_code = 78


class StoppedError(LaunchError):
    """SIGTERM or SIGINT came before the training began."""

    exit_code = 143


def say(message: str) -> None:
    """Writes one line of the launcher's own log to stdout, where `kubectl logs` shows it."""
    stamp = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    with contextlib.suppress(OSError):  # a full disk or a reader that has gone
        print(f"{stamp} start_paddle: {printable(message)}", flush=True)


def printable(text: str) -> str:
    """Returns a text with escapes for what a terminal would obey or an encoding has not; lines stay lines."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode() for each in text
    )


# ----- Environment


@dataclasses.dataclass(frozen=True)
class Variable:
    """An environment variable: `default` None means required; `parse` raises ValueError with what is expected."""

    name: str
    default: str | None
    meaning: str
    parse: Callable[[str], Any] = str


def integer(low: int, high: int) -> Callable[[str], int]:
    """Returns a parser of whole numbers in [low, high]."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]+", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


def matching(pattern: str, expected: str) -> Callable[[str], str]:
    """Returns a parser of texts that match the pattern as a whole."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(expected)
        return text

    return parse


def seconds(text: str) -> float:
    """Parses a positive number of seconds."""
    value = float(text) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else 0.0
    if not 0 < value <= 1e6:
        raise ValueError("a number of seconds above 0, at most 1000000")
    return value


DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
VARIABLES = (
    Variable(
        "JOB_NAME",
        None,
        "name of the Job, and of its directory below JOB_PATH",
        matching(rf"{DNS_LABEL}(\.{DNS_LABEL})*", "the Job's metadata.name"),
    ),
    Variable("JOB_PATH", "/home/jobpath", "where the shared volume is mounted", matching(r"/.*", "an absolute path")),
    Variable("JOB_NAMESPACE", "the service account's", "namespace of the Job", matching(DNS_LABEL, "a namespace")),
    Variable(
        "CONF_PADDLE_NIC",
        None,
        "network interface (eth0) or address that the pserver binds",
        matching(r"\S+", "an interface's name or address"),
    ),
    Variable("CONF_PADDLE_PORT", None, "first port of the pserver", integer(1, 65535)),
    Variable("CONF_PADDLE_PORTS_NUM", None, "ports for dense parameters", integer(1, 1024)),
    Variable("CONF_PADDLE_PORTS_NUM_SPARSE", None, "ports for sparse parameters", integer(0, 1024)),
    Variable("CONF_PADDLE_GRADIENT_NUM", None, "number of trainers = pods of the job", integer(1, 100000)),
    Variable(
        "CONF_PADDLE_PSERVER_NUM",
        "CONF_PADDLE_GRADIENT_NUM",
        "pods that run a pserver beside their trainer: those with the lowest ids",
        integer(1, 100000),
    ),
    Variable("KUBERNETES_SERVICE_HOST", None, "API server; Kubernetes sets it", matching(r"\S+", "a host")),
    Variable("KUBERNETES_SERVICE_PORT_HTTPS", None, "its port; Kubernetes sets it", integer(1, 65535)),
    Variable(
        "POD_IP",
        "gethostbyname(gethostname())",
        "this pod's IP, by the downward API (status.podIP)",
        matching(r"[0-9]+(\.[0-9]+){3}", "an IPv4 address"),
    ),
    Variable("POD_NAME", "the host name", "this pod's name, by the downward API (metadata.name)"),
    Variable(
        "JOB_COMPLETION_INDEX",
        "",
        "this pod's completion index; Kubernetes sets it in an Indexed Job",
        matching("[0-9]*", "a whole number"),
    ),
    Variable(
        "SERVICE_ACCOUNT_DIR",
        "/var/run/secrets/kubernetes.io/serviceaccount",
        "where token, ca.crt and namespace are; without a token no Authorization header is sent",
    ),
    Variable("TRAIN_CONFIG_DIR", "", "config directory; output that another one has made is not continued"),
    Variable("START_TIMEOUT", "600", "seconds to wait for the pods, and then for their pservers", seconds),
    Variable("REJOIN_TIMEOUT", "3600", "seconds to wait for a full set of pods after one was lost", seconds),
    Variable("STOP_TIMEOUT", "20", "seconds that the trainer may take to save and end after SIGTERM", seconds),
    Variable("GOODBYE_TIMEOUT", "600", "seconds to wait for the other trainers to finish after our own did", seconds),
    Variable(
        "RESTARTS",
        "10",
        "further attempts after the first, in a row without a new checkpoint or pass",
        integer(0, 1000000),
    ),
    Variable("RESUME", "1", "0: never go on from an earlier Job's output, start afresh", integer(0, 1)),
    Variable(
        "CONF_PADDLE_METRICS_PORT",
        "0",
        "port of this pod's /healthz and /readyz; those of its pserver and trainer, with /metrics, follow; 0: none",
        integer(0, 65533),
    ),
    Variable("CONF_PADDLE_LOG_JSON", "0", "1: both programs log as JSON lines, too, beside their logs", integer(0, 1)),
    Variable(
        "PADDLE_STUCK_TIMEOUT",
        "1800",
        "seconds in one turn of a program's loop (a batch, a piece of data) after which /healthz calls it stuck",
        seconds,
    ),
    Variable("PADDLE_SECRET", "", "shared secret of the job's programs; wins over PADDLE_SECRET_FILE"),
    Variable("PADDLE_SECRET_FILE", "", "file with that secret (of a mounted Secret); absent: none, with a WARNING"),
)


def describe_environment() -> str:
    """Returns the table of variables for --help."""
    rows = []
    for variable in VARIABLES:
        default = "required" if variable.default is None else f"default: {variable.default or 'empty'}"
        rows.append(f"  {variable.name:<30} {variable.meaning} ({default})")
    return "\n".join(rows)


@dataclasses.dataclass(frozen=True)
class LauncherConfig:
    """What the environment says, checked. Field names are the variables' in lower case without CONF_PADDLE_."""

    job_name: str
    job_path: Path
    job_namespace: str
    nic: str
    port: int
    ports_num: int
    ports_num_sparse: int
    gradient_num: int
    pserver_num: int
    kubernetes_service_host: str
    kubernetes_service_port_https: int
    pod_ip: str
    pod_name: str
    job_completion_index: str
    service_account_dir: Path
    train_config_dir: str
    start_timeout: float
    rejoin_timeout: float
    stop_timeout: float
    goodbye_timeout: float
    restarts: int
    resume: bool
    metrics_port: int
    log_json: bool
    stuck_timeout: float
    secret: str = dataclasses.field(repr=False)
    secret_file: str

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> LauncherConfig:
        """Reads every variable of VARIABLES.

        Raises: BadEnvironmentError with all problems, one a line.
        """
        account = Path(environ.get("SERVICE_ACCOUNT_DIR") or "/var/run/secrets/kubernetes.io/serviceaccount")
        defaults = {variable.name: variable.default for variable in VARIABLES}
        defaults["JOB_NAMESPACE"] = read_text(account / "namespace")
        defaults["POD_NAME"] = socket.gethostname()
        defaults["CONF_PADDLE_PSERVER_NUM"] = "1"  # until CONF_PADDLE_GRADIENT_NUM is known
        if not environ.get("POD_IP"):
            defaults["POD_IP"] = own_address()
        values: dict[str, Any] = {}
        problems = []
        for variable in VARIABLES:
            try:
                text = environ.get(variable.name) or defaults[variable.name]
                values[variable.name.removeprefix("CONF_PADDLE_").lower()] = parse_variable(variable, text)
            except ValueError as problem:
                problems.append(str(problem))
        if not environ.get("CONF_PADDLE_PSERVER_NUM"):
            values["pserver_num"] = values.get("gradient_num", 1)
        if not problems and values["pserver_num"] > values["gradient_num"]:
            pods = f"CONF_PADDLE_GRADIENT_NUM = {values['gradient_num']} pods"
            problems.append(f"CONF_PADDLE_PSERVER_NUM is {values['pserver_num']}, but there are only {pods}; lower it")
        if not problems and values["port"] + values["ports_num"] + values["ports_num_sparse"] - 1 > 65535:
            count = f"{values['ports_num']} dense and {values['ports_num_sparse']} sparse ports"
            problems.append(f"CONF_PADDLE_PORT is {values['port']}: with {count} it runs past 65535; lower it")
        if not problems:
            problems += find_overlap(values)
        if problems:
            listed = "\n".join(f"  {problem}" for problem in problems)
            raise BadEnvironmentError(f"the environment of this pod is not right (--help has the table):\n{listed}")
        values.update(
            job_path=Path(values["job_path"]),
            service_account_dir=account,
            resume=bool(values["resume"]),
            log_json=bool(values["log_json"]),
            stuck_timeout=values.pop("paddle_stuck_timeout"),
            secret=values.pop("paddle_secret"),
            secret_file=values.pop("paddle_secret_file"),
        )
        return cls(**values)

    @property
    def job_dir(self) -> Path:
        """<JOB_PATH>/<JOB_NAME>: shards, config and output of the job."""
        return self.job_path / self.job_name

    @property
    def output(self) -> Path:
        """Where logs, parameters and job.json go; every pod of the job sees the same directory."""
        return self.job_dir / "output"

    def runs_pserver(self, trainer_id: int) -> bool:
        """Tells whether the pod with this trainer id has a pserver."""
        return trainer_id < self.pserver_num


def find_overlap(values: Mapping[str, Any]) -> list[str]:
    """Returns a sentence if the ports of /healthz are also the pserver's."""
    watching, first = values["metrics_port"], values["port"]
    last = first + values["ports_num"] + values["ports_num_sparse"] - 1
    if not watching or watching + 2 < first or watching > last:
        return []
    theirs = f"the pserver has ports {first} to {last}"
    return [f"CONF_PADDLE_METRICS_PORT is {watching}: it and the two ports behind it must be free, but {theirs}"]


def parse_variable(variable: Variable, text: str | None) -> Any:
    """Returns the value, or raises ValueError with a sentence that names variable, value and what is expected."""
    if text is None:
        raise ValueError(f"{variable.name} is not set: {variable.meaning}")
    try:
        if text == "None":
            raise ValueError("a value; 'None' is what an unset variable looks like after str()")
        return variable.parse(text)
    except ValueError as expected:
        raise ValueError(f"{variable.name} is {text!r}, expected {expected}: {variable.meaning}") from None


def own_address() -> str:
    """Returns this host's address the tutorial's way."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "0.0.0.0"  # in no pod list, so the message about POD_IP follows


def read_text(path: Path) -> str | None:
    """Returns the stripped text of a file of the service account, or None where there is none.

    Raises: BadEnvironmentError: it is there, but cannot be read.
    """
    try:
        return path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as problem:
        raise BadEnvironmentError(f"uid {os.getuid()} cannot read {path} of its service account: {problem}") from None


def warn_of_strangers(config: LauncherConfig) -> None:
    """Says so when the programs of this pod will have no secret; they read its file themselves."""
    if config.secret or (config.secret_file and Path(config.secret_file).is_file()):
        return
    absent = f"no file {config.secret_file}" if config.secret_file else "no PADDLE_SECRET_FILE"
    last = config.port + config.ports_num + config.ports_num_sparse - 1
    say(
        f"WARNING: no secret ({absent}): anyone who reaches ports {config.port} to {last} of this pod can take part in "
        "the training. Before the next Job: kubectl create secret generic paddle-secret "
        '--from-literal=secret="$(openssl rand -hex 32)" (docs/security.md)'
    )


# ----- Flags


def refine_unknown_args(cmd_args: Sequence[str]) -> list[str]:
    """Splits command line arguments into name, value, name, value, ...

    `--k=v` and `--k v` give k, v (blanks in v stay); `--flag` gives flag, "true". A later flag of the same name wins.
    Raises: UsageError: an argument is neither a flag nor the value of one.
    Source: the tutorial's function, which let `--flag` shift all later pairs and cut values at blanks (S22).
    """
    refined: list[str] = []
    remaining = list(cmd_args)
    while remaining:
        argument = remaining.pop(0)
        match = re.fullmatch(r"--?([A-Za-z_][A-Za-z0-9_]*)(?:=(.*))?", argument, re.DOTALL)
        if not match:
            raise UsageError(f"argument {argument!r} is neither a flag (--flag, --k=v, --k v) nor the value of one")
        name, value = match.groups()
        if value is None:
            has_value = bool(remaining) and not re.match(r"--?[A-Za-z_]", remaining[0])
            value = remaining.pop(0) if has_value else "true"
        refined += [name, value]
    return refined


def whole_number(arguments: Mapping[str, str], name: str, default: int, low: int) -> int:
    """Returns a flag's value as int; raises UsageError when it is none or below `low`."""
    text = arguments.get(name, str(default))
    if not re.fullmatch(r"-?[0-9]+", text) or int(text) < low:
        raise UsageError(f"--{name}={text}: expected a whole number of at least {low}")
    return int(text)


def merge_flags(ours: Mapping[str, str], passed: Mapping[str, str], last: Mapping[str, str]) -> list[str]:
    """Returns `--k=v` arguments: ours, the passed ones, the last; every name once, and the passed value wins."""
    merged = {**ours, **passed}
    merged.update({name: value for name, value in last.items() if name not in passed})
    return [f"--{name}={value}" for name, value in merged.items()]


def watching_flags(config: LauncherConfig, trainer_id: int, place: int, log: str) -> dict[str, str]:
    """Returns the flags by which a program is watched: the port after the pod's own of this place, its JSON log."""
    flags = {"metrics_port": str(config.metrics_port + place)} if config.metrics_port else {}
    return flags | ({"log_json": str(config.output / f"node_{trainer_id}" / log)} if config.log_json else {})


def build_pserver_argv(config: LauncherConfig, trainer_id: int, passed: Mapping[str, str]) -> list[str]:
    """Returns the pserver's command line (the tutorial's, but as a list, so that no shell reads it)."""
    flags = {
        "port": str(config.port),
        "ports_num": str(config.ports_num),
        "ports_num_for_sparse": str(config.ports_num_sparse),
        "nics": config.nic,
        "comment": "paddle_process_by_paddle",
        "num_gradient_servers": str(config.gradient_num),
    }
    watching = watching_flags(config, trainer_id, 1, "server.jsonl")  # passed ones of these are the trainer's
    named = {name: passed[name] for name in flags if name in passed}
    return ["paddle", "pserver", *merge_flags(flags, named, {}), *merge_flags(watching, {}, {})]


def build_trainer_argv(
    config: LauncherConfig, ids: Mapping[str, int], trainer_id: int, passed: Mapping[str, str]
) -> list[str]:
    """Returns the trainer's command line: the tutorial's, with the pservers in id order (S7) and N (S25)."""
    flags = {
        "nics": config.nic,
        "port": str(config.port),
        "ports_num": str(config.ports_num),
        "comment": "paddle_process_by_paddle",
        "pservers": ",".join(in_id_order(ids)[: config.pserver_num]),
    }
    last = {
        "num_gradient_servers": str(config.gradient_num),
        "trainer_id": str(trainer_id),
        "save_dir": str(config.output),
        **watching_flags(config, trainer_id, 2, "train.jsonl"),
    }
    return ["paddle", "train", *merge_flags(flags, passed, last)]


def in_id_order(ids: Mapping[str, int]) -> list[str]:
    """Returns the IPs by trainer id: the order of the pservers, on which the placement of all blocks rests."""
    return sorted(ids, key=lambda ip: ids[ip])


def is_local(passed: Mapping[str, str]) -> bool:
    """Tells whether --local is on: every trainer trains by itself, and nobody needs the others."""
    return passed.get("local", "0").lower() in ("1", "t", "true", "y", "yes")


def build_probe_argv(pserver: Sequence[str], trainer: Sequence[str]) -> list[str]:
    """Returns the command that waits for every pserver: ports of the pserver's command line, hosts of the trainer's."""
    ports = [flag for flag in pserver if re.match(r"--(port|ports_num|ports_num_for_sparse)=", flag)]
    hosts = [flag for flag in trainer if flag.startswith("--pservers=")]
    return ["paddle", "pserver", "--probe", *hosts, *ports]


# ----- Pods


@dataclasses.dataclass(frozen=True)
class Pod:
    """What the launcher reads of a Pod object; absent fields are empty."""

    name: str
    uid: str
    ip: str
    phase: str
    terminating: bool
    index: int | None  # completion index of an Indexed Job
    controller_uid: str
    why: str  # reason and message of what keeps it from running
    node: str = ""
    due: float = math.inf  # epoch seconds; a terminating pod is to be gone by then
    is_silent: bool = False  # its node has stopped reporting: nobody knows whether it still runs

    @classmethod
    def parse(cls, item: JsonObject) -> Pod:
        """Reads a Pod object of the API; tolerates missing parts."""
        metadata, status = item.get("metadata") or {}, item.get("status") or {}
        labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
        key = "batch.kubernetes.io/job-completion-index"
        index = labels.get(key, notes.get(key))
        owners = [owner.get("uid", "") for owner in metadata.get("ownerReferences") or [] if owner.get("controller")]
        controller = labels.get("batch.kubernetes.io/controller-uid") or labels.get("controller-uid")
        return cls(
            name=metadata.get("name", ""),
            uid=metadata.get("uid", ""),
            ip=status.get("podIP") or "",
            phase=status.get("phase") or "Unknown",
            terminating=bool(metadata.get("deletionTimestamp")),
            index=int(index) if index is not None and index.isdecimal() else None,
            controller_uid=controller or (owners[0] if owners else ""),
            why=explain_status(status, item.get("spec") or {}),
            node=(item.get("spec") or {}).get("nodeName") or "",
            due=parse_time(metadata.get("deletionTimestamp")),
            is_silent=has_silent_node(status),
        )

    @property
    def is_live(self) -> bool:
        """Running, staying, and reachable: the only pods that count."""
        return self.phase == "Running" and not self.terminating and bool(self.ip) and not self.is_silent

    @property
    def is_expected(self) -> bool:
        """Live, or on the way there."""
        return self.phase in ("Pending", "Running", "Unknown") and not self.terminating

    @property
    def state(self) -> str:
        """Phase, what is wrong, and what a person can do about a node that does not report."""
        state = "Terminating" if self.terminating else self.phase
        if self.phase == "Running" and not self.ip:
            state += ", no IP yet"
        if self.terminating and (self.is_silent or time.time() > self.due + OVERDUE_S):
            return (
                f"{state}, but its node {self.node} does not report, so that the pod stays and the Job makes no other: "
                f"start the node again or, if it is off and stays off, kubectl taint node {self.node} "
                "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
            )
        if self.is_silent:
            return f"{state}, but its node {self.node} does not report: waiting for it, or for the pod to be given up"
        return state + (f", {self.why}" if self.why else "")

    @property
    def place(self) -> str:
        """Name, and node once it has one."""
        return (self.name or self.ip or "a pod") + (f" on {self.node}" if self.node else "")

    def __str__(self) -> str:
        return f"{self.place}: {self.state}"


def has_silent_node(status: JsonObject) -> bool:
    """Tells whether a pod's node has stopped reporting.

    The control plane then sets the condition Ready to False, and that alone; a kubelet that finds containers not ready
    sets ContainersReady as well.
    Source: MarkPodsNotReady of the node lifecycle controller.
    """
    conditions = {one.get("type"): one for one in status.get("conditions") or []}
    ready, containers = conditions.get("Ready") or {}, conditions.get("ContainersReady") or {}
    if status.get("phase") != "Running" or ready.get("reason") == "ReadinessGatesNotReady":
        return False
    return ready.get("status") == "False" and containers.get("status") == "True"


def parse_time(text: str | None) -> float:
    """Returns the epoch seconds of a time of the API, infinity without one."""
    try:
        return datetime.datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return math.inf


def explain_status(status: JsonObject, spec: JsonObject) -> str:
    """Returns `Reason: message` of what a pod waits for or ended with, the most specific that its status has."""
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        for state in ("waiting", "terminated"):
            found = (container.get("state") or {}).get(state)
            if found and found.get("reason") not in (None, "ContainerCreating", "PodInitializing", "Completed"):
                code = f" (exit code {found['exitCode']})" if found.get("exitCode") else ""
                message = found.get("message")
                if found["reason"] == "OOMKilled":
                    message = describe_memory_limit(spec, container.get("name"))
                return join_reason(f"{found['reason']}{code}", message)
    for condition in status.get("conditions") or []:
        if condition.get("status") == "False" and condition.get("type") == "PodScheduled":
            return join_reason(condition.get("reason") or "Unschedulable", condition.get("message"))
    return join_reason(status.get("reason"), status.get("message"))


def describe_memory_limit(spec: JsonObject, name: str | None) -> str:
    """Says what a container that ended as OOMKilled was allowed, by the pod's spec, and what to do."""
    limits = [
        ((container.get("resources") or {}).get("limits") or {}).get("memory")
        for container in spec.get("containers") or []
        if container.get("name") == name
    ]
    if not limits or not limits[0]:
        return "it has no memory limit, so its node ran out: set resources.limits.memory, or choose a larger node"
    return f"it needed more memory than its limit, {limits[0]}: {MEMORY_ADVICE}"


def join_reason(reason: str | None, message: str | None) -> str:
    """Returns `reason: message` on one line, without the part that is missing."""
    return " ".join(": ".join(part for part in (reason, message) if part).split())


def parse_pods(podlist: JsonObject) -> list[Pod]:
    """Returns the pods of an API answer."""
    return [Pod.parse(item) for item in podlist.get("items") or []]


def select_own_job(pods: Sequence[Pod], own_ip: str, own_name: str) -> tuple[list[Pod], str]:
    """Returns the pods that have this pod's controller, and that controller's uid ("" when this pod is not listed).

    Pods of an earlier Job of the same name, and strangers with the same label, have another controller.
    """
    own = find_own(pods, own_ip, own_name)
    if own is None or not own.controller_uid:
        return list(pods), ""
    return [pod for pod in pods if pod.controller_uid == own.controller_uid], own.controller_uid


def find_own(pods: Sequence[Pod], own_ip: str, own_name: str) -> Pod | None:
    """Returns this pod: the one of this name, else the one that has this address and has not ended."""
    named = [pod for pod in pods if pod.name == own_name]
    return next(iter(named or [pod for pod in pods if pod.ip == own_ip and pod.is_expected]), None)


def why_not_ready(pods: Sequence[Pod], expected: int, command: str = "") -> str:
    """Returns "" when exactly `expected` pods are live and tell apart, else what is missing, pod by pod.

    Args: command: shows why the Job does not make the pods that do not exist.
    """
    live = [pod for pod in pods if pod.is_live]
    coming = [pod.name or pod.ip for pod in pods if pod.is_expected]
    if len(coming) > expected:
        return (
            f"{len(coming)} pods exist ({list_some(coming, ', ')}) but CONF_PADDLE_GRADIENT_NUM is {expected}: "
            "make it equal to the Job's parallelism and completions"
        )
    if len(live) != expected:
        others = [str(pod) for pod in pods if not pod.is_live]
        shown = f"; {list_some(others, '; ')}" if others else ""
        there = len(coming) + sum(pod.terminating for pod in pods)
        reason = f" ({command} says why the Job makes no other)" if command else ""
        absent = f"; {there} of {expected} pods exist{reason}" if there < expected else ""
        return f"{len(live)} of {expected} Running{shown}{absent}"
    indexes = [str(pod.index) for pod in live if pod.index is not None]
    for kind, keys in (("IP", [pod.ip for pod in live]), ("completion index", indexes)):
        doubled = sorted({key for key in keys if keys.count(key) > 1})
        if doubled:
            names = list_some([pod.name for pod in live], ", ")
            return f"{expected} of {expected} Running, but two of {names} have the {kind} {', '.join(doubled)}"
    beyond = [pod.name for pod in live if pod.index is not None and pod.index >= expected]
    if beyond:
        return f"{', '.join(beyond)}: completion index beyond CONF_PADDLE_GRADIENT_NUM = {expected}"
    return ""


def list_some(texts: Sequence[str], separator: str) -> str:
    """Joins texts, of many only the first ones."""
    more = [f"and {len(texts) - TABLE_ROWS} more"] if len(texts) > TABLE_ROWS else []
    return separator.join([*texts[:TABLE_ROWS], *more])


def table_of_pods(pods: Sequence[Pod], expected: int) -> str:
    """Returns a line for each pod (trainer id, pod, node, state), of many pods for those that do not count."""
    rows = [(pod.index, pod.place, pod.state) for pod in pods if len(pods) <= TABLE_ROWS or not pod.is_live]
    if any(pod.index is not None for pod in pods):
        rows += [(index, "no pod", "") for index in range(expected) if index not in {pod.index for pod in pods}]
    rows.sort(key=lambda row: (row[0] is None, row[0] or 0))
    left_out = [f"  ... and {len(rows) - TABLE_ROWS} more"] if len(rows) > TABLE_ROWS else []
    width = max((len(place) for _, place, _ in rows), default=0)
    lines = [f"  {'-' if index is None else index:>5}  {place:<{width}}  {state}" for index, place, state in rows]
    return "\n".join([f"  trainer id, pod and node, state of {len(pods)} pods:", *lines[:TABLE_ROWS], *left_out])


class IdMap(dict[str, int]):
    """{ip: trainer id}, and which pods of which Job it was made of. `places`: {ip: the pod and its node}."""

    def __init__(
        self,
        ids: Iterable[tuple[str, int]] = (),
        *,
        pod_uids: Iterable[str] = (),
        job_uid: str = "",
        places: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(ids)
        self.pod_uids = sorted(pod_uids)
        self.job_uid = job_uid
        self.places = places or {}

    def describe_peers(self, message: str, own_ip: str) -> list[str]:
        """Says who is who of the peers whose address is in a program's message."""
        named = [ip for ip in in_id_order(self) if ip != own_ip and re.search(rf"\b{re.escape(ip)}\b", message)]
        return [f"trainer {self[ip]} at {ip} is pod {self.places[ip]}" for ip in named if ip in self.places]


def getIdMap(podlist: JsonObject) -> IdMap:
    """Returns {ip: trainer id} of the live pods: by completion index where all have one, else by sorted IP strings.

    Source: the tutorial sorted the IPs of all pods, so a replaced pod shifted the ids of all others (S6, S9).
    """
    pods = [pod for pod in parse_pods(podlist) if pod.is_live]
    if pods and all(pod.index is not None for pod in pods):
        ids = [(pod.ip, pod.index or 0) for pod in pods]
    else:
        ids = [(ip, number) for number, ip in enumerate(sorted(pod.ip for pod in pods))]
    uids = {pod.controller_uid for pod in pods}
    return IdMap(
        ids,
        pod_uids=[pod.uid or pod.ip for pod in pods],
        job_uid=uids.pop() if len(uids) == 1 else "",
        places={pod.ip: pod.place for pod in pods},
    )


def isPodAllRunning(podlist: JsonObject) -> bool:
    """Tells whether exactly CONF_PADDLE_GRADIENT_NUM pods are Running, staying and distinct.

    Raises: BadEnvironmentError: the variable is missing or no number.
    Source: the tutorial compared the list with itself, so that zero of zero pods were "all running" (S1-S4).
    """
    variable = next(variable for variable in VARIABLES if variable.name == "CONF_PADDLE_GRADIENT_NUM")
    try:
        expected = parse_variable(variable, os.environ.get(variable.name))
    except ValueError as problem:
        raise BadEnvironmentError(str(problem)) from None
    return not why_not_ready(parse_pods(podlist), expected)


# ----- Kubernetes API


class ApiError(Exception):
    """A request, or what is done about its answer, failed.

    `fatal` says whether it ends the wait at once; `final` is what it becomes then, or at the deadline.
    """

    def __init__(
        self,
        message: str,
        *,
        final: type[LaunchError] = UnreachableError,
        fatal: bool = False,
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.final = final
        self.fatal = fatal
        self.retry_after_s = retry_after_s


class PodApi:
    """The pods of one job, from the Kubernetes API, with the pod's service account."""

    def __init__(self, config: LauncherConfig, *, indexes: Sequence[int] = (), askers: int | None = None) -> None:
        """Args: indexes: completion indexes of the pods to list, none: all. askers: launchers that list as many."""
        host = config.kubernetes_service_host
        host = f"[{host}]" if ":" in host else host
        self.url = (
            f"https://{host}:{config.kubernetes_service_port_https}/api/v1/namespaces/{config.job_namespace}/pods"
        )
        self.selector = f"job-name={config.job_name}"
        self.namespace = config.job_namespace
        self.account = config.service_account_dir
        self.page = max(500, 2 * config.gradient_num)
        self.indexes = sorted({*indexes})
        self.own = config.pod_ip, config.pod_name
        self.askers = askers or config.gradient_num
        self.listed = len(self.indexes) or config.gradient_num  # pods in the last answer
        self.timeout_s = min(REQUEST_TIMEOUT_S, config.start_timeout)
        self.session = requests.Session()
        self.session.trust_env = False  # a proxy or CA bundle of the environment is never meant for the API server

    @classmethod
    def for_role(cls, config: LauncherConfig) -> PodApi:
        """Returns one for what this pod has to know to take part.

        Few launchers list all pods, each for itself. Of many only trainer 0 does, and what it finds comes to the others
        by job.json: N lists of N pods would be 12 GB for 1000. The others ask for its pod and their own. Without
        completion indexes nobody knows who trainer 0 is before all are there, so all list all.
        """
        if config.gradient_num <= FEW or not config.job_completion_index:
            return cls(config)
        own = int(config.job_completion_index)
        return cls(config, indexes=(0, own)) if own else cls(config, askers=1)

    def list_pods(self) -> JsonObject:
        """Returns the PodList of the job, all pages of it; with indexes the pods that have them.

        Where this pod is not among those (before Kubernetes 1.28 the index was no label), all pods are asked for.
        Raises: ApiError.
        """
        found = self._list_indexes() if self.indexes else []
        if not find_own(parse_pods({"items": found}), *self.own):
            found = self._list_all()
        self.listed = len(found)
        return {"kind": "PodList", "items": found}

    def _list_indexes(self) -> list[JsonObject]:
        """Returns these pods as the API server has them in memory: 100 times cheaper for it than asking etcd.

        What it remembers may be old; a pod's uid and controller are not, and a phase is only told to people.
        """
        numbers = ",".join(map(str, self.indexes))
        selector = f"{self.selector},batch.kubernetes.io/job-completion-index in ({numbers})"
        return list(self._get({"labelSelector": selector, "resourceVersion": "0"})["items"] or [])

    def _list_all(self) -> list[JsonObject]:
        """Returns all pods of the job as they are now."""
        items: list[JsonObject] = []
        token = None
        while True:
            query = {"labelSelector": self.selector, "limit": str(self.page)}
            page = self._get({**query, "continue": token} if token else query)
            items += page["items"] or []
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return items

    def interval(self, unchanged_s: float) -> float:
        """Returns seconds between two lists of a launcher, by what the last answer cost, so that all stay modest."""
        return poll_interval(self.askers, self.listed, unchanged_s)

    def _get(self, query: dict[str, str]) -> JsonObject:
        response = self._send(query)
        if response.status_code == 401:  # the token may have been rotated between reading and sending it
            response = self._send(query)
        if response.status_code != 200:
            raise self._refusal(response)
        try:
            body = response.json()
            if not isinstance(body.get("items"), (list, type(None))) or "items" not in body:
                raise ValueError("no items in it")
            parse_pods(body)
            return dict(body)
        except (ValueError, AttributeError, TypeError) as problem:
            shown = " ".join(response.text[:60].split())
            raise ApiError(f"{self.url} answered something that is no pod list ({problem}): {shown!r}") from None

    def _send(self, query: dict[str, str]) -> requests.Response:
        token = read_text(self.account / "token")
        authority = self.account / "ca.crt"
        headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        HEALTH.asking_since = HEALTH.clock()
        try:
            return self.session.get(
                self.url,
                params=query,
                headers=headers,
                timeout=self.timeout_s,
                verify=str(authority) if authority.exists() else True,
                allow_redirects=False,
            )
        except requests.RequestException as problem:
            raise ApiError(f"the API server does not answer at {self.url}: {describe_failure(problem)}") from problem
        except OSError as problem:  # an unreadable CA file, for one
            raise ApiError(f"no request to {self.url}: {problem}", final=BadEnvironmentError, fatal=True) from problem
        finally:
            HEALTH.asking_since = math.inf

    def _refusal(self, response: requests.Response) -> ApiError:
        try:
            reason = str(response.json()["message"])
        except (ValueError, KeyError, TypeError):
            reason = " ".join(response.text[:120].split()) or "empty answer"
        answer = f"the API server answered {response.status_code}: {reason}"
        if response.status_code == 403:
            advice = (
                f"This pod's service account lacks the verb `list` on pods in namespace {self.namespace}: "
                "kubectl create -f k8s/rbac.yaml, and name its ServiceAccount in the Job"
            )
            return ApiError(f"{answer}. {advice}", final=ForbiddenError)
        if response.status_code == 401:
            advice = f"The token in {self.account} is not accepted, nor was a fresh one"
            return ApiError(f"{answer}. {advice}", final=ForbiddenError)
        if response.status_code == 410:
            return ApiError(f"{answer}. The list changed while it was read")
        if response.status_code == 429 or response.status_code >= 500:
            return ApiError(answer, retry_after_s=parse_retry_after(response.headers.get("Retry-After")))
        return ApiError(
            f"{answer}. Check JOB_NAMESPACE={self.namespace} and the address {self.url}",
            final=BadEnvironmentError,
            fatal=True,
        )


def describe_failure(problem: requests.RequestException) -> str:
    """Returns the innermost cause of a failed request, which says more than its wrappers."""
    cause: BaseException = problem
    while True:
        inner = getattr(cause, "reason", None) or cause.__cause__ or cause.__context__
        if not isinstance(inner, BaseException):
            return f"{type(cause).__name__}: {cause}"
        cause = inner


def parse_retry_after(value: str | None) -> float:
    """Returns the seconds that a Retry-After header asks for (number or date), 0 for none or nonsense."""
    if value and re.fullmatch(r"[0-9]+", value.strip()):
        return float(value)
    try:
        when = email.utils.parsedate_to_datetime(value or "")
        return max(0.0, when.timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0


def poll_interval(askers: int, listed: int, unchanged_s: float) -> float:
    """Returns seconds between two lists of `listed` pods, so that so many launchers stay modest together.

    That is below CALLS_PER_SECOND and, unless it takes too long, PODS_PER_SECOND; a fifth of it when nothing has
    changed for a while.
    """
    least = HEADROOM * askers / CALLS_PER_SECOND
    wanted = max(0.2, least, askers * listed / PODS_PER_SECOND) * (1.0 if unchanged_s < CALM_S else 5.0)
    return max(least, min(LONGEST_INTERVAL_S, wanted))


@dataclasses.dataclass
class Waiting:
    """How a wait passes its time; tests put their own clock here. Its timeout may grow while it is waited."""

    timeout_s: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    rng: random.Random = dataclasses.field(default_factory=random.Random)
    say: Callable[[str], None] = say
    limit: str = "START_TIMEOUT"  # the variable that sets the timeout


def wait_for_pods(
    api: PodApi,
    decide: Callable[[JsonObject], Answer | str],
    waiting: Waiting,
    look: Callable[[], Answer | None] | None = None,
) -> Answer:
    """Lists the job's pods until `decide` has an answer, and returns it.

    Args: decide: gets a pod list; returns the answer, or a text that says what it still waits for.
        look: asked between two lists, and more often than the API server; returns an answer that came in another way.
    Raises: LaunchError by the last obstacle at the deadline: ForbiddenError, UnreachableError, ...
    """
    now = waiting.clock()
    began, said, said_at, changed_at, failures = now, "", now, now, 0
    final: type[LaunchError] = UnreachableError
    # N launchers start together; spread over their interval they never ask all at once
    waiting.sleep(waiting.rng.uniform(0.0, min(1.15 * HEADROOM * api.askers / CALLS_PER_SECOND, waiting.timeout_s)))
    while True:
        backoff = 0.0
        try:
            answer = decide(api.list_pods())
            if not isinstance(answer, str):
                return answer
            obstacle, failures, final = answer, 0, UnreachableError
        except ApiError as error:
            obstacle, final = str(error), error.final
            if error.fatal:
                raise final(obstacle) from error
            failures += 1
            backoff = max(min(15.0, 0.25 * 2.0**failures), error.retry_after_s)
        now, deadline = waiting.clock(), began + waiting.timeout_s
        if obstacle != said:
            changed_at = now
        if obstacle != said or now - said_at >= REPEAT_PERIOD_S:
            waiting.say(f"waiting: {obstacle}")
            said, said_at = obstacle, now
        if now >= deadline:
            raise final(f"gave up after {waiting.timeout_s:g} s ({waiting.limit}): {obstacle}")
        pause = max(api.interval(now - changed_at), backoff) * waiting.rng.uniform(1.0, 1.3)
        end = now + min(pause, max(deadline - now, 0.01))
        while look and waiting.clock() < end:
            found = look()
            if found is not None:
                return found
            waiting.sleep(min(max(0.05, api.askers / LOOKS_PER_SECOND), max(end - waiting.clock(), 0.001)))
        if not look:
            waiting.sleep(end - now)


def getPodList() -> JsonObject:
    """Returns the PodList of the job that the environment names; retries what may pass, until START_TIMEOUT.

    Raises: LaunchError.
    """
    config = LauncherConfig.from_env(os.environ)
    return wait_for_pods(PodApi(config), lambda podlist: podlist, Waiting(config.start_timeout))


def own_trainer_id(config: LauncherConfig, ids: Mapping[str, int]) -> int:
    """Returns this pod's trainer id.

    Raises: BadEnvironmentError: this pod's address is none of the job's (S8).
    """
    if config.pod_ip not in ids:
        raise BadEnvironmentError(
            f"this pod's address {config.pod_ip} is not among the job's pods {', '.join(sorted(ids))}: "
            "set POD_IP by the downward API (fieldRef status.podIP)"
        )
    return ids[config.pod_ip]


def complete_set(config: LauncherConfig, podlist: JsonObject) -> IdMap | str:
    """Returns the ids of the full set of pods, or what is still missing.

    Raises: BadEnvironmentError: the set is full and this pod is not in it.
    """
    pods, _ = select_own_job(parse_pods(podlist), config.pod_ip, config.pod_name)
    if any(pod.name == config.pod_name and pod.terminating for pod in pods):
        return f"this pod, {config.pod_name}, is being stopped"
    command = f"kubectl --namespace={config.job_namespace} describe job/{config.job_name}"
    obstacle = why_not_ready(pods, config.gradient_num, command)
    if obstacle:
        return obstacle
    uids = {pod.uid for pod in pods}
    own = [item for item in podlist["items"] if (item.get("metadata") or {}).get("uid", "") in uids]
    ids = getIdMap({"items": own})
    own_trainer_id(config, ids)
    return ids


def is_whole(api: PodApi, ids: IdMap) -> bool:
    """Tells whether every pod of the set is still live, as far as the API server says.

    Where only trainer 0 lists all pods, the others leave that to it: they hear of its next attempt.
    """
    if api.indexes:
        return True
    try:
        live = {pod.uid or pod.ip for pod in parse_pods(api.list_pods()) if pod.is_live}
    except ApiError:
        return True
    return live.issuperset(ids.pod_uids)


# ----- The job's record on the volume


def on_volume(action: Callable[[], Answer]) -> Answer:
    """Runs a file operation on the shared volume; ESTALE, which NFS answers after a rename elsewhere, is retried."""
    for _ in range(9):
        try:
            return action()
        except OSError as problem:
            if problem.errno != errno.ESTALE:
                raise
    return action()


def write_atomically(path: Path, text: str) -> None:
    """Replaces a file so that readers see the old or the new text, also after a power cut."""
    staging = path.with_name(f".{path.name}.{os.getpid()}.{socket.gethostname()}")
    try:
        with staging.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@dataclasses.dataclass(frozen=True)
class JobRecord:
    """output/job.json: whose output this is, which set of pods is writing it, and how the attempts before went."""

    job_uid: str  # of the Job that wrote last
    passes: int  # wanted by it: the number of the last one, plus 1
    finished: bool
    attempt: int  # counts from 1; the logs of earlier ones keep their number as suffix
    pod_uids: list[str]  # the set of pods of this attempt
    start_pass: int  # the first pass of this attempt, where it goes on from a pass directory; else 0
    config: str = ""  # TRAIN_CONFIG_DIR that the parameters belong to
    checkpoint: str = ""  # name of the state directory that this attempt goes on from; else ""
    # who keeps the state: a checkpoint can be continued by the same numbers only
    gradient_num: int = 0
    pserver_num: int = 0
    ports_num: int = 0
    ports_num_sparse: int = 0
    fruitless: int = 0  # attempts in a row, just before this one, that left no newer checkpoint or pass
    attempts: list[JsonObject] = dataclasses.field(default_factory=list)  # of this Job: name, started, origin
    given_up: bool = False  # `fruitless` is above RESTARTS: nobody begins another attempt
    pods: list[JsonObject] = dataclasses.field(default_factory=list)  # by trainer id: ip, place (name and node)

    @property
    def name(self) -> str:
        """The attempt as the programs know it: its number and its set of pods."""
        pods = " ".join(self.pod_uids).encode("utf-8", "backslashreplace")
        return f"{self.attempt}.{hashlib.sha256(pods).hexdigest()[:8]}"

    @property
    def origin(self) -> str:
        """Name of the state or pass directory that this attempt goes on from; "" from the beginning."""
        return self.checkpoint or (pass_name(self.start_pass - 1) if self.start_pass else "")

    @property
    def layout(self) -> str:
        """The numbers of programs that share the trainers' and pservers' state."""
        ports = f"{self.ports_num}+{self.ports_num_sparse} ports"
        return f"{self.gradient_num} trainers and {self.pserver_num} pservers of {ports}"

    @property
    def ids(self) -> IdMap:
        """The set of pods of this attempt, as trainer 0 found it."""
        places = {str(pod.get("ip")): str(pod.get("place")) for pod in self.pods}
        ids = ((ip, number) for number, ip in enumerate(places))
        return IdMap(ids, pod_uids=self.pod_uids, job_uid=self.job_uid, places=places)


def read_record(output: Path) -> JobRecord | None:
    """Returns what output/job.json says, None where there is none or it is not ours."""
    try:
        return parse_record(on_volume(lambda: (output / "job.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


@functools.lru_cache(maxsize=1)  # it is looked at far more often than it is written, and names every pod
def parse_record(text: str) -> JobRecord | None:
    """Returns the record that a text is, None when it is none."""
    try:
        record = JobRecord(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
    kinds = {"str": str, "int": int, "bool": bool, "list[str]": list, "list[JsonObject]": list}
    fields = dataclasses.fields(record)
    if not all(isinstance(getattr(record, one.name), kinds[str(one.type)]) for one in fields):
        return None
    are_objects = all(isinstance(one, dict) for one in (*record.pods, *record.attempts))
    texts = [*record.pod_uids, *(one.get(name) for one in record.attempts if are_objects for name in ATTEMPT)]
    return record if are_objects and all(isinstance(text, str) for text in texts) else None


def save_dir_of(config: LauncherConfig, passed: Mapping[str, str]) -> Path:
    """Returns where trainer 0 saves: --save_dir, by default output/."""
    return Path(passed.get("save_dir") or config.output)


def wanted_record(config: LauncherConfig, ids: IdMap, passed: Mapping[str, str]) -> JobRecord:
    """Returns the record of a first attempt from the beginning, as environment and flags want it."""
    return JobRecord(
        job_uid=ids.job_uid,
        passes=wanted_passes(passed),
        finished=False,
        attempt=1,
        pod_uids=ids.pod_uids,
        start_pass=0,
        config=config.train_config_dir,
        gradient_num=config.gradient_num,
        pserver_num=0 if is_local(passed) else config.pserver_num,
        ports_num=whole_number(passed, "ports_num", config.ports_num, 0),
        ports_num_sparse=whole_number(passed, "ports_num_for_sparse", config.ports_num_sparse, 0),
        pods=[{"ip": ip, "place": ids.places.get(ip, "")} for ip in in_id_order(ids)],
    )


def wanted_passes(passed: Mapping[str, str]) -> int:
    """Returns the pass before which training ends: --start_pass and --num_passes, by default as the trainer's."""
    return whole_number(passed, "start_pass", 0, 0) + whole_number(passed, "num_passes", 100, 1)


# ----- What is saved


def pass_name(number: int) -> str:
    """Returns the name of a pass's directory."""
    return f"pass-{number:05d}"


def position(name: str) -> tuple[int, float]:
    """Returns how far training was when a pass or state directory was saved: the pass, and which save inside it.

    pass-00003 comes after every pass-00003-<k>, since it is the end of that pass; anything else comes first.
    """
    match = re.fullmatch(r"pass-([0-9]{5})(?:-([0-9]{3,}))?", name)
    return (int(match[1]), float(match[2] or math.inf)) if match else (-1, 0.0)


@dataclasses.dataclass(frozen=True)
class Saved:
    """What is complete in the save directory, ascending: numbers of the passes, names of the checkpoints."""

    passes: tuple[int, ...] = ()
    states: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """The newest checkpoint, or ""."""
        return self.states[-1] if self.states else ""

    @property
    def following(self) -> int:
        """The pass after the last one that is saved."""
        return self.passes[-1] + 1 if self.passes else 0

    @property
    def newer(self) -> list[str]:
        """Names of the passes that were saved after the newest checkpoint."""
        return [name for name in map(pass_name, self.passes) if position(name) > position(self.state)]

    @property
    def trained(self) -> int:
        """The number of passes that are trained to their end."""
        number, part = position(self.state)
        return max(self.following, number + (part == math.inf))


def find_saved(save_dir: Path) -> Saved:
    """Returns the passes and checkpoints that are complete: those with their marker, which is written last."""
    passes = on_volume(lambda: list(save_dir.glob("pass-[0-9][0-9][0-9][0-9][0-9]/done")))
    states = on_volume(lambda: list(save_dir.glob("state/pass-*/done")))
    names = [marker.parent.name for marker in states if position(marker.parent.name) >= (0, 0.0)]
    numbers = sorted(position(marker.parent.name)[0] for marker in passes)
    return Saved(tuple(numbers), tuple(sorted(names, key=position)))


def earlier_output(output: Path, save_dir: Path) -> list[Path]:
    """Returns the entries that an earlier attempt or Job left: pass-*, state, node_*, and what was told beside them."""
    found = {*save_dir.glob("pass-[0-9]*"), *save_dir.glob("state"), *output.glob("node_[0-9]*")}
    told = {output / name for name in ("records.jsonl", "progress.json", "report.html")} if found else set()
    return sorted({*found, *filter(Path.exists, told)})


def archive(paths: Iterable[Path]) -> str:
    """Moves entries to the first free run-<k>/ beside them, and returns where they are now."""
    targets: dict[Path, Path] = {}
    for path in paths:
        if path.parent not in targets:
            targets[path.parent] = next(
                free for free in (path.parent / f"run-{k}" for k in itertools.count(1)) if not free.exists()
            )
            targets[path.parent].mkdir()
        path.rename(targets[path.parent] / path.name)
    return " and ".join(map(str, targets.values()))


# ----- Attempts


def is_finished(record: JobRecord | None, saved: Saved, job_uid: str, passes: int) -> bool:
    """Tells whether this very Job has trained all its passes, so that a late replacement of a pod has nothing to do."""
    if record is None or record.job_uid != job_uid:
        return False
    return (record.finished and record.passes >= passes) or saved.following >= passes


@dataclasses.dataclass(frozen=True)
class Decision:
    """What becomes of the output that was found."""

    start_pass: int = 0
    checkpoint: str = ""
    archive: bool = False  # move pass-*, state and node_* to run-<k>/ first
    archive_state: bool = False  # move state only: nobody can go on from it
    done: bool = False  # nothing left to train
    message: str = ""

    @property
    def origin(self) -> str:
        """Name of the state or pass directory to go on from; "" from the beginning."""
        return self.checkpoint or (pass_name(self.start_pass - 1) if self.start_pass else "")


def decide_start(record: JobRecord | None, saved: Saved, has_output: bool, wanted: JobRecord, resume: bool) -> Decision:
    """Decides whether to start afresh, to go on, or that all is done.

    Args: has_output: there are pass-*, state or node_* entries. wanted: Job, passes, config and layout of now.
    """
    passes = wanted.passes
    same_job = record is not None and record.job_uid == wanted.job_uid
    if not has_output:
        return Decision()
    if record is None:
        return Decision(archive=True, message="output/ has no job.json, so it is not known whose it is")
    if same_job and saved.following >= passes:
        return Decision(saved.following, done=True, message=f"all {passes} passes are saved already")
    if not same_job and not resume:
        return Decision(archive=True, message="RESUME=0: output of an earlier Job")
    if not same_job and record.config != wanted.config:
        return Decision(archive=True, message=f"output of an earlier Job with another config, {record.config!r}")
    # with --saving_period=2 the last pass of a finished Job may not be saved
    trained = max(saved.trained, record.passes if record.finished else 0)
    if not same_job and passes <= trained:
        return Decision(archive=True, message=f"an earlier Job has trained {trained} passes, and {passes} are wanted")
    return choose_origin(record, saved, wanted)


def choose_origin(record: JobRecord, saved: Saved, wanted: JobRecord) -> Decision:
    """Decides from which checkpoint or pass to go on.

    A checkpoint holds all, so that the bits are those of an undisturbed run, but for the same numbers of trainers,
    pservers and ports only. A pass directory holds the parameters. With pservers a checkpoint follows each saved pass
    at once; where only the last one lacks it, the attempt ended between the two, and that pass is trained again.
    """
    same_job = record.job_uid == wanted.job_uid
    whose = "an earlier attempt" if same_job else "an earlier Job"
    is_foreign = bool(saved.state) and record.layout != wanted.layout
    again = f": {saved.newer[0]} has no checkpoint and is trained again" if saved.newer else ""
    if saved.state and not is_foreign and len(saved.newer) <= 1:
        return Decision(checkpoint=saved.state, message=f"going on from state/{saved.state} of {whose}{again}")
    if not saved.state and len(saved.newer) == 1 and same_job and wanted.pserver_num:
        return Decision(message=f"starting from the beginning{again}")
    reason = f"state/{saved.state} is of {record.layout}, and now there are {wanted.layout}: " if is_foreign else ""
    if not saved.passes:
        none = f"{reason}{whose if is_foreign else 'an unfinished attempt'} saved no pass: starting from the beginning"
        return Decision(archive_state=is_foreign, message=none)
    warning = "only the parameters are carried over; optimiser state, learning rate schedule and shuffling start anew"
    message = f"{reason}going on after {pass_name(saved.passes[-1])} of {whose}. WARNING: {warning}"
    return Decision(saved.following, archive_state=is_foreign, message=message)


def count_fruitless(record: JobRecord | None, origin: str, is_dissolved: bool) -> int:
    """Returns how many attempts in a row left nothing newer to go on from than they began with.

    Args: record: of this Job's last attempt, None before the first. origin: from where the next goes on.
        is_dissolved: the last never began to train, because the set of pods changed; it does not count.
    """
    if record is None or position(origin) > position(record.origin):
        return 0
    return record.fruitless + (not is_dissolved)


@dataclasses.dataclass
class Memory:
    """What one launcher remembers from attempt to attempt."""

    record: JobRecord | None = None  # of the last attempt that it took part in
    is_dissolved: bool = False  # that one never began to train, because the set of pods changed
    status: int = 0  # which that one ended with
    staged: int | None = None  # the trainer whose shard is in ./data
    lost: set[str] = dataclasses.field(default_factory=set)  # uids of the failed pods that were named
    said: dict[int, set[str]] = dataclasses.field(default_factory=dict)  # after an attempt, of what comes next

    @property
    def attempt(self) -> int:
        """The number of that attempt: only a later one is news."""
        return self.record.attempt if self.record else 0

    def say_once(self, message: str) -> None:
        """Says what is decided on the next attempt, also where deciding is tried again and again on a full volume."""
        said = self.said.setdefault(self.attempt, set())
        if message not in said:
            say(message)
        said.add(message)

    def name_lost(self, pods: Iterable[Pod]) -> None:
        """Says of each failed pod, once, what its status tells: it may have ended without a word of its own."""
        for pod in pods:
            if pod.phase == "Failed" and pod.uid not in self.lost:
                self.lost.add(pod.uid)
                say(f"this Job has lost {pod}")


def agree(
    config: LauncherConfig, ids: IdMap, passed: Mapping[str, str], waiting: Waiting, memory: Memory
) -> JobRecord | None:
    """Returns the record of this attempt: trainer 0 decides and writes it, the others wait until it names their set.

    With the same set of pods as before, a launcher that comes back demands an attempt after its last one.
    Returns: None when it does not in `waiting.timeout_s`: trainer 0 is not ready, or has another set of pods.
    Raises: VolumeError.
    """
    if own_trainer_id(config, ids) == 0:
        with volume_errors(config.output):
            return decide_attempt(config, ids, passed, memory)
    deadline = waiting.clock() + waiting.timeout_s
    while True:
        record = read_record(config.output)
        is_ours = record and (record.pod_uids, record.job_uid) == (ids.pod_uids, ids.job_uid)
        if record and is_ours and record.attempt > memory.attempt:
            return record
        if waiting.clock() >= deadline:
            return None
        waiting.sleep(0.05)


def decide_attempt(config: LauncherConfig, ids: IdMap, passed: Mapping[str, str], memory: Memory) -> JobRecord:
    """Trainer 0's part of `agree`: keeps or archives the output, then writes the record, so that the others go on."""
    output, save_dir = config.output, save_dir_of(config, passed)
    output.mkdir(parents=True, exist_ok=True)
    record = read_record(output) or memory.record  # damaged in mid-job, it must not look like an unknown output
    wanted = wanted_record(config, ids, passed)
    last = record if record and record.job_uid == ids.job_uid else None
    if last and last.attempts and not memory.is_dissolved:
        memory.say_once(f"the last was {describe_attempts(output, last)[-1]}")
    found, saved = earlier_output(output, save_dir), find_saved(save_dir)
    decision = decide_start(record, saved, bool(found), wanted, config.resume)
    if decision.archive:
        say(f"{decision.message}; moved to {archive(found)}, starting afresh")
        record = None
    elif decision.message:
        memory.say_once(decision.message)
    if decision.archive_state:
        say(f"moved state/ to {archive([save_dir / 'state'])}")
    decided = dataclasses.replace(
        wanted,
        finished=decision.done,
        attempt=record.attempt + 1 if record else 1,
        start_pass=decision.start_pass,
        checkpoint=decision.checkpoint,
        fruitless=count_fruitless(last, decision.origin, memory.is_dissolved),
        attempts=last.attempts if last else [],
    )
    if decided.fruitless > config.restarts and not decided.finished:
        decided = dataclasses.replace(decided, given_up=True)
    else:
        started = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        attempt = {"name": decided.name, "started": started, "origin": decided.origin}
        decided = dataclasses.replace(decided, attempts=[*decided.attempts, attempt][-KEPT_ATTEMPTS:])
    write_record(output, decided)
    return decided


def write_record(output: Path, record: JobRecord) -> None:
    """Writes output/job.json."""
    write_atomically(output / "job.json", json.dumps(dataclasses.asdict(record), indent=1) + "\n")


@dataclasses.dataclass(frozen=True)
class Meeting:
    """A full set of pods that agree on an attempt; no ids when this Job has finished its passes or given up."""

    ids: IdMap
    record: JobRecord | None = None


def meet(api: PodApi, config: LauncherConfig, passed: Mapping[str, str], waiting: Waiting, memory: Memory) -> Meeting:
    """Waits until the set of pods is full and trainer 0 has written the record that names it.

    A pod that was just replaced may see its doomed former peers still Running, and takes them for its set; they will
    not agree with it, so both are asked for again and again. Once the Job has had an attempt, the wait is longer: who
    is there already must not give up while the Job replaces a pod, or a node is drained.
    Who does not list all pods takes the set that the record names.
    Raises: LaunchError.
    """
    waiting = dataclasses.replace(waiting)
    seen: list[Pod] = []

    def look() -> Meeting | None:
        return find_invitation(config, seen, memory)

    def decide(podlist: JsonObject) -> Meeting | str:
        pods, job_uid = select_own_job(parse_pods(podlist), config.pod_ip, config.pod_name)
        seen[:] = pods
        record = read_record(config.output)
        if record and ((job_uid and record.job_uid == job_uid) or memory.record):
            waiting.timeout_s, waiting.limit = config.rejoin_timeout, "REJOIN_TIMEOUT"
        if job_uid and record and record.job_uid == job_uid and has_ended(config, passed, record, pods):
            return Meeting(IdMap(), record if record.given_up else None)
        if api.indexes:
            return look() or why_without_record(config, pods)
        ids = complete_set(config, podlist)
        if isinstance(ids, str):
            return ids
        record = agree(config, ids, passed, dataclasses.replace(waiting, timeout_s=1.0), memory)
        if record:
            return Meeting(ids, record)
        count, path = config.gradient_num, config.output / "job.json"
        after = f" after attempt {memory.attempt}" if memory.record else ""
        return (
            f"{count} of {count} Running, but trainer 0 has not written {path} for this set{after}: "
            "see its log, and whether all pods mount the same volume"
        )

    try:
        on_healthy = functools.partial(try_on_volume, config, memory, decide)
        meeting = wait_for_pods(api, on_healthy, waiting, look if api.indexes else None)
        memory.name_lost(seen)
        return meeting
    except UnreachableError as error:
        table = f"\n{table_of_pods(seen, config.gradient_num)}" if seen and not api.indexes else ""
        raise UnreachableError(f"{error}{table}") from error


def try_on_volume(
    config: LauncherConfig, memory: Memory, decide: Callable[[JsonObject], Answer], podlist: JsonObject
) -> Answer:
    """Returns what `decide` answers, which looks at the volume.

    Raises: VolumeError: before the first attempt, and from a mount that is dead. ApiError: else the same, since
        somebody may mend the volume meanwhile.
    """
    try:
        check_mount(config.job_path)
        with volume_errors(config.output):
            return decide(podlist)
    except VolumeError as error:
        if isinstance(error, LostMountError) or not memory.record or not config.restarts:
            raise
        raise ApiError(str(error), final=VolumeError) from error


def check_mount(volume: Path) -> None:
    """Returns where this pod's mount of the volume is alive, or ails of what can be mended from outside.

    Raises: LostMountError.
    """
    try:
        on_volume(volume.stat)
    except OSError as problem:
        if problem.errno == errno.ENOTCONN:
            raise LostMountError(
                f"this pod's mount of the volume, {volume}, is dead: {problem.strerror}. Its client on this node has "
                "ended, and only a new pod gets a new mount; look after the client if that one cannot start"
            ) from problem


def has_ended(config: LauncherConfig, passed: Mapping[str, str], record: JobRecord, pods: Sequence[Pod]) -> bool:
    """Tells whether this Job begins no further attempt. Args: record, pods: its own."""
    # a pod succeeds when all trainers have said goodbye, and is never replaced
    has_succeeded = any(pod.phase == "Succeeded" for pod in pods) and not is_local(passed)
    saved = find_saved(save_dir_of(config, passed))
    return record.given_up or has_succeeded or is_finished(record, saved, record.job_uid, wanted_passes(passed))


def find_invitation(config: LauncherConfig, pods: Sequence[Pod], memory: Memory) -> Meeting | None:
    """Returns the attempt that names this pod, if job.json has one that is news. Args: pods: this one among them."""
    own = find_own(pods, config.pod_ip, config.pod_name)
    record = read_record(config.output) if own else None
    if not own or not record or own.uid not in record.pod_uids or record.attempt <= memory.attempt:
        return None
    return Meeting(record.ids, record) if record.pods else None


def why_without_record(config: LauncherConfig, pods: Sequence[Pod]) -> str:
    """Says why trainer 0 has not begun, as far as its pod tells. Args: pods: its and this pod's."""
    own = find_own(pods, config.pod_ip, config.pod_name)
    if own is None or own.terminating:
        return f"this pod, {config.pod_name}, is {'being stopped' if own else 'not listed'}"
    first = [pod for pod in pods if pod.index == 0]
    live = [pod for pod in first if pod.is_live]
    if live:
        logs = f"kubectl --namespace={config.job_namespace} logs {live[0].name}"
        return f"trainer 0 has not written {config.output / 'job.json'} for this pod: see {logs}"
    shown = "; ".join(map(str, first)) or "it does not exist"
    return f"trainer 0's pod is not Running: {shown}"


@contextlib.contextmanager
def volume_errors(path: Path) -> Iterator[None]:
    """Turns an OSError below `path` into VolumeError that names user, owner and mode."""
    try:
        yield
    except OSError as problem:
        raise VolumeError(describe_volume_error(path, problem)) from problem


def describe_volume_error(path: Path, problem: OSError) -> str:
    """Says what failed on the volume, who tried, who owns it, and what to do."""
    failed = Path(problem.filename or path)
    existing = next((place for place in (failed, *failed.parents) if os.path.lexists(place)), Path("/"))
    facts = existing.lstat()
    give = f"give it to this user: chown {os.getuid()}:{os.getgid()} {existing}"
    known = {
        errno.EACCES: give,
        errno.EPERM: give,
        errno.ENOSPC: "the volume is full: make room",
        errno.EDQUOT: "the quota is used up: make room",
        errno.EROFS: "the volume is read-only: mount it read-write",
    }
    advice = known.get(problem.errno or 0, "move away what is in the way, or look after the volume")
    return (
        f"cannot write {failed}: {problem.strerror}. This pod runs as uid {os.getuid()}, {existing} "
        f"belongs to uid {facts.st_uid} with mode {facts.st_mode & 0o7777:04o}; {advice}"
    )


def prepare_node_dir(config: LauncherConfig, trainer_id: int, attempt: int) -> Path:
    """Creates output/node_<id>, checks that it takes writes, and puts an earlier attempt's files aside by suffix."""
    node = config.output / f"node_{trainer_id}"
    with volume_errors(node):
        node.mkdir(parents=True, exist_ok=True)
        for name in ("train.log", "train.jsonl", "server.log", "server.jsonl", "error.json"):
            if (node / name).exists():
                numbers = itertools.count(max(1, attempt - 1))
                kept = next(path for path in (node / f"{name}.{k}" for k in numbers) if not path.exists())
                (node / name).rename(kept)
        write_atomically(node / ".writable", "")
        (node / ".writable").unlink(missing_ok=True)
    return node


def read_split_count(marker: Path) -> int | None:
    """Returns the number of shards that the data job says it made; None for data that came another way."""
    try:
        return int(json.loads(marker.read_text(encoding="utf-8"))["split_count"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def stage_data(config: LauncherConfig, trainer_id: int, target: Path) -> int:
    """Copies this trainer's shard into `target` and returns the number of files.

    Raises: MissingInputError: no shard, or an empty one. VolumeError: it does not fit into the work directory.
    """
    source = config.job_dir / str(trainer_id) / "data"
    advice = (
        f"the data job makes {config.job_dir}/0/data ... {config.job_dir}/{config.gradient_num - 1}/data "
        f"(kubectl create -f k8s/data-job.yaml, with SPLIT_COUNT={config.gradient_num})"
    )
    split_count = read_split_count(config.job_dir / "prepared.json")
    if split_count not in (None, config.gradient_num):
        raise MissingInputError(
            f"the data were split into {split_count} shards for {config.gradient_num} trainers: {advice}"
        )
    try:
        names = on_volume(lambda: [path.name for path in source.iterdir()])
    except (FileNotFoundError, NotADirectoryError):
        raise MissingInputError(f"there is no {source}, the shard of trainer {trainer_id}: {advice}") from None
    except PermissionError as problem:
        raise MissingInputError(f"uid {os.getuid()} cannot read {source}: {problem.strerror}: {advice}") from problem
    except OSError as problem:
        raise VolumeError(f"cannot read {source}: {problem.strerror}; look after the volume") from problem
    if all(name.startswith(".") for name in names):
        raise MissingInputError(f"{source}, the shard of trainer {trainer_id}, is empty: {advice}")
    try:
        shutil.copytree(source, target, dirs_exist_ok=True)
    except shutil.Error as problem:  # a list of (source, target, text), the first says enough
        first, _, text = problem.args[0][0]
        is_of_file = re.match(rf"\[Errno ({errno.ENOENT}|{errno.EACCES}|{errno.EPERM})\]", text)
        kind = MissingInputError if is_of_file and not os.access(first, os.R_OK) else VolumeError
        raise kind(f"cannot copy the shard: {text}") from problem
    except OSError as problem:
        raise VolumeError(describe_volume_error(target, problem)) from problem
    return sum(len(files) for _, _, files in os.walk(source))


def unstage_data(config: LauncherConfig, trainer_id: int, target: Path) -> None:
    """Takes a shard's files out of `target` again."""
    source = config.job_dir / str(trainer_id) / "data"
    for directory, _, names in os.walk(source):
        for name in names:
            (target / Path(directory).relative_to(source) / name).unlink(missing_ok=True)


# ----- Programs


@dataclasses.dataclass(frozen=True)
class MemoryAccount:
    """What the kernel says of this container's memory, in bytes; None: no limit, or not told."""

    limit: int | None
    peak: int | None
    kills: int  # processes that it has killed for memory

    @classmethod
    def read(cls, root: Path = CGROUP) -> MemoryAccount | None:
        """Reads the container's cgroup, version 2 or 1; None where there is none to be seen.

        Source: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
        """
        for limit, peak, events in (
            ("memory.max", "memory.peak", "memory.events"),
            ("memory/memory.limit_in_bytes", "memory/memory.max_usage_in_bytes", "memory/memory.oom_control"),
        ):
            kills = re.search(r"^oom_kill ([0-9]+)$", read_account(root / events), re.MULTILINE)
            if kills:
                numbers = [read_account(root / name).strip() for name in (limit, peak)]
                found = [int(text) if re.fullmatch("[0-9]+", text) else None for text in numbers]
                is_limited = found[0] is not None and found[0] < NO_LIMIT
                return cls(found[0] if is_limited else None, found[1], int(kills[1]))
        return None

    def __str__(self) -> str:
        """Says limit and peak, and what to do."""
        peak = "" if self.peak is None else f", and the peak of all its processes was {mebibytes(self.peak)}"
        if self.limit is None:
            return f"this container has no memory limit{peak}, so its node ran out of memory: choose a larger one"
        return f"this container's limit is {mebibytes(self.limit)}{peak}: {MEMORY_ADVICE}"


def read_account(path: Path) -> str:
    """Returns a file of the cgroup, empty where there is none."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""


def mebibytes(size: int) -> str:
    """Returns bytes as a text in the unit of Kubernetes manifests."""
    return f"{size / 2**20:.0f}Mi"


def explain_kill(before: MemoryAccount | None, after: MemoryAccount | None) -> str:
    """Says whether the kernel has ended a program with SIGKILL for memory, by its accounts before and after."""
    if before is None or after is None:
        return " (out of memory?)"
    if after.kills > before.kills:
        return f" by the kernel, out of memory: {after}"
    return " (not for memory: the kernel has killed nothing of this container)"


class Program:
    """A child process whose end can be waited for in a selector, with the path of its log."""

    def __init__(self, name: str, argv: Sequence[str], environ: Mapping[str, str], log: Path, *, copied: bool) -> None:
        """Args: copied: its output comes to `process.stdout`, for the launcher to copy; else it goes to the log."""
        self.name, self.argv, self.log = name, argv, log
        self.memory = MemoryAccount.read()
        self.file = log.open("wb", buffering=0)
        self.log_problem = ""
        try:
            self.process = subprocess.Popen(
                argv,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                stdout=subprocess.PIPE if copied else self.file,
            )
        except (FileNotFoundError, PermissionError) as problem:
            missing = f"there is no program {argv[0]!r} on PATH that this user may run: install the package"
            raise BadEnvironmentError(missing) from problem
        self.pidfd = os.pidfd_open(self.process.pid)
        self.output = self.process.stdout.fileno() if self.process.stdout else -1
        if copied:  # a grandchild that keeps the pipe open must not hold up the end
            os.set_blocking(self.output, False)

    def stop(self, grace_s: float) -> None:
        """Ends it: SIGTERM, and SIGKILL after the grace; without a grace at once."""
        if self.process.poll() is None:
            if grace_s:
                self.process.terminate()
            try:
                self.process.wait(grace_s)
            except subprocess.TimeoutExpired:
                say(f"{self.name} did not end in time after SIGTERM: killed")
                self.process.kill()
                self.process.wait()

    def close(self) -> None:
        """Gives the descriptors back."""
        os.close(self.pidfd)
        with contextlib.suppress(OSError):  # a network file system may tell only now what it could not write
            self.file.close()
        if self.process.stdout:
            self.process.stdout.close()

    def add_to_log(self, chunk: bytes) -> None:
        """Writes to the log; a volume that takes no more must not end the training: saving will say it."""
        try:
            while chunk:
                chunk = chunk[self.file.write(chunk) :]
        except OSError as problem:
            if str(problem) != self.log_problem:
                say(f"cannot write {self.log}: {problem}; what it misses is in the pod's own log")
            self.log_problem = str(problem)

    def describe_end(self) -> str:
        """Says how it ended, with the last lines of its log."""
        lines = (read_tail(self.log) or "(it wrote nothing)").splitlines()[-LAST_LINES:]
        ended = describe_status(self.process.returncode)
        if self.process.returncode == -signal.SIGKILL:
            ended += explain_kill(self.memory, MemoryAccount.read())
        return f"{self.name} {ended}; the end of {self.log}:\n" + "\n".join(f"    {line}" for line in lines)


def read_tail(path: Path, size: int = 4000) -> str:
    """Returns the last bytes of a log as text, without half a first line."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def describe_status(status: int) -> str:
    """Says how a process ended in words."""
    if status >= 0:
        return f"ended with status {status}"
    return f"was killed by {signal.Signals(-status).name}"


def exit_code_of(status: int) -> int:
    """Returns the pod's exit status for a program's: its own, and 75 for one that a signal killed."""
    return status if status >= 0 else LostPeerError.exit_code


class Stop:
    """SIGTERM and SIGINT: before the training they end the launcher at once, later they wake the supervisor."""

    def __init__(self) -> None:
        self.requested = ""  # the first signal's name
        self.supervising = False
        self.wakeup, self._write = os.pipe()
        os.set_blocking(self._write, False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: Any) -> None:
        is_first, self.requested = not self.requested, self.requested or signal.Signals(number).name
        if is_first and not self.supervising:
            self.check()
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"x")

    def check(self) -> None:
        """Raises StoppedError if a signal has come."""
        if self.requested:
            raise StoppedError(f"stopped by {self.requested} before the training began")

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """In this block of a supervisor's work, a long one without a selector, signals raise StoppedError again."""
        self.supervising = False
        try:
            self.check()
            yield
        finally:
            self.supervising = True

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """In this block signals wake the supervisor, and raise nothing."""
        self.supervising = True
        try:
            yield
        finally:
            self.supervising = False


@dataclasses.dataclass
class Outcome:
    """How the programs of this pod ended: the pod's exit status, and which program was first to fail, with what."""

    status: int
    program: str = ""
    message: str = ""
    signal: str = ""  # that killed the program; it is then the cause, although its status is that of a lost peer
    is_dissolved: bool = False  # the set of pods changed before the training began: meet again, nothing has failed


class Supervisor:
    """Runs the programs of one attempt to their end; nothing of them outlives it, so the next one finds its ports free.

    A pod whose trainer id is not below CONF_PADDLE_PSERVER_NUM has no pserver: its `pserver` is None everywhere.
    """

    def __init__(self, config: LauncherConfig, stop: Stop, environ: Mapping[str, str], node: Path) -> None:
        self.config, self.stop, self.environ, self.node = config, stop, environ, node
        self.programs: list[Program] = []

    def __enter__(self) -> Supervisor:
        HEALTH.programs = self.programs
        return self

    def __exit__(self, *_: object) -> None:
        HEALTH.programs = []
        for program in reversed(self.programs):
            program.stop(self.failed_stop_s)
            program.close()

    @property
    def failed_stop_s(self) -> float:
        """Seconds that a program may take to end where there is nothing to save any more."""
        return min(self.config.stop_timeout, FAILED_STOP_S)

    def start(self, name: str, argv: Sequence[str], log: str, *, copied: bool = False) -> Program:
        """Starts a program that logs to output/node_<id>/<log>."""
        with volume_errors(self.node / log):
            program = Program(name, argv, self.environ, self.node / log, copied=copied)
        self.programs.append(program)
        return program

    def wait_for_pservers(
        self, pserver: Program | None, argv: Sequence[str], why_over: Callable[[], Outcome | None]
    ) -> Outcome | None:
        """Runs the probe until every pserver of the job answers. Returns None then, else why not.

        Args: argv: the probe without its timeout. why_over: says why this attempt cannot go on, or None.
        """
        deadline = time.monotonic() + self.config.start_timeout
        while True:
            remaining = deadline - time.monotonic()
            status = self._probe(pserver, [*argv, f"--timeout={max(1, math.ceil(min(remaining, PROBE_PERIOD_S)))}"])
            if self.stop.requested:
                return Outcome(StoppedError.exit_code, "launcher", "stopped while it waited for the pservers")
            if pserver and pserver.process.poll() is not None:
                return failure_of(pserver)
            if status == 0:
                return None
            with self.stop.at_once():
                obstacle = why_over()
            if obstacle:
                return obstacle
            if status != UnreachableError.exit_code or time.monotonic() >= deadline:
                return Outcome(status, "launcher", "not every pserver of the job answers; the lines above name them")

    def _probe(self, pserver: Program | None, argv: Sequence[str]) -> int:
        """Runs one probe, unless the pserver dies or a signal comes first; returns its exit status."""
        probe = subprocess.Popen(argv, env=dict(self.environ), stdin=subprocess.DEVNULL)
        pidfd = os.pidfd_open(probe.pid)
        try:
            wait_for_any(PROBE_PERIOD_S + REPEAT_PERIOD_S, pidfd, *pidfds(pserver), self.stop.wakeup)
            status = probe.poll()
            return UnreachableError.exit_code if status is None else exit_code_of(status)
        finally:
            os.close(pidfd)
            probe.kill()
            probe.wait()

    def run_trainer(
        self, pserver: Program | None, argv: Sequence[str], record: JobRecord, why_over: Callable[[], Outcome | None]
    ) -> Outcome:
        """Runs the trainer, copies its output, and returns how it all ended.

        Args: why_over: says that the attempt has ended elsewhere, or None; a trainer that others have not met yet is
            missed by nobody but its launcher.
        """
        trainer = self.start("trainer", argv, "train.log", copied=True)
        stdout = trainer.output
        first: Outcome | None = None
        deadline, is_asked, grace_s = math.inf, False, self.failed_stop_s
        look_at = time.monotonic() + WATCH_PERIOD_S
        with selectors.DefaultSelector() as selector:
            for source in (stdout, trainer.pidfd, *pidfds(pserver), self.stop.wakeup):
                selector.register(source, selectors.EVENT_READ)
            while trainer.process.poll() is None:
                events = selector.select(max(0.0, min(deadline, look_at) - time.monotonic()))
                ready = {key.fd for key, _ in events}
                if stdout in ready and not copy_output(trainer):
                    selector.unregister(stdout)
                if self.stop.wakeup in ready:
                    say(f"{self.stop.requested}: the trainer gets SIGTERM")
                    selector.unregister(self.stop.wakeup)
                    deadline, is_asked, grace_s = time.monotonic(), False, self.config.stop_timeout
                if pserver and pserver.pidfd in ready:
                    selector.unregister(pserver.pidfd)
                    pserver.process.wait()
                    # after status 0 our trainer has said goodbye; after any other it will notice within seconds
                    first = failure_of(pserver) if pserver.process.returncode else None
                    patience_s = min(NOTICE_S, self.config.stop_timeout) if first else self.config.stop_timeout
                    deadline = min(deadline, time.monotonic() + patience_s)
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + WATCH_PERIOD_S
                    if deadline == math.inf and (first := why_over()):
                        deadline = time.monotonic() + min(NOTICE_S, self.config.stop_timeout)
                if time.monotonic() >= deadline and is_asked:
                    trainer.stop(0.0)
                elif time.monotonic() >= deadline:
                    trainer.process.terminate()
                    deadline, is_asked = time.monotonic() + grace_s, True
            while copy_output(trainer):
                pass
        return self._conclude(pserver, trainer, first, record)

    def _conclude(self, pserver: Program | None, trainer: Program, first: Outcome | None, record: JobRecord) -> Outcome:
        status = trainer.process.returncode
        is_alone = is_local(dict(flag.removeprefix("--").partition("=")[::2] for flag in trainer.argv))
        if not status and not is_alone and not self.stop.requested:
            if pserver:
                wait_for_any(self.config.goodbye_timeout, pserver.pidfd, self.stop.wakeup)
            else:
                first = self._wait_for_the_end(record)
        if self.stop.requested:
            code = status if status in NEVER_RETRY else StoppedError.exit_code
            return Outcome(code, "launcher", f"stopped by {self.stop.requested}")
        # a trainer that gave up because servers or peers were gone, or was ended by us, is not what failed first
        if first and (status <= 0 or status in (UnreachableError.exit_code, LostPeerError.exit_code, 143)):
            return first
        if status:
            return failure_of(trainer)
        if is_alone or not pserver:
            return Outcome(0)
        if pserver.process.poll() is None:
            message = f"our trainer has finished, but others did not within {self.config.goodbye_timeout:g} s"
            return Outcome(LostPeerError.exit_code, "pserver", f"{message} (GOODBYE_TIMEOUT); see {pserver.log}")
        return failure_of(pserver) if pserver.process.returncode else Outcome(0)

    def _wait_for_the_end(self, record: JobRecord) -> Outcome | None:
        """Waits, in a pod without a pserver that hears all goodbyes, for trainer 0 to record that the job is done.

        A pod that left sooner could not be had back, since an index that has succeeded is not replaced.
        Returns: None then; else why another attempt is needed.
        """
        deadline = time.monotonic() + self.config.goodbye_timeout
        say("our trainer has finished; waiting for the others")
        while time.monotonic() < deadline and not self.stop.requested:
            newest = read_record(self.config.output)
            if newest and newest.finished and newest.job_uid == record.job_uid:
                return None
            if newest and newest.attempt > record.attempt:
                return Outcome(LostPeerError.exit_code, "launcher", f"attempt {newest.attempt} has begun meanwhile")
            wait_for_any(END_PERIOD_S, self.stop.wakeup)
        message = f"our trainer has finished, but the job has not within {self.config.goodbye_timeout:g} s"
        return Outcome(LostPeerError.exit_code, "launcher", f"{message} (GOODBYE_TIMEOUT)")


def pidfds(program: Program | None) -> list[int]:
    """Returns the descriptor that tells a program's end, none without a program."""
    return [program.pidfd] if program else []


def wait_for_any(timeout_s: float, *sources: int) -> None:
    """Waits until one of the descriptors can be read, or for so long."""
    with selectors.DefaultSelector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ)
        selector.select(timeout_s)


def failure_of(program: Program) -> Outcome:
    """Returns the outcome that a program's end makes."""
    status = program.process.returncode
    killer = signal.Signals(-status).name if status < 0 else ""
    return Outcome(exit_code_of(status), program.name, program.describe_end(), killer)


def copy_output(program: Program) -> bool:
    """Copies what a program has written to its log and to our stdout, as it comes. Returns False when it is all."""
    try:
        chunk = os.read(program.output, 1 << 16)
    except BlockingIOError:
        return False
    program.add_to_log(chunk)
    with contextlib.suppress(OSError):
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
    return bool(chunk)


# ----- Health


class Health:
    """What /healthz and /readyz of the pod say, by the programs that run in it; they are asked when somebody asks.

    A pod is stuck when a program says so of itself, or has not answered at all for PADDLE_STUCK_TIMEOUT, or when the
    launcher has waited as long for one answer of the API server. What the launcher does on the volume is not judged:
    it takes as long as the volume takes, and to start the pod anew would not mend that.

    Thread safety: the main thread sets `programs` and `asking_since`, the threads that answer read them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.host, self.limit_s = "", math.inf
        self.programs: Sequence[Program] = []  # of the attempt in hand
        self.asking_since = math.inf  # when the request to the API server that is under way was sent
        self._silent_since: dict[int, float] = {}  # by process id
        self._lock = threading.Lock()
        self._judged, self._stuck, self._unready = -math.inf, "", ""

    def judge(self) -> tuple[str, str]:
        """Returns why the pod is stuck, and why it is not ready; "" where it is not stuck, or ready."""
        with self._lock:
            if self.clock() - self._judged > JUDGED_S:
                self._stuck, self._unready = self._ask_all()
                self._judged = self.clock()
            return self._stuck, self._stuck or self._unready

    def _ask_all(self) -> tuple[str, str]:
        asked_s = self.clock() - self.asking_since
        if asked_s > self.limit_s:
            return f"the API server has been answering one request for {asked_s:.0f} s", ""
        running = [program for program in self.programs if program.process.returncode is None]
        found = [self._look_at(program) for program in running]
        has_trainer = any(program.name == "trainer" for program in running)
        unready = [*(why for _, why in found), "" if has_trainer else "no trainer runs"]
        return "; ".join(why for why, _ in found if why), "; ".join(filter(None, unready))

    def _look_at(self, program: Program) -> tuple[str, str]:
        """Returns why a program is stuck, and why it is not ready."""
        status, text = self._ask(program, "/healthz")
        number, now = program.process.pid, self.clock()
        if not status:
            silent_s = now - self._silent_since.setdefault(number, now)
            why = f"{program.name} has not answered for {silent_s:.0f} s"
            return why if silent_s > self.limit_s else "", why
        self._silent_since.pop(number, None)
        if status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            return f"{program.name}: {text}", ""
        status, text = self._ask(program, "/readyz") if status == http.HTTPStatus.OK else (status, text)
        return "", "" if status == http.HTTPStatus.OK else f"{program.name}: {text or 'it does not answer'}"

    def _ask(self, program: Program, path: str) -> tuple[int, str]:
        """Returns a program's answer; status 0 for none at all, -1 where nobody listens."""
        port = next((flag.partition("=")[2] for flag in program.argv if flag.startswith("--metrics_port=")), "0")
        connection = http.client.HTTPConnection(self.host, int(port), timeout=ASK_TIMEOUT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read(1000).decode("utf-8", "replace").strip()
        except ConnectionRefusedError:  # it has just begun, or could not have its port
            return -1, "it is not watched, or not yet"
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()


HEALTH = Health()  # a launcher is one pod


class HealthHandler(http.server.BaseHTTPRequestHandler):
    """Answers one probe."""

    server_version, sys_version = "paddle", ""
    timeout = 5.0  # seconds for the next bytes of a request

    def do_GET(self) -> None:
        """Answers /healthz and /readyz."""
        if self.path not in ("/healthz", "/readyz"):
            self.answer(http.HTTPStatus.NOT_FOUND, "there are /healthz and /readyz")
            return
        stuck, unready = HEALTH.judge()
        why = stuck if self.path == "/healthz" else unready
        self.answer(http.HTTPStatus.SERVICE_UNAVAILABLE if why else http.HTTPStatus.OK, why or "ok")

    def answer(self, status: http.HTTPStatus, text: str) -> None:
        """Sends a line of text."""
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """A probe is no news."""


class HealthServer(socketserver.ThreadingTCPServer):
    """Answers probes, a thread for each; of many callers the oldest go, so that who waits keeps nobody out."""

    allow_reuse_address = daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int) -> None:
        self.callers: list[Any] = []
        super().__init__((host, port), HealthHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begins to answer, in a thread of its own."""
        self.callers.append(request)
        if len(self.callers) > MOST_CALLERS:
            with contextlib.suppress(OSError):
                self.callers.pop(0).shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Ends the connection."""
        with contextlib.suppress(ValueError):
            self.callers.remove(request)
        super().shutdown_request(request)

    def handle_error(self, *_: Any) -> None:
        """A caller that has gone is no news either."""


def watch_pod(config: LauncherConfig) -> None:
    """Begins to answer the probes, if CONF_PADDLE_METRICS_PORT says where; without its port the launch goes on."""
    HEALTH.host, HEALTH.limit_s = config.pod_ip, config.stuck_timeout
    if not config.metrics_port:
        return
    try:
        server = HealthServer(config.pod_ip, config.metrics_port)
    except OSError as problem:
        place = f"{config.pod_ip}:{config.metrics_port}"
        say(f"WARNING: cannot listen on {place} (CONF_PADDLE_METRICS_PORT): {problem.strerror}; probes get no answer")
        return
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()


# ----- Failures


def write_error(node: Path, attempt: str, trainer_id: int, host: str, outcome: Outcome) -> None:
    """Leaves output/node_<id>/error.json for all pods to read."""
    record = {
        "time": time.time(),
        "attempt": attempt,
        "trainer_id": trainer_id,
        "host": host,
        "program": outcome.program,
        "exit_code": outcome.status,
        "signal": outcome.signal,
        "message": outcome.message,
    }
    try:
        write_atomically(node / "error.json", json.dumps(record, indent=1) + "\n")
    except OSError as problem:
        say(f"cannot write {node / 'error.json'}: {problem}")


def say_first_failure(output: Path, attempt: str) -> None:
    """Says which pod of an attempt was first to fail, with the last lines of its program; every pod ends with this."""
    first = first_failure(read_errors(output), attempt)
    if first:
        say(f"first to fail was {describe_error(first)}")


def read_errors(output: Path, pattern: str = "error.json") -> list[JsonObject]:
    """Returns what all pods have left as output/node_<id>/error.json; with a suffix: of earlier attempts."""
    errors, paths = [], []
    with contextlib.suppress(OSError):  # the volume is away
        paths = list(output.glob(f"node_*/{pattern}"))
    for path in paths:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            errors.append(json.loads(path.read_text(encoding="utf-8")))
    keys = {"time", "attempt", "trainer_id", "host", "program", "exit_code", "message"}
    whole = [error for error in errors if isinstance(error, dict) and keys <= error.keys()]
    return [error for error in whole if is_time(error["time"]) and isinstance(error["exit_code"], int)]


def is_time(value: object) -> bool:
    """Tells whether a value is seconds since the epoch that a calendar has."""
    found = number_of(value)
    return found is not None and 0 <= found < END_OF_TIME


def number_of(value: object) -> float | None:
    """Returns a finite number, None for anything else that a file may hold."""
    try:
        found = float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def first_failure(errors: Sequence[JsonObject], attempt: str) -> JsonObject | None:
    """Returns the error that an attempt began to end with.

    Who left because a peer was gone is never the cause, even if it was quicker to say so; a program that was killed is.
    """
    passed_on = (UnreachableError.exit_code, LostPeerError.exit_code)
    errors = [error for error in errors if error["attempt"] == attempt]
    return min(
        errors,
        key=lambda error: (error["exit_code"] in passed_on and not error.get("signal"), float(error["time"])),
        default=None,
    )


def describe_error(error: JsonObject) -> str:
    """Says which trainer's pod failed, and how."""
    place = f"trainer {error['trainer_id']} on {error['host']}"
    when = datetime.datetime.fromtimestamp(error["time"]).strftime("%Y-%m-%d %H:%M:%S")
    return f"{place}: {error['program']}, exit status {error['exit_code']}, {when}: {error['message']}"


def describe_attempts(output: Path, record: JobRecord) -> list[str]:
    """Returns a line for each attempt of this Job: its start, where it went on from, and its first failure."""
    errors = read_errors(output, "error.json*")
    lines = []
    for attempt in record.attempts:
        first = first_failure(errors, attempt["name"])
        failure = describe_error(first) if first else "no pod has left an error.json"
        origin = f"from {attempt['origin']}" if attempt["origin"] else "from the beginning"
        said = [line.strip() for line in failure.splitlines()]
        shown = said[0] if len(said) == 1 else f"{said[0]} {said[-1]}"  # of a program's log the last line
        lines.append(f"attempt {attempt['name']}, {attempt['started']}, {origin}: {shown}")
    return lines


def give_up(config: LauncherConfig, record: JobRecord, memory: Memory) -> int:
    """Reports every attempt of a Job that has given up, and returns the status that this pod ends with.

    That is the last failure's own. A pod that the Job starts afterwards ends the Job, by a status that is not retried.
    """
    say(
        f"giving up: {record.fruitless} attempts in a row left no new checkpoint or pass, and RESTARTS allows "
        f"{config.restarts} more after the first. Their first failures:"
    )
    for line in describe_attempts(config.output, record):
        say(f"  {line}")
    if memory.status:
        return memory.status
    raise GivenUpError("this Job has given up: mend what its attempts failed of, delete it and create it again")


# ----- The launch


def startPaddle(idMap: Mapping[str, int], train_args_dict: Mapping[str, str]) -> int:
    """Runs pserver and trainer of this pod to their end, one attempt, and returns the pod's exit status.

    Args: idMap: {ip: trainer id} from getIdMap. train_args_dict: flags for the trainer, without dashes.
    Raises: LaunchError.
    Source: the tutorial's function lost the status in a pipe and left the pserver unwatched (S12, S13).
    """
    config, memory = LauncherConfig.from_env(os.environ), Memory()
    ids = idMap if isinstance(idMap, IdMap) else IdMap(idMap.items(), pod_uids=idMap)
    record = agree(config, ids, train_args_dict, Waiting(config.start_timeout), memory)
    if record is None:
        raise UnreachableError(f"trainer 0 did not write {config.output / 'job.json'} for these pods: {', '.join(ids)}")
    if record.given_up:
        return give_up(config, record, memory)
    return run_attempt(config, Meeting(ids, record), train_args_dict, Stop(), lambda: None, memory).status


def run_attempt(
    config: LauncherConfig,
    meeting: Meeting,
    passed: Mapping[str, str],
    stop: Stop,
    why_over: Callable[[], Outcome | None],
    memory: Memory,
) -> Outcome:
    """Runs one attempt with the set of pods that met, writes down how it ended, and returns that.

    Args: why_over: asked before the training begins; says why this attempt cannot go on, or None.
    """
    ids, record = meeting.ids, meeting.record
    if record is None or record.finished:
        say("this Job has trained all its passes: nothing left to do")
        return Outcome(0)
    trainer_id = own_trainer_id(config, ids)
    is_first, memory.record = memory.record is None, record
    try:
        node = prepare_node_dir(config, trainer_id, record.attempt)
    except VolumeError as error:
        if is_first:
            raise
        memory.status, memory.is_dissolved = error.exit_code, False
        say(f"error: {error}")
        return Outcome(error.exit_code, "launcher", str(error))
    say(f"trainer {trainer_id} of {len(ids)}, attempt {record.name}; logs in {node}")
    identity = {"PADDLE_JOB_NAME": config.job_name, "PADDLE_ATTEMPT": record.name, "PADDLE_SECRET": config.secret}
    identity["PADDLE_OUTPUT"] = str(config.output)
    with stop.noted():
        with Supervisor(config, stop, {**os.environ, **identity}, node) as supervisor:
            try:
                outcome = run_programs(supervisor, meeting.ids, record, passed, why_over, memory)
            except LaunchError as error:
                outcome = Outcome(error.exit_code, "launcher", str(error))
        memory.status, memory.is_dissolved = outcome.status, outcome.is_dissolved
        # who fails first has the Job stop all others: by a signal, while they still say how they ended
        put_down(supervisor, ids, record, trainer_id, outcome)
    return outcome


def put_down(supervisor: Supervisor, ids: IdMap, record: JobRecord, trainer_id: int, outcome: Outcome) -> None:
    """Says how an attempt has ended in this pod, to the log and to those who read output/.

    Raises: VolumeError: the end of the job cannot be written.
    """
    config, node = supervisor.config, supervisor.node
    if outcome.is_dissolved:
        say(outcome.message)
    elif outcome.status:
        say(f"{outcome.program} failed, exit status {outcome.status}: {outcome.message}")
        for peer in ids.describe_peers(outcome.message, config.pod_ip):
            say(peer)
        write_error(node, record.name, trainer_id, config.pod_name, outcome)
        say_first_failure(config.output, record.name)
        if trainer_id == 0:
            make_report(supervisor)
    else:
        if trainer_id == 0:
            with volume_errors(config.output):
                write_record(config.output, dataclasses.replace(record, finished=True))
        say("training finished")


def make_report(supervisor: Supervisor) -> None:
    """Lets `paddle report` make output/report.html anew after a failure; where that fails nothing else is lost."""
    command = ["paddle", "report", str(supervisor.config.output)]
    limit_s = LAST_REPORT_LIMIT_S if supervisor.stop.requested else REPORT_LIMIT_S
    try:
        made = subprocess.run(
            command, env=dict(supervisor.environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        say(f"no report was made: {problem}")
        return
    if made.returncode:
        lines = made.stderr.decode("utf-8", "replace").splitlines() or ["it said nothing"]
        say(f"no report was made: paddle report ended with status {made.returncode}: {lines[-1]}")


def run_programs(
    supervisor: Supervisor,
    ids: IdMap,
    record: JobRecord,
    passed: Mapping[str, str],
    why_over: Callable[[], Outcome | None],
    memory: Memory,
) -> Outcome:
    """Starts the pserver, copies the shard meanwhile, waits for all pservers, runs the trainer; says how it ended."""
    config = supervisor.config
    trainer_id = own_trainer_id(config, ids)
    trainer_argv = build_trainer_argv(config, ids, trainer_id, resumed_flags(config, record, passed))
    pserver_argv = build_pserver_argv(config, trainer_id, passed)
    pserver: Program | None = None
    if config.runs_pserver(trainer_id):
        say(f"starting {shlex.join(pserver_argv)}")
        pserver = supervisor.start("pserver", pserver_argv, "server.log")
    else:
        say(f"no pserver in this pod: CONF_PADDLE_PSERVER_NUM is {config.pserver_num}")
    with supervisor.stop.at_once():
        staged = stage_shard(config, trainer_id, Path("data"), memory)
    say(f"{staged}; waiting for all pservers")
    obstacle = supervisor.wait_for_pservers(pserver, build_probe_argv(pserver_argv, trainer_argv), why_over)
    if obstacle:
        return obstacle
    say(f"starting {shlex.join(trainer_argv)}")
    return supervisor.run_trainer(
        pserver, trainer_argv, record, functools.partial(find_end, config, record, trainer_id)
    )


def resumed_flags(config: LauncherConfig, record: JobRecord, passed: Mapping[str, str]) -> dict[str, str]:
    """Returns the trainer's flags with those that let it go on from where the record says."""
    if record.checkpoint:
        state = save_dir_of(config, passed) / "state" / record.checkpoint
        return {**passed, "resume_from": str(state)}
    if record.start_pass:
        # --init_model_path wins over --start_pass: training would begin anew with every attempt
        kept = {name: value for name, value in passed.items() if name not in ("init_model_path", "resume_from")}
        remaining = {"start_pass": str(record.start_pass), "num_passes": str(record.passes - record.start_pass)}
        return {**kept, **remaining}
    return dict(passed)


def stage_shard(config: LauncherConfig, trainer_id: int, target: Path, memory: Memory) -> str:
    """Sees to it that this trainer's shard, and no other's, is in `target`; says what was done."""
    if memory.staged == trainer_id:
        return f"shard {trainer_id} is still in ./{target}"
    if memory.staged is not None:  # without a completion index a change of the set may give this pod another id
        unstage_data(config, memory.staged, target)
        memory.staged = None
    try:
        files = stage_data(config, trainer_id, target)
    except LaunchError:
        unstage_data(config, trainer_id, target)
        raise
    memory.staged = trainer_id
    return f"copied {files} files of shard {trainer_id} to ./{target}"


def print_plan(config: LauncherConfig, ids: IdMap, passed: Mapping[str, str]) -> None:
    """Prints pods, ids and both command lines (--dry_run)."""
    trainer_id = own_trainer_id(config, ids)
    for ip in in_id_order(ids):
        notes = [" (this pod)"] if ip == config.pod_ip else []
        notes += [] if config.runs_pserver(ids[ip]) else [", without a pserver"]
        print(f"trainer {ids[ip]}: {ip}{''.join(notes)}")
    if config.runs_pserver(trainer_id):
        print(shlex.join(build_pserver_argv(config, trainer_id, passed)))
    print(shlex.join(build_trainer_argv(config, ids, trainer_id, passed)))


def launch(cmd_args: Sequence[str], stop: Stop) -> int:
    """Does what the module's docstring says; returns the exit status or raises LaunchError."""
    refined = refine_unknown_args(cmd_args)
    passed = dict(zip(refined[::2], refined[1::2], strict=True))
    dry_run = passed.pop("dry_run", "false") not in ("false", "0")
    config = LauncherConfig.from_env(os.environ)
    wanted_passes(passed)
    if passed.get("config") and not Path(passed["config"]).is_file():
        raise MissingInputError(f"--config={passed['config']}: there is no such file in {Path.cwd()}")
    waiting = Waiting(config.start_timeout)
    if dry_run:
        ids = wait_for_pods(PodApi(config), functools.partial(complete_set, config), waiting)
        print_plan(config, ids, passed)
        return 0
    warn_of_strangers(config)
    watch_pod(config)
    api, memory = PodApi.for_role(config), Memory()
    try:
        return run_attempts(config, api, passed, stop, waiting, memory)
    except LaunchError:
        if memory.record:  # between two attempts: why there was a last one is worth more than that it is over
            say_first_failure(config.output, memory.record.name)
        raise


def run_attempts(
    config: LauncherConfig, api: PodApi, passed: Mapping[str, str], stop: Stop, waiting: Waiting, memory: Memory
) -> int:
    """Meets and trains until it is done or no retry mends it; returns the pod's exit status.

    Raises: LaunchError.
    """
    while True:
        meeting = meet(api, config, passed, waiting, memory)
        if meeting.record and meeting.record.given_up:
            return give_up(config, meeting.record, memory)
        if meeting.ids:
            say("all pods are Running: " + ", ".join(f"{meeting.ids[ip]} = {ip}" for ip in in_id_order(meeting.ids)))
        why_over = functools.partial(find_obstacle, api, config, meeting)
        outcome = run_attempt(config, meeting, passed, stop, why_over, memory)
        if not needs_another_attempt(outcome, passed):
            return outcome.status
        if stop.requested:
            return StoppedError.exit_code
        if meeting.record and not outcome.is_dissolved:
            saved = Saved()
            with contextlib.suppress(OSError):  # the next meeting says what ails the volume
                saved = find_saved(save_dir_of(config, passed))
            pause_s = pause_after(meeting.record, saved, config.restarts)
            say(f"keeping this pod and its data for the next attempt{f', in {pause_s:g} s' if pause_s else ''}")
            time.sleep(pause_s)


def needs_another_attempt(outcome: Outcome, passed: Mapping[str, str]) -> bool:
    """Tells whether to meet again: not after success or what no retry mends.

    A trainer on its own needs nobody to meet; its pod is the Job's to replace.
    """
    return outcome.is_dissolved or (outcome.status not in (0, *NEVER_RETRY) and not is_local(passed))


def pause_after(record: JobRecord, saved: Saved, restarts: int) -> float:
    """Returns the seconds before the next attempt: none at first, then 1, 2, 4 ... while nothing new is saved."""
    fruitless = count_fruitless(record, choose_origin(record, saved, record).origin, is_dissolved=False)
    if not 1 < fruitless <= restarts:
        return 0.0
    return min(LONGEST_PAUSE_S, 2.0 ** min(fruitless - 2, 10))


def find_obstacle(api: PodApi, config: LauncherConfig, meeting: Meeting) -> Outcome | None:
    """Says, while the pservers are waited for, why this attempt cannot begin to train any more; None: it can."""
    end = find_end(config, meeting.record, own_trainer_id(config, meeting.ids)) if meeting.record else None
    if not end and not is_whole(api, meeting.ids):
        return Outcome(0, "launcher", "the set of pods changed before the training began", is_dissolved=True)
    return end


def find_end(config: LauncherConfig, record: JobRecord, trainer_id: int) -> Outcome | None:
    """Says that an attempt has ended elsewhere, as far as the volume tells; None: it goes on.

    Trainer 0, who decides on the next one, hears of the first pod that failed; the others hear of the next attempt.
    """
    newest = read_record(config.output)
    if newest and newest.job_uid == record.job_uid and newest.attempt > record.attempt:
        return Outcome(LostPeerError.exit_code, "launcher", f"attempt {newest.attempt} has begun without this pod")
    first = first_failure(read_errors(config.output), record.name) if trainer_id == 0 else None
    if first:
        message = f"another pod has failed: {describe_error(first)}"
        return Outcome(LostPeerError.exit_code, "launcher", message)
    return None


# ----- Status


def show_status(cmd_args: Sequence[str]) -> int:
    """Prints how a job is (see the module's docstring) and returns the exit status.

    Raises: LaunchError: the pods cannot be listed.
    """
    jobs: list[str] = []
    flags: list[str] = []
    for before, argument in zip(["", *cmd_args], cmd_args, strict=False):  # the job may stand behind its flags, too
        is_value = before.startswith("-") and "=" not in before
        (flags if argument.startswith("-") or is_value else jobs).append(argument)
    refined = refine_unknown_args([*jobs[1:], *flags])
    options = dict(zip(refined[::2], refined[1::2], strict=True))
    unknown = sorted(options.keys() - {"namespace", "job_path"})
    if unknown:
        raise UsageError(f"status knows no flag --{unknown[0]}: status [JOB] [--namespace=NAME] [--job_path=DIRECTORY]")
    name = jobs[0] if jobs else os.environ.get("JOB_NAME", "")
    if not name:
        raise UsageError("status of which job? start_paddle.py status JOB")
    pods = parse_pods(list_pods_of(name, options.get("namespace", "")))
    output = Path(options.get("job_path") or os.environ.get("JOB_PATH") or "/home/jobpath") / name / "output"
    record = read_record(output)
    if record and any(pod.controller_uid == record.job_uid for pod in pods):
        pods = [pod for pod in pods if pod.controller_uid == record.job_uid]
    is_there = os.path.isdir(output)  # noqa: PTH112 - Path's fails where a directory above may not be looked into
    if not pods and not is_there:
        raise MissingInputError(f"there are no pods of a job {name!r} here, and no {output}: see kubectl get jobs -A")
    for line in [name, *(describe_job(output) if is_there else []), *tabulate_pods(pods, output)]:
        print(printable(line))
    if not is_there:
        print(f"there is no {output} here; inside a pod there is: kubectl exec POD -- /root/start_paddle.py status")
    return 0


def list_pods_of(job: str, namespace: str) -> JsonObject:
    """Returns the PodList of a job: from the API where this is a pod, else by kubectl."""
    if os.environ.get("KUBERNETES_SERVICE_HOST") and os.environ.get("JOB_NAME"):
        config = LauncherConfig.from_env(os.environ)
        config = dataclasses.replace(config, job_name=job, job_namespace=namespace or config.job_namespace)
        try:
            return PodApi(config).list_pods()
        except ApiError as error:
            raise error.final(str(error)) from error
    command = ["kubectl", "get", "pods", f"--selector=job-name={job}", "--output=json"]
    try:
        listed = subprocess.run(
            [*command, *([f"--namespace={namespace}"] if namespace else [])],
            capture_output=True,
            text=True,
            timeout=KUBECTL_LIMIT_S,
        )
        if listed.returncode:
            raise UnreachableError(f"{shlex.join(command)} failed: {listed.stderr.strip()}")
        return dict(json.loads(listed.stdout))
    except FileNotFoundError:
        raise MissingInputError("there is no kubectl on PATH; without a cluster: paddle status OUTPUT_DIR") from None
    except (subprocess.TimeoutExpired, ValueError, TypeError) as problem:
        raise UnreachableError(f"{shlex.join(command)}: {problem}") from problem


def read_json(path: Path) -> JsonObject:
    """Returns the object in a file, {} where there is none."""
    try:
        found = json.loads(on_volume(lambda: path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def describe_job(output: Path) -> list[str]:
    """Returns lines about a job from the files of its output: attempt, pass, cost, slowest trainer, failed attempts."""
    record, progress = read_record(output), read_json(output / "progress.json")
    lines = []
    if record:
        ended = "; the job has given up" if record.given_up else "; the job has finished" if record.finished else ""
        start = f" from {record.origin}" if record.origin else ""
        lines.append(f"attempt {record.name}{start}{ended}")
    if not progress:
        hint = "" if record else "; outside of pods trainers say so with --report"
        lines.append(f"no trainer has said yet how far it is{hint}")
    else:
        lines.append(describe_progress(progress))
    slowest = progress.get("slowest")
    if isinstance(slowest, dict) and slowest:
        lines.append(
            f"slowest: trainer {slowest.get('trainer')} on {slowest.get('host')}, "
            f"busy for {slowest.get('busy_seconds')} s where the mean of all is {slowest.get('mean_busy_seconds')} s"
        )
    failed = describe_attempts(output, record) if record and read_errors(output, "error.json*") else []
    return [*lines, *(f"  {line}" for line in failed)]


def describe_progress(progress: JsonObject) -> str:
    """Returns the line that progress.json amounts to."""
    words = [f"{progress.get('status')}: pass {progress.get('pass')}, batch {progress.get('batch')}"]
    words[0] += f" of passes 0 to {(number_of(progress.get('passes')) or 0) - 1:.0f}"
    for name, what in (("pass_fraction", "pass"), ("job_fraction", "job")):
        fraction = number_of(progress.get(name))
        words += [] if fraction is None else [f"{fraction:.0%} of the {what}"]
    words.append(f"{number_of(progress.get('samples_per_second')) or 0:.0f} samples/s")
    left = number_of(progress.get("seconds_left"))
    if left and 0 < left < END_OF_TIME:
        words.append(f"{datetime.timedelta(seconds=round(left))} left")
    evaluators = progress.get("evaluators")
    numbers = {"cost": progress.get("cost"), **(evaluators if isinstance(evaluators, dict) else {})}
    found = {name: number_of(value) for name, value in numbers.items()}
    words += [f"{name} {value:g}" for name, value in found.items() if value is not None]
    words.append(f"said {describe_age(progress)}")
    return ", ".join(words) + (f": {progress['message']}" if progress.get("message") else "")


def describe_age(progress: JsonObject) -> str:
    """Returns how long ago something was said."""
    if not is_time(progress.get("time")):
        return "at an unknown time"
    return f"{datetime.timedelta(seconds=max(0, round(time.time() - progress['time'])))} ago"


def tabulate_pods(pods: Sequence[Pod], output: Path) -> list[str]:
    """Returns a table of trainers: id, pod, node, state, and how far each is; without pods those of the output."""
    index = {f"{pod.index}": pod for pod in pods if pod.index is not None and pod.is_expected}
    nodes = read_trainers(output)
    by_host = {str(progress.get("host")): number for number, progress in nodes.items()}
    rows = [("ID", "POD", "NODE", "STATE", "PASS", "BATCH", "SAMPLES/S", "SAID")]
    for pod in sorted(pods, key=lambda pod: (pod.index is None, pod.index or 0, pod.name)):
        number = str(pod.index) if pod.index is not None else by_host.get(pod.name[:63], "?")
        is_own = index.get(number, pod) is pod  # of an index that was replaced, the pod that is there now
        progress = nodes.get(number, {}) if is_own else {}
        rows.append((number, pod.name, pod.node or "-", pod.state, *tabulate_progress(progress)))
    for number, progress in sorted(nodes.items(), key=lambda item: (len(item[0]), item[0])):
        if not pods:
            rows.append((number, str(progress.get("host")), "-", "-", *tabulate_progress(progress)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return table if len(table) > 1 else []


def read_trainers(output: Path) -> dict[str, JsonObject]:
    """Returns what each trainer has said of itself, by its id: under its node, else to trainer 0."""
    paths = []
    with contextlib.suppress(OSError):  # the volume is away
        paths = list(output.glob("node_*/progress.json"))
    told: Mapping[str, Any] = {path.parent.name.removeprefix("node_"): read_json(path) for path in paths}
    if not told:
        trainers = read_json(output / "progress.json").get("trainers")
        told = trainers if isinstance(trainers, dict) else {}
    return {number: progress for number, progress in told.items() if isinstance(progress, dict)}


def tabulate_progress(progress: JsonObject) -> tuple[str, str, str, str]:
    """Returns pass, batch, samples/s and age as a table shows them; dashes for a trainer that has not said anything."""
    if not progress:
        return "-", "-", "-", "-"
    speed = f"{number_of(progress.get('samples_per_second')) or 0:.0f}"
    return str(progress.get("pass")), str(progress.get("batch")), speed, describe_age(progress)


def main(cmd_args: Sequence[str]) -> int:
    """Runs the launcher and returns its exit status; errors become one message."""
    if any(argument in ("--help", "-h", "-help") for argument in cmd_args):
        print((__doc__ or "").format(environment=describe_environment()))
        return 0
    try:
        if cmd_args and cmd_args[0] == "status":
            return show_status(cmd_args[1:])
        return launch(cmd_args, Stop())
    except LaunchError as error:
        say(f"error: {error}")
        return error.exit_code
    except Exception:  # a bug of ours
        traceback.print_exc()
        return LaunchError.exit_code


def run() -> NoReturn:
    """The script's entry; whatever stdout is, it does not change the exit status."""
    if sys.stdout is None:  # closed by `>&-`; the next file to be opened would be taken for it
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    status = main(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:  # the interpreter would try again, and end with 120
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


if __name__ == "__main__":
    run()
