"""Build the command of a role from the environment and the arguments, without input or output.

The variables come from this project, the tutorial's Job, and the 2017 runtime image (spec/distributed.md 2.4).
`start.sh --help` describes the variables. If an argument sets a flag, the variables of this flag have no effect. If
several variables of a flag are set, the first variable in the flag's row of FLAGS has precedence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from paddle_base.runtime.gflags import read_pairs
from paddle_cluster.launcher.entry import INIT, first_in_path, flags_as_variables, shell_words
from paddle_cluster.launcher.settings import KNOWN, VARIABLES

MASTER, PSERVER, TRAINER, AUTOSCALER, DRIVER = "master", "pserver", "trainer", "autoscaler", "driver"
ROLES = (MASTER, PSERVER, TRAINER, AUTOSCALER, DRIVER)
WITHOUT_ETCD = (AUTOSCALER, DRIVER)
EXIT, WAIT = "exit", "wait"  # what a role does after the end of the job
ETCD_PORT = 2379


@dataclass(frozen=True)
class RoleFlag:
    """A flag of a role's program: the variables that can set its value, in order of precedence, and its default.

    default: if it is "", the flag is omitted. If it begins with '/', it is a path below the job's directory.
    """

    name: str
    variables: tuple[str, ...]
    default: str = ""


_DEFAULTS = {one.name: one.default or "" for one in VARIABLES}
_PORTS = ("metrics_port", ("CONF_PADDLE_METRICS_PORT",))
_NICS = ("nics", ("CONF_PADDLE_NIC", f"{INIT}NICS"))
_JOB = ("JOB_NAME", "PADDLE_JOB_NAME")
FLAGS: Mapping[str, tuple[RoleFlag, ...]] = {
    MASTER: (
        RoleFlag("etcd_endpoints", ("ETCD_ENDPOINTS",)),
        RoleFlag("job", _JOB),
        RoleFlag("num_passes", ("NUM_PASSES", f"{INIT}NUM_PASSES"), "10"),
        RoleFlag("output", ("OUTPUT",), "/output"),
        RoleFlag(*_NICS),
        RoleFlag(*_PORTS),
    ),
    PSERVER: (
        RoleFlag("etcd_endpoints", ("ETCD_ENDPOINTS",)),
        RoleFlag("job", _JOB),
        RoleFlag("num_pservers", ("PSERVERS",)),
        RoleFlag("port", ("CONF_PADDLE_PORT", f"{INIT}PORT"), _DEFAULTS["CONF_PADDLE_PORT"]),
        RoleFlag("ports_num", ("CONF_PADDLE_PORTS_NUM", f"{INIT}PORTS_NUM")),
        RoleFlag("ports_num_for_sparse", ("CONF_PADDLE_PORTS_NUM_SPARSE", f"{INIT}PORTS_NUM_FOR_SPARSE")),
        RoleFlag("checkpoint_path", ("CHECKPOINT_PATH",), "/servers"),
        RoleFlag("checkpoint_interval", ("CHECKPOINT_INTERVAL",)),
        RoleFlag(*_NICS),
        RoleFlag(*_PORTS),
    ),
    TRAINER: (
        RoleFlag("etcd_endpoints", ("ETCD_ENDPOINTS",)),
        RoleFlag("job_name", _JOB),
        RoleFlag("config", ("TRAIN_CONFIG", "TOPOLOGY")),
        RoleFlag("save_dir", ("OUTPUT",), "/output"),
        RoleFlag("trainer_count", ("TRAINER_COUNT", f"{INIT}TRAINER_COUNT")),
        RoleFlag("use_gpu", ("USE_GPU", f"{INIT}USE_GPU")),
        RoleFlag("log_period", ("LOG_PERIOD",)),
        RoleFlag("dot_period", ("DOT_PERIOD",)),
        RoleFlag("saving_period", ("SAVING_PERIOD",)),
        RoleFlag(*_PORTS),
    ),
    AUTOSCALER: (),
    DRIVER: (
        RoleFlag("num-proc", ("NUM_PROC",), "1"),
        RoleFlag("min-np", ("MIN_NP",)),
        RoleFlag("max-np", ("MAX_NP",)),
        RoleFlag("discovery", ("DISCOVERY",), "kubernetes"),
        RoleFlag("store-dir", ("STORE_DIR",), "/driver"),
        RoleFlag("output-filename", ("OUTPUT",), "/output"),
        RoleFlag("address", ("DRIVER_ADDRESS",)),
        RoleFlag("port", ("DRIVER_PORT",)),
    ),
}
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    MASTER: ("master",),
    PSERVER: ("pserver",),
    TRAINER: ("train",),
    AUTOSCALER: ("autoscaler",),
    DRIVER: ("elastic", "run"),
}
# exit statuses of a driver after which the Job's next pod continues the job: 69 (the job cannot begin, or a peer does
# not answer), 74 (volume error), 75 (lost peer), 137 (SIGKILL) and 143 (SIGTERM)
DRIVER_GOES_ON = (69, 74, 75, 137, 143)
# variables of the 2017 image that a trainer ignores, because it reads their values from etcd
_FOUND = {
    "PORT", "PORTS_NUM", "PORTS_NUM_FOR_SPARSE", "NICS", "NUM_GRADIENT_SERVERS", "NUM_PASSES", "PSERVERS", "TRAINER_ID",
}  # fmt: skip
# variables of roles that set no flag; start.sh reads some of them for a trainer
_OTHERS = (
    "ETCD_IP", "MASTER_IP", "ETCD_TIMEOUT", "AT_END", "SCALE_TO_ZERO", "TRAINER_PACKAGE", "VOLUME_TIMEOUT", "ENTRY",
    "TRAIN_LIST",
)  # fmt: skip
# every role knows the variables of all: the pods of a job often share their variables
KNOWN_TO_ROLES = KNOWN.union(
    _OTHERS,
    (INIT + name for name in _FOUND),
    *(flag.variables for flags in FLAGS.values() for flag in flags),
)
_TARGET = re.compile(r"(statefulsets|deployments|replicasets)/[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class RolePlan:
    """What a role does: its command, whether it waits for SIGTERM after the job, and which objects it scales to 0 pods.

    targets: names of the form "statefulsets/NAME".  notes: lines for the log.  etcd: host and port of each endpoint in
    the environment.  etcd_timeout: seconds within which one endpoint must accept a connection.  goes_on: exit statuses
    after which the job continues; empty: the job is over after status 0, and with targets also after status 65.
    program: the command of ENTRY, which a shell runs; empty: the role runs a program of this project.  variables: what
    the program of ENTRY gets beside the pod's own variables.
    """

    command: tuple[str, ...]
    waits: bool = False
    targets: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    etcd: tuple[tuple[str, int], ...] = ()
    etcd_timeout: float = 0.0
    goes_on: tuple[int, ...] = ()
    program: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"sh -c {self.program!r}" if self.program else " ".join(self.command)


class RoleError(ValueError):
    """The environment lacks a variable that a role needs; the error's text has one line for each problem."""


