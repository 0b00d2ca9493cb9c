"""Every variable of the environment, and the typed settings that they amount to."""

from __future__ import annotations

import dataclasses
import os
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launcher.text import say
from launcher.volume import read_file
from runtime.errors import ConfigError

TOKEN_LIMIT = 64 << 10  # bytes of a file of the service account; a token has about 1,000
MOST_TRAINERS = 100_000  # trainers of a job; the most pods that an Indexed Job may have (Kubernetes, Job API)
TUTORIALS_PODS = "3"  # pods of a job whose number is not given and cannot be read; the tutorial has three


@dataclasses.dataclass(frozen=True)
class EnvironmentVariable:
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
    EnvironmentVariable(
        "JOB_NAME",
        None,
        "name of the Job, and of its directory below JOB_PATH",
        matching(rf"{DNS_LABEL}(\.{DNS_LABEL})*", "the Job's metadata.name"),
    ),
    EnvironmentVariable(
        "JOB_PATH", "/home/jobpath", "where the shared volume is mounted", matching(r"/.*", "an absolute path")
    ),
    EnvironmentVariable(
        "JOB_NAMESPACE", "the service account's", "namespace of the Job", matching(DNS_LABEL, "a namespace")
    ),
    EnvironmentVariable(
        "CONF_PADDLE_NIC",
        "eth0",
        "network interface (eth0) or address that the pserver binds",
        matching(r"\S+", "an interface's name or address"),
    ),
    EnvironmentVariable("CONF_PADDLE_PORT", "7164", "first port of the pserver", integer(1, 65535)),
    EnvironmentVariable("CONF_PADDLE_PORTS_NUM", "2", "ports for dense parameters", integer(1, 1024)),
    EnvironmentVariable("CONF_PADDLE_PORTS_NUM_SPARSE", "2", "ports for sparse parameters", integer(0, 1024)),
    EnvironmentVariable(
        "CONF_PADDLE_CONTROL_PORT",
        "0",
        "port of trainer 0's launcher, where the others meet it; 0: the one behind the last port of the pserver",
        integer(0, 65535),
    ),
    EnvironmentVariable(
        "CONF_PADDLE_GRADIENT_NUM",
        "the Job's own, or 3",
        "number of trainers = pods of the job; the Job's parallelism where the pod may read it",
        integer(1, MOST_TRAINERS),
    ),
    EnvironmentVariable(
        "CONF_PADDLE_PSERVER_NUM",
        "CONF_PADDLE_GRADIENT_NUM",
        "pods that run a pserver beside their trainer: those with the lowest ids",
        integer(1, MOST_TRAINERS),
    ),
    EnvironmentVariable("KUBERNETES_SERVICE_HOST", None, "API server; Kubernetes sets it", matching(r"\S+", "a host")),
    EnvironmentVariable("KUBERNETES_SERVICE_PORT_HTTPS", None, "its port; Kubernetes sets it", integer(1, 65535)),
    EnvironmentVariable(
        "POD_IP",
        "gethostbyname(gethostname())",
        "this pod's IP, by the downward API (status.podIP)",
        matching(r"[0-9]+(\.[0-9]+){3}", "an IPv4 address"),
    ),
    EnvironmentVariable("POD_NAME", "the host name", "this pod's name, by the downward API (metadata.name)"),
    EnvironmentVariable(
        "JOB_COMPLETION_INDEX",
        "",
        "this pod's completion index; Kubernetes sets it in an Indexed Job",
        matching("[0-9]*", "a whole number"),
    ),
    EnvironmentVariable(
        "SERVICE_ACCOUNT_DIR",
        "/var/run/secrets/kubernetes.io/serviceaccount",
        "where token, ca.crt and namespace are; without a token no Authorization header is sent",
    ),
    EnvironmentVariable("TRAIN_CONFIG_DIR", "", "config directory; output that another one has made is not continued"),
    EnvironmentVariable("START_TIMEOUT", "600", "seconds to wait for the pods, and then for their pservers", seconds),
    EnvironmentVariable("REJOIN_TIMEOUT", "3600", "seconds to wait for a full set of pods after one was lost", seconds),
    EnvironmentVariable(
        "STOP_TIMEOUT", "20", "seconds that the trainer may take to save and end after SIGTERM", seconds
    ),
    EnvironmentVariable(
        "GOODBYE_TIMEOUT", "600", "seconds to wait for the other trainers to finish after our own did", seconds
    ),
    EnvironmentVariable(
        "RESTARTS",
        "10",
        "further attempts after the first, in a row without a new checkpoint or pass",
        integer(0, 1000000),
    ),
    EnvironmentVariable("RESUME", "1", "0: never go on from an earlier Job's output, start afresh", integer(0, 1)),
    EnvironmentVariable(
        "CONF_PADDLE_METRICS_PORT",
        "0",
        "port of this pod's /healthz and /readyz; those of its pserver and trainer, with /metrics, follow; 0: none",
        integer(0, 65533),
    ),
    EnvironmentVariable(
        "CONF_PADDLE_LOG_JSON", "0", "1: both programs log as JSON lines, too, beside their logs", integer(0, 1)
    ),
    EnvironmentVariable(
        "PADDLE_STUCK_TIMEOUT",
        "1800",
        "seconds in one turn of a program's loop (a batch, a piece of data) after which /healthz calls it stuck",
        seconds,
    ),
    EnvironmentVariable("PADDLE_SECRET", "", "shared secret of the job's programs; wins over PADDLE_SECRET_FILE"),
    EnvironmentVariable(
        "PADDLE_SECRET_FILE", "", "file with that secret (of a mounted Secret); absent: none, with a WARNING"
    ),
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
    control_port: int
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

        Raises: ConfigError with all problems, one a line.
        """
        account = Path(environ.get("SERVICE_ACCOUNT_DIR") or "/var/run/secrets/kubernetes.io/serviceaccount")
        defaults = {variable.name: variable.default for variable in VARIABLES}
        defaults["JOB_NAMESPACE"] = read_text(account / "namespace")
        defaults["POD_NAME"] = socket.gethostname()
        defaults["CONF_PADDLE_GRADIENT_NUM"] = TUTORIALS_PODS  # until the API server is asked
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
        is_known = bool(environ.get("CONF_PADDLE_GRADIENT_NUM"))
        if not problems and is_known and values["pserver_num"] > values["gradient_num"]:
            pods = f"CONF_PADDLE_GRADIENT_NUM = {values['gradient_num']} pods"
            problems.append(f"CONF_PADDLE_PSERVER_NUM is {values['pserver_num']}, but there are only {pods}; lower it")
        if not problems and values["port"] + values["ports_num"] + values["ports_num_sparse"] - 1 > 65535:
            count = f"{values['ports_num']} dense and {values['ports_num_sparse']} sparse ports"
            problems.append(f"CONF_PADDLE_PORT is {values['port']}: with {count} it runs past 65535; lower it")
        if not problems and not values["control_port"]:
            values["control_port"] = choose_control_port(values)
        if not problems:
            problems += find_overlap(values)
        if problems:
            listed = "\n".join(f"  {problem}" for problem in problems)
            raise ConfigError(f"the environment of this pod is not right (--help has the table):\n{listed}")
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


def choose_control_port(values: Mapping[str, Any]) -> int:
    """Returns the port of trainer 0's launcher where none is set: the same one in every pod of a job.

    It is the port behind the pserver's last one, the port behind those of the probes if they take that, and the port
    before the pserver's first one if there is no port behind.
    """
    first, watching = int(values["port"]), int(values["metrics_port"])
    behind = first + int(values["ports_num"]) + int(values["ports_num_sparse"])
    if watching and watching <= behind <= watching + 2:
        behind = watching + 3
    return behind if behind <= 65535 else first - 1


def find_overlap(values: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each port that two programs of the pod would have."""
    watching, control, first = values["metrics_port"], values["control_port"], values["port"]
    last = first + values["ports_num"] + values["ports_num_sparse"] - 1
    theirs = f"the pserver has ports {first} to {last}"
    problems = []
    if watching and watching + 2 >= first and watching <= last:
        problems = [
            f"CONF_PADDLE_METRICS_PORT is {watching}: it and the two ports behind it must be free, but {theirs}"
        ]
    if watching and watching <= control <= watching + 2:
        probes = f"CONF_PADDLE_METRICS_PORT has ports {watching} to {watching + 2}"
        problems.append(f"CONF_PADDLE_CONTROL_PORT is {control}, but {probes}; choose another one")
    if first <= control <= last:
        problems.append(f"CONF_PADDLE_CONTROL_PORT is {control}, but {theirs}; choose another one")
    return problems


