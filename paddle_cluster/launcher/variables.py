"""All environment variables of the launcher: name, default, meaning, and a parser that rejects wrong values. No I/O."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

MOST_TRAINERS = 100_000  # maximum trainers of a job, equal to the maximum pods of an Indexed Job (Kubernetes, Job API)


@dataclasses.dataclass(frozen=True)
class EnvironmentVariable:
    """An environment variable.

    If `default` is None, the variable is required. `parse` raises a ValueError that describes the expected value.
    """

    name: str
    default: str | None
    meaning: str
    parse: Callable[[str], Any] = str


def integer(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers in [low, high]."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


def matching(pattern: str, expected: str) -> Callable[[str], str]:
    """Return a parser of texts that match the pattern as a whole."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(expected)
        return text

    return parse


def seconds(text: str) -> float:
    """Parse a positive number of seconds."""
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
        "JOB_PATH", "/home/jobpath", "mount point of the shared volume", matching(r"/.*", "an absolute path")
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
        "port of trainer 0's launcher for the other launchers; 0: the port after the pserver's last port",
        integer(0, 65535),
    ),
    EnvironmentVariable(
        "CONF_PADDLE_GRADIENT_NUM",
        "the Job's own, or 3",
        "number of trainers; the default is the Job's parallelism if the pod may read the Job, and 3 otherwise",
        integer(1, MOST_TRAINERS),
    ),
    EnvironmentVariable(
        "CONF_PADDLE_GRADIENT_MIN",
        "0",
        "minimum number of trainers with which an Indexed Job continues after REJOIN_TIMEOUT; 0: all trainers",
        integer(0, MOST_TRAINERS),
    ),
    EnvironmentVariable(
        "CONF_PADDLE_PSERVER_NUM",
        "CONF_PADDLE_GRADIENT_NUM",
        "number of pods with a pserver (the lowest ids); pods beyond the number of trainers run only a pserver",
        integer(1, MOST_TRAINERS),
    ),
    EnvironmentVariable(
        "CONF_PADDLE_PSERVER_APART",
        "0",
        "1: pservers run in separate pods, with ids after the trainers; the job has pods for trainers plus pservers",
        integer(0, 1),
    ),
    EnvironmentVariable(
        "CONF_PADDLE_POD_SERVICE",
        "",
        "headless Service of the Job's pods: trainers reach pservers by JOB-INDEX.SERVICE (Indexed Job); empty: by IP",
        matching(rf"({DNS_LABEL})?", "the metadata.name of a Service"),
    ),
    EnvironmentVariable(
        "KUBERNETES_SERVICE_HOST", None, "host of the API server; set by Kubernetes", matching(r"\S+", "a host")
    ),
    EnvironmentVariable(
        "KUBERNETES_SERVICE_PORT_HTTPS", None, "port of the API server; set by Kubernetes", integer(1, 65535)
    ),
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
        "directory of token, ca.crt and namespace; without a token, requests have no Authorization header",
    ),
    EnvironmentVariable("TRAIN_CONFIG_DIR", "", "config directory; a job resumes only output of this directory"),
    EnvironmentVariable("START_TIMEOUT", "600", "seconds to wait for the pods, and then for their pservers", seconds),
    EnvironmentVariable("REJOIN_TIMEOUT", "3600", "seconds to wait for the replacement of a lost pod", seconds),
    EnvironmentVariable(
        "STOP_TIMEOUT", "20", "seconds that the trainer may take to save and end after SIGTERM", seconds
    ),
    EnvironmentVariable(
        "GOODBYE_TIMEOUT",
        "600",
        "seconds that a finished trainer waits for the other trainers",
        seconds,
    ),
    EnvironmentVariable(
        "RESTARTS",
        "10",
        "maximum number of consecutive attempts without a new checkpoint or pass; after one more the job ends",
        integer(0, 1000000),
    ),
    EnvironmentVariable("RESUME", "1", "0: do not resume from an earlier Job's output", integer(0, 1)),
    EnvironmentVariable(
        "CONF_PADDLE_METRICS_PORT",
        "0",
        "port of this pod's /healthz and /readyz; the next two ports serve /metrics of pserver and trainer; 0: none",
        integer(0, 65533),
    ),
    EnvironmentVariable(
        "CONF_PADDLE_LOG_JSON", "0", "1: pserver and trainer also write their logs as JSON lines", integer(0, 1)
    ),
    EnvironmentVariable(
        "PADDLE_STUCK_TIMEOUT",
        "1800",
        "maximum seconds of one step of a program (a batch, a piece of data) before /healthz reports it as stuck",
        seconds,
    ),
    EnvironmentVariable("PADDLE_SECRET", "", "shared secret of the job's programs; overrides PADDLE_SECRET_FILE"),
    EnvironmentVariable(
        "PADDLE_SECRET_FILE",
        "",
        "file with the shared secret (a mounted Secret); if the file is missing, the pod ends with status 78",
    ),
    EnvironmentVariable(
        "PADDLE_WITHOUT_SECRET",
        "0",
        "1: if the secret's file is missing, run without a secret, so that everyone who reaches a port can take part",
        integer(0, 1),
    ),
)


def describe_environment() -> str:
    """Return the table of variables for --help."""
    rows = []
    for variable in VARIABLES:
        default = "required" if variable.default is None else f"default: {variable.default or 'empty'}"
        rows.append(f"  {variable.name:<30} {variable.meaning} ({default})")
    return "\n".join(rows)


def parse_variable(variable: EnvironmentVariable, text: str | None) -> Any:
    """Return the value, or raise ValueError with the variable, its value and the expected form."""
    if text is None:
        raise ValueError(f"{variable.name} is not set: {variable.meaning}")
    try:
        if text == "None":
            raise ValueError("a value; 'None' usually comes from str() of an unset variable")
        return variable.parse(text)
    except ValueError as expected:
        raise ValueError(f"{variable.name} is {text!r}, expected {expected}: {variable.meaning}") from None


# variables from which start.sh builds the launcher's command line; start.sh --help describes these variables
START_SH = (
    "TRAIN_CONFIG_DIR",
    "TRAIN_CONFIG",
    "DOT_PERIOD",
    "LOG_PERIOD",
    "NUM_PASSES",
    "TRAINER_COUNT",
    "SAVING_PERIOD",
    "LOCAL",
    "USE_GPU",
    "WORK_DIR",
    "SERVICE_ACCOUNT_DIR",
)
# The variables that Kubernetes sets are omitted, because Kubernetes also sets other variables with similar names. For
# example, KUBERNETES_SERVICE_PORT resembles KUBERNETES_SERVICE_HOST.
KNOWN = frozenset((*START_SH, *(one.name for one in VARIABLES if not one.name.startswith("KUBERNETES_"))))
LEAST_LETTERS = 8  # a shorter name, such as POD_IPS, may resemble a variable by accident
SIMILARITY = 0.9  # minimum ratio of difflib; the ratio is 0.95 for NUM_PASES and NUM_PASSES


def find_misspelt(names: Iterable[str], known: Collection[str] = KNOWN) -> dict[str, str]:
    """Return, for each name that looks like a misspelt variable, the variable that it resembles most."""
    found: dict[str, str] = {}
    for name in names:
        if name not in known and len(name) >= LEAST_LETTERS:
            swapped = [one for one in known if sorted(one) == sorted(name)]  # for difflib they differ in two letters
            found.update((name, one) for one in swapped or difflib.get_close_matches(name, known, 1, SIMILARITY))
    return found