def plan_role(role: str, arguments: Sequence[str], environ: Mapping[str, str]) -> RolePlan:
    """Return the plan of a role.

    Raises: RoleError.
    """
    problems: list[str] = []
    environ = {**environ, "ETCD_ENDPOINTS": find_etcd(environ)}
    flags = [
        f"--{flag.name}={value}"
        for flag in FLAGS[role]
        # A driver's arguments end with the worker's command, whose flags must not be parsed. A driver therefore gets
        # the flags of all variables, even if an argument repeats a flag; the last value of a flag counts.
        if (role == DRIVER or not has_flag(flag.name, arguments)) and (value := _value(flag, environ, problems))
    ]
    if role not in WITHOUT_ETCD and not _names_a_store(environ, arguments):
        problems.append(
            "ETCD_ENDPOINTS is not set in the pod's env; set it to http://host:2379 of the etcd, as k8s/tasks does"
        )
    notes: list[str] = []
    if role == TRAINER:
        flags += _other_flags(environ, [*arguments, *flags])
        if environ.get("TRAIN_LIST"):
            notes.append("TRAIN_LIST is not read: the master distributes the files that the config or program names")
    at_end, targets = environ.get("AT_END") or EXIT, tuple(environ.get("SCALE_TO_ZERO", "").split())
    if at_end not in (EXIT, WAIT):
        problems.append(f"AT_END is '{at_end}'; set it to {EXIT} or {WAIT}")
    for target in targets:
        if not _TARGET.fullmatch(target):
            problems.append(f"SCALE_TO_ZERO has '{target}'; write each object as statefulsets/NAME or deployments/NAME")
    etcd = () if role in WITHOUT_ETCD else list_places(environ["ETCD_ENDPOINTS"])
    limit = environ.get("ETCD_TIMEOUT") or "600"
    if not re.fullmatch(r"[0-9]{1,6}", limit):
        problems.append(f"ETCD_TIMEOUT is '{limit}'; set it to whole seconds, e.g. 600")
    if problems:
        raise RoleError("\n".join(problems))
    command = ("paddle", *PROGRAMS[role], *flags, *arguments)
    goes_on = DRIVER_GOES_ON if role == DRIVER else ()
    plan = RolePlan(command, at_end == WAIT, targets, tuple(notes), etcd, float(limit), goes_on)
    if role == TRAINER and environ.get("ENTRY", "").strip():
        return plan_program(plan, [*flags, *arguments], environ)
    return plan