def parse_variable(variable: EnvironmentVariable, text: str | None) -> Any:
    """Returns the value, or raises ValueError with a sentence that names variable, value and what is expected."""
    if text is None:
        raise ValueError(f"{variable.name} is not set: {variable.meaning}")
    try:
        if text == "None":
            raise ValueError("a value; 'None' is what an unset variable looks like after str()")
        return variable.parse(text)
    except ValueError as expected:
        raise ValueError(f"{variable.name} is {text!r}, expected {expected}: {variable.meaning}") from None


def expected_pods(environ: Mapping[str, str]) -> int:
    """Returns CONF_PADDLE_GRADIENT_NUM. Raises: ConfigError: it is missing or no number."""
    variable = next(variable for variable in VARIABLES if variable.name == "CONF_PADDLE_GRADIENT_NUM")
    try:
        return int(parse_variable(variable, environ.get(variable.name)))
    except ValueError as problem:
        raise ConfigError(str(problem)) from None


def own_address() -> str:
    """Returns this host's address the tutorial's way."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "0.0.0.0"  # in no pod list, so the message about POD_IP follows


def read_text(path: Path) -> str | None:
    """Returns the stripped text of a file of the service account, or None where there is none or it is empty.

    Raises: ConfigError: it is there, but cannot be read, or is no single word. The error does not show it.
    """
    try:
        text = read_file(path, TOKEN_LIMIT).decode("ascii").strip()
        if text and not re.fullmatch(r"[!-~]+", text):
            raise ValueError("it has a blank, a line break or a control character inside")
        return text or None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as problem:
        why = "it is no ASCII text" if isinstance(problem, UnicodeDecodeError) else str(problem)
        raise ConfigError(
            f"uid {os.getuid()} cannot read {path} of its service account: {why}; mount the one that Kubernetes makes"
        ) from None


def warn_without_secret(config: LauncherConfig) -> None:
    """Warns when the programs of this pod will have no secret; they read its file themselves."""
    if config.secret or (config.secret_file and Path(config.secret_file).is_file()):
        return
    absent = f"no file {config.secret_file}" if config.secret_file else "no PADDLE_SECRET_FILE"
    last = config.port + config.ports_num + config.ports_num_sparse - 1
    say(
        f"WARNING: no secret ({absent}): anyone who reaches ports {config.port} to {last} of this pod can take part in "
        "the training. Before the next Job: kubectl create secret generic paddle-secret "
        '--from-literal=secret="$(openssl rand -hex 32)" (docs/security.md)'
    )