def plan_program(plan: RolePlan, flags: Sequence[str], environ: Mapping[str, str]) -> RolePlan:
    """Return the plan of a trainer that runs a program of ENTRY in place of `paddle train`.

    Args: plan: that of `paddle train`. flags: those of `paddle train`, which `paddle.init` reads as PADDLE_INIT_X.
    Raises: UsageError: an argument is no flag.
    """
    given = dict(read_pairs(flags))
    variables = flags_as_variables(given)
    host = next((host for host, _ in plan.etcd), "")
    own = {
        "ETCD_ENDPOINTS": environ["ETCD_ENDPOINTS"],
        "ETCD_IP": environ.get("ETCD_IP") or host,
        "MASTER_IP": environ.get("MASTER_IP") or host,
        "PADDLE_JOB_NAME": given.get("job_name", ""),
        "PADDLE_OUTPUT": given.get("save_dir", ""),
    }
    if package := environ.get("TRAINER_PACKAGE"):
        own["PYTHONPATH"] = first_in_path(package, environ.get("PYTHONPATH", ""))
    variables |= {name: text for name, text in own.items() if text}
    program = environ["ENTRY"]
    return replace(plan, command=shell_words(program), program=program, variables=variables)


def find_etcd(environ: Mapping[str, str]) -> str:
    """Return the endpoints of etcd, from ETCD_ENDPOINTS, ETCD_IP (of the 2017 image) or the master's address."""
    address = environ.get("ETCD_IP") or environ.get("MASTER_IP")
    return environ.get("ETCD_ENDPOINTS") or (f"http://{address}:{ETCD_PORT}" if address else "")


def list_places(endpoints: str) -> tuple[tuple[str, int], ...]:
    """Return host and port of each endpoint in a comma-separated list, or () if an endpoint is malformed.

    The role's program reports a malformed endpoint.
    """
    places = []
    for text in filter(None, (one.strip() for one in endpoints.split(","))):
        try:
            parts = urlsplit(text if "//" in text else f"http://{text}")
            places.append((parts.hostname or "", parts.port or ETCD_PORT))
        except ValueError:
            return ()
    return tuple(places)


def has_flag(name: str, arguments: Sequence[str]) -> bool:
    """Return whether the arguments contain a flag with one dash or two; its value follows '=' or is the next word."""
    return any(re.fullmatch(rf"--?{name}(=.*)?", argument, re.DOTALL) for argument in arguments)


def _value(flag: RoleFlag, environ: Mapping[str, str], problems: list[str]) -> str:
    for name in flag.variables:
        if environ.get(name):
            return environ[name]
    if not flag.default.startswith("/"):
        return flag.default
    job = next((environ[name] for name in _JOB if environ.get(name)), "")
    if not environ.get("JOB_PATH") or not job:
        problems.append(
            f"{flag.variables[0]} is not set in the pod's env; set it, or set JOB_PATH and JOB_NAME, from "
            f"which the default JOB_PATH/JOB_NAME{flag.default} is built"
        )
        return ""
    return f"{environ['JOB_PATH'].rstrip('/')}/{job}{flag.default}"


def _names_a_store(environ: Mapping[str, str], arguments: Sequence[str]) -> bool:
    names = ("etcd_endpoints", "endpoints", "etcd_endpoint", "store_dir")
    return bool(environ["ETCD_ENDPOINTS"]) or any(has_flag(name, arguments) for name in names)


def _other_flags(environ: Mapping[str, str], given: Sequence[str]) -> list[str]:
    """Return --x=value for each variable PADDLE_INIT_X that no flag in FLAGS reads, as paddle.init of 2017 does."""
    names = sorted(name.removeprefix(INIT) for name in environ if re.fullmatch(rf"{INIT}[A-Z][A-Z0-9_]*", name))
    others = [name for name in names if name not in _FOUND and not has_flag(name.lower(), given)]
    return [f"--{name.lower()}={environ[INIT + name]}" for name in others if environ[INIT + name]]
