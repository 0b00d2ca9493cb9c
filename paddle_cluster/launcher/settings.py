"""The typed settings of the launcher, parsed from the environment variables."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from paddle_base.remote.addresses import STORES, Address, parse_address
from paddle_base.runtime.environment import (
    MAKE_SECRET,
    SECRET,
    SECRET_FILE,
    WITHOUT_SECRET,
    JobEnvironment,
    find_misspelt,
    read_environment,
)
from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.kubernetes.account import ACCOUNT, read_text
from paddle_cluster.launcher.layout import PodLayout
from paddle_cluster.launcher.text import say
from paddle_cluster.launcher.variables import (
    DNS_LABEL,
    MOST_TRAINERS,
    integer,
    matching,
    seconds,
    switch,
    variable,
    variables_of,
)

NUM_PSERVERS = "NUM_PSERVERS"  # a second name of CONF_PADDLE_PSERVER_NUM, which has precedence
TUTORIALS_PODS = "3"  # number of pods of a job if the number is neither set nor readable, as in the tutorial


def own_address() -> str:
    """Return the IP address to which this host's name resolves, as the tutorial does."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "0.0.0.0"  # no pod has this address; own_trainer_id then raises an error about POD_IP


def own_namespace(environ: Mapping[str, str]) -> str | None:
    """Return the namespace of the pod's service account, or None without one. Raises: ConfigError: see read_text."""
    return read_text(Path(environ.get("SERVICE_ACCOUNT_DIR") or ACCOUNT) / "namespace")


def absolute(text: str) -> Path:
    """Parse the absolute path of a directory."""
    return Path(matching(r"/.*", "an absolute path")(text))


def bucket(name: str) -> Callable[[str], Address | None]:
    """Return a parser of addresses of buckets; None stands for an empty text. It raises ConfigError."""

    def parse(text: str) -> Address | None:
        found = parse_address(text, name)
        if text and found.scheme not in STORES:
            raise ConfigError(f"{name} is {found}, which is no address in a bucket; write for example s3://BUCKET/KEY")
        return found if text else None

    return parse


@dataclasses.dataclass(frozen=True)
class LauncherConfig:
    """The checked settings of the pod: each field is an environment variable.

    A field has its variable's name in lower case without CONF_PADDLE_ and PADDLE_. To add a variable, add a field.
    """

    job_name: str = variable(
        "JOB_NAME",
        None,
        "name of the Job, and of its directory below JOB_PATH",
        matching(rf"{DNS_LABEL}(\.{DNS_LABEL})*", "the Job's metadata.name"),
    )
    job_path: Path = variable("JOB_PATH", "/home/jobpath", "mount point of the shared volume", absolute)  # noqa: RUF009
    job_input: Address | None = variable(  # noqa: RUF009
        "JOB_INPUT",
        "",
        "address in a bucket that has the config directory and the shards in place of JOB_PATH/JOB_NAME: "
        "s3://BUCKET/KEY; empty: the volume has them",
        bucket("JOB_INPUT"),
    )
    input_timeout: float = variable(
        "INPUT_TIMEOUT",
        "3600",
        "seconds after which a copy from JOB_INPUT, or of one file to OUTPUT_COPY, gives up",
        seconds,
    )
    output_copy: Address | None = variable(  # noqa: RUF009
        "OUTPUT_COPY",
        "",
        "address in a bucket to which the output is copied: each save when it is complete, its mark last; empty: none",
        bucket("OUTPUT_COPY"),
    )
    job_namespace: str = variable(
        "JOB_NAMESPACE",
        "the service account's",
        "namespace of the Job",
        matching(DNS_LABEL, "a namespace"),
        own_namespace,
    )
    nic: str = variable(
        "CONF_PADDLE_NIC",
        "eth0",
        "network interface (eth0) or address that the pserver binds",
        matching(r"\S+", "an interface's name or address"),
    )
    port: int = variable("CONF_PADDLE_PORT", "7164", "first port of the pserver", integer(1, 65535))
    ports_num: int = variable("CONF_PADDLE_PORTS_NUM", "2", "ports for dense parameters", integer(1, 1024))
    ports_num_sparse: int = variable(
        "CONF_PADDLE_PORTS_NUM_SPARSE", "2", "ports for sparse parameters", integer(0, 1024)
    )
    control_port: int = variable(
        "CONF_PADDLE_CONTROL_PORT",
        "0",
        "port of trainer 0's launcher for the other launchers; 0: the port after the pserver's last port",
        integer(0, 65535),
    )
    gradient_num: int = variable(
        "CONF_PADDLE_GRADIENT_NUM",
        "the Job's own, or 3",
        "number of trainers; the default is the Job's parallelism if the pod may read the Job, and 3 otherwise",
        integer(1, MOST_TRAINERS),
        lambda _: TUTORIALS_PODS,
    )
    gradient_min: int = variable(
        "CONF_PADDLE_GRADIENT_MIN",
        "0",
        "minimum number of trainers with which an Indexed Job continues after REJOIN_TIMEOUT; 0: all trainers",
        integer(0, MOST_TRAINERS),
    )
    pserver_num: int = variable(
        "CONF_PADDLE_PSERVER_NUM",
        "CONF_PADDLE_GRADIENT_NUM",
        "number of pods with a pserver (the lowest ids); pods beyond the number of trainers run only a pserver; "
        "0: none, for a program of ENTRY",
        integer(0, MOST_TRAINERS),
        lambda environ: environ.get(NUM_PSERVERS) or "1",
    )
    pserver_apart: bool = variable(
        "CONF_PADDLE_PSERVER_APART",
        "0",
        "1: pservers run in separate pods, with ids after the trainers; the job has pods for trainers plus pservers",
        switch,
    )
    pod_service: str = variable(
        "CONF_PADDLE_POD_SERVICE",
        "",
        "headless Service of the Job's pods: trainers reach pservers by JOB-INDEX.SERVICE (Indexed Job); empty: by IP",
        matching(rf"({DNS_LABEL})?", "the metadata.name of a Service"),
    )
    kubernetes_service_host: str = variable(
        "KUBERNETES_SERVICE_HOST", None, "host of the API server; set by Kubernetes", matching(r"\S+", "a host")
    )
    kubernetes_service_port_https: int = variable(
        "KUBERNETES_SERVICE_PORT_HTTPS", None, "port of the API server; set by Kubernetes", integer(1, 65535)
    )
    pod_ip: str = variable(
        "POD_IP",
        "gethostbyname(gethostname())",
        "this pod's IP, by the downward API (status.podIP)",
        matching(r"[0-9]+(\.[0-9]+){3}", "an IPv4 address"),
        lambda _: own_address(),
    )
    pod_name: str = variable(
        "POD_NAME",
        "the host name",
        "this pod's name, by the downward API (metadata.name)",
        find=lambda _: socket.gethostname(),
    )
    job_completion_index: str = variable(
        "JOB_COMPLETION_INDEX",
        "",
        "this pod's completion index; Kubernetes sets it in an Indexed Job",
        matching("[0-9]*", "a whole number"),
    )
    service_account_dir: Path = variable(  # noqa: RUF009
        "SERVICE_ACCOUNT_DIR",
        str(ACCOUNT),
        "directory of token, ca.crt and namespace; without a token, requests have no Authorization header",
        Path,
    )
    train_config_dir: str = variable(
        "TRAIN_CONFIG_DIR", "", "config directory; a job resumes only output of this directory"
    )
    entry: str = variable(
        "ENTRY",
        "",
        "command of a shell that each trainer runs in place of `paddle train`, for example: python train.py",
        matching(r"(?s)(.*\S.*)?", "a command"),
    )
    trainer_package: str = variable(
        "TRAINER_PACKAGE",
        "",
        "ENTRY: directory of the program in place of JOB_PATH/JOB_NAME/TRAIN_CONFIG_DIR; comes first in PYTHONPATH",
    )
    master_port: int = variable(
        "MASTER_PORT", "29500", "ENTRY: port of rank 0 at which the program's processes meet", integer(1, 65535)
    )
    start_timeout: float = variable(
        "START_TIMEOUT", "600", "seconds to wait for the pods, and then for their pservers", seconds
    )
    rejoin_timeout: float = variable(
        "REJOIN_TIMEOUT", "3600", "seconds to wait for the replacement of a lost pod", seconds
    )
    stop_timeout: float = variable(
        "STOP_TIMEOUT", "20", "seconds that the trainer may take to save and end after SIGTERM", seconds
    )
    goodbye_timeout: float = variable(
        "GOODBYE_TIMEOUT", "600", "seconds that a finished trainer waits for the other trainers", seconds
    )
    restarts: int = variable(
        "RESTARTS",
        "10",
        "maximum number of consecutive attempts without a new checkpoint or pass; after one more the job ends",
        integer(0, 1000000),
    )
    resume: bool = variable("RESUME", "1", "0: do not resume from an earlier Job's output", switch)
    metrics_port: int = variable(
        "CONF_PADDLE_METRICS_PORT",
        "0",
        "port of this pod's /healthz and /readyz; the next two ports serve /metrics of pserver and trainer; 0: none",
        integer(0, 65533),
    )
    log_json: bool = variable(
        "CONF_PADDLE_LOG_JSON", "0", "1: pserver and trainer also write their logs as JSON lines", switch
    )
    stuck_timeout: float = variable(
        "PADDLE_STUCK_TIMEOUT",
        f"{JobEnvironment.stuck_timeout:g}",
        "maximum seconds of one step of a program (a batch, a piece of data) before /healthz reports it as stuck",
        seconds,
    )
    secret: str = variable(SECRET, "", "shared secret of the job's programs; overrides PADDLE_SECRET_FILE", repr=False)
    secret_file: str = variable(
        SECRET_FILE,
        "",
        "file with the shared secret (a mounted Secret); if the file is missing, the pod ends with status 78",
    )
    without_secret: bool = variable(
        WITHOUT_SECRET,
        "0",
        "1: if the secret's file is missing, run without a secret, so that everyone who reaches a port can take part",
        switch,
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> LauncherConfig:
        """Read the variable of every field.

        Raises: ConfigError: variables are missing or wrong; the error has one line for each problem.
        """
        own_namespace(environ)  # an account with a file that cannot be read is no account, even if JOB_NAMESPACE is set
        values: dict[str, Any] = {}
        problems = []
        for name, one in variables_of(cls).items():
            try:
                values[name] = one.read(environ)
            except ValueError as problem:
                problems.append(str(problem))
        if not (environ.get("CONF_PADDLE_PSERVER_NUM") or environ.get(NUM_PSERVERS)):
            values["pserver_num"] = values.get("gradient_num", 1)
        problems += [] if problems else find_missing_numbers(environ, values)
        if not problems and values["port"] + values["ports_num"] + values["ports_num_sparse"] - 1 > 65535:
            count = f"{values['ports_num']} dense and {values['ports_num_sparse']} sparse ports"
            problems.append(
                f"CONF_PADDLE_PORT is {values['port']}: with {count} the last port is above 65535; lower it"
            )
        if not problems and not values["control_port"]:
            values["control_port"] = choose_control_port(values)
        if not problems:
            problems += find_overlap(values)
        if problems:
            listed = "\n".join(f"  {problem}" for problem in problems)
            raise ConfigError(f"the environment of this pod is not right (--help describes the variables):\n{listed}")
        return cls(**values)

    @property
    def job_dir(self) -> Path:
        """The directory <JOB_PATH>/<JOB_NAME>, which contains the shards, config and output of the job."""
        return self.job_path / self.job_name

    @property
    def output(self) -> Path:
        """The directory of logs, parameters and job.json; all pods of the job share it."""
        return self.job_dir / "output"

    @property
    def layout(self) -> PodLayout:
        """The pods that run a trainer, and the pods that run a pserver."""
        return PodLayout(self.gradient_num, self.pserver_num, self.pserver_apart and self.pserver_num > 0)

    @property
    def may_shrink(self) -> bool:
        """Whether the Job may continue without pods that are gone."""
        return may_shrink(self.layout, self.gradient_min)

    def having(self, layout: PodLayout) -> LauncherConfig:
        """Return the config of an attempt with these numbers of trainers and pservers."""
        return dataclasses.replace(self, gradient_num=layout.trainers, pserver_num=layout.pservers)


VARIABLES = tuple(variables_of(LauncherConfig).values())
# variables that only start.sh reads, to build the launcher's command line; start.sh --help describes them
START_SH = (
    "TRAIN_CONFIG", "DOT_PERIOD", "LOG_PERIOD", "NUM_PASSES", "TRAINER_COUNT", "SAVING_PERIOD", "LOCAL", "USE_GPU",
    "WORK_DIR", NUM_PSERVERS,
)  # fmt: skip
# The variables that Kubernetes sets are omitted, because Kubernetes also sets other variables with similar names. For
# example, KUBERNETES_SERVICE_PORT resembles KUBERNETES_SERVICE_HOST.
KNOWN = frozenset((*START_SH, *(one.name for one in VARIABLES if not one.name.startswith("KUBERNETES_"))))


def say_defaults(environ: Mapping[str, str]) -> None:
    """Log the defaults that the pserver takes of the variables that the tutorial's shorter manifests omit."""
    table = variables_of(LauncherConfig)
    omitted = [table[name] for name in ("nic", "port", "ports_num", "ports_num_sparse")]
    taken = [f"{one.name}={one.default}" for one in omitted if not environ.get(one.name)]
    if taken:
        say(f"not set in the pod's env, so by default: {' '.join(taken)}")


def describe_environment() -> str:
    """Return the table of variables for --help."""
    rows = []
    for one in VARIABLES:
        default = "required" if one.default is None else f"default: {one.default or 'empty'}"
        rows.append(f"  {one.name:<30} {one.meaning} ({default})")
    return "\n".join(rows)


def may_shrink(layout: PodLayout, least: int) -> bool:
    """Return whether a job may continue without at least one pod.

    Args: least: minimum number of trainers; 0: the job needs all pods.
    """
    return bool(least and layout.shrunk(layout.pods - 1, least))


def choose_control_port(values: Mapping[str, Any]) -> int:
    """Return the default port of trainer 0's launcher, which is the same in every pod of a job.

    The default is the port after the pserver's last port. If the probes use that port, the default is the port after
    the ports of the probes. If no higher port is left, the default is the port before the pserver's first port.
    """
    first, watching = int(values["port"]), int(values["metrics_port"])
    behind = first + int(values["ports_num"]) + int(values["ports_num_sparse"])
    if watching and watching <= behind <= watching + 2:
        behind = watching + 3
    return behind if behind <= 65535 else first - 1


def find_overlap(values: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each port that two programs of the pod would use."""
    watching, control, first = values["metrics_port"], values["control_port"], values["port"]
    last = first + values["ports_num"] + values["ports_num_sparse"] - 1
    theirs = f"the pserver has ports {first} to {last}"
    problems = []
    if watching and watching + 2 >= first and watching <= last:
        problems = [f"CONF_PADDLE_METRICS_PORT is {watching}: this port and the next two must be free, but {theirs}"]
    if watching and watching <= control <= watching + 2:
        probes = f"CONF_PADDLE_METRICS_PORT has ports {watching} to {watching + 2}"
        problems.append(f"CONF_PADDLE_CONTROL_PORT is {control}, but {probes}; choose another port")
    master = values["master_port"]
    if values["entry"] and (first <= master <= last or master == control or watching <= master <= watching + 2):
        problems.append(f"MASTER_PORT is {master}, which the launcher or another program uses; choose another port")
    if first <= control <= last:
        problems.append(f"CONF_PADDLE_CONTROL_PORT is {control}, but {theirs}; choose another port")
    return problems


def find_missing_numbers(environ: Mapping[str, str], values: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each number of pods that is missing or inconsistent with another variable."""
    problems = []
    given = {**environ, "CONF_PADDLE_PSERVER_NUM": environ.get("CONF_PADDLE_PSERVER_NUM") or environ.get(NUM_PSERVERS)}
    missing = [name for name in ("CONF_PADDLE_GRADIENT_NUM", "CONF_PADDLE_PSERVER_NUM") if not given.get(name)]
    if values["pserver_apart"] and missing:
        names = " and ".join(missing)
        problems = [f"CONF_PADDLE_PSERVER_APART is 1, but {names} is not set: separate pods need both numbers"]
    least, number = values["gradient_min"], values["gradient_num"]
    if least > number and environ.get("CONF_PADDLE_GRADIENT_NUM"):
        problems.append(f"CONF_PADDLE_GRADIENT_MIN is {least}, above CONF_PADDLE_GRADIENT_NUM = {number}; lower it")
    layout = PodLayout(number, values["pserver_num"], values["pserver_apart"] and values["pserver_num"] > 0)
    if may_shrink(layout, least) and not values["job_completion_index"]:
        problems.append(
            f"CONF_PADDLE_GRADIENT_MIN is {least}, and this pod has no JOB_COMPLETION_INDEX: only pods of an Indexed "
            "Job can be told apart; set completionMode: Indexed in the Job"
        )
    if values["pod_service"] and not values["job_completion_index"]:
        problems.append(
            f"CONF_PADDLE_POD_SERVICE is {values['pod_service']}, and this pod has no JOB_COMPLETION_INDEX: only pods "
            "of an Indexed Job have permanent names; set completionMode: Indexed in the Job"
        )
    return problems


def read_layout(environ: Mapping[str, str]) -> PodLayout:
    """Return the layout of the pods that the environment variables define.

    Raises: ConfigError: CONF_PADDLE_GRADIENT_NUM is missing, or one of the variables is not a number.
    """
    table = variables_of(LauncherConfig)
    trainers, pservers, apart = (table[name] for name in ("gradient_num", "pserver_num", "pserver_apart"))
    try:
        number = trainers.check(environ.get(trainers.name))
        servers = pservers.check(environ.get(pservers.name) or environ.get(NUM_PSERVERS) or str(number))
        return PodLayout(number, servers, apart.read(environ) and servers > 0)
    except ValueError as problem:
        raise ConfigError(str(problem)) from None


def warn_without_secret(config: LauncherConfig) -> None:
    """Log a warning if the programs of this pod have no secret.

    Raises: ConfigError: the secret's file is missing or unusable (paddle_base.runtime.environment).
    """
    secret = {SECRET: config.secret, SECRET_FILE: config.secret_file, WITHOUT_SECRET: str(int(config.without_secret))}
    if read_environment(secret).secret:
        return
    absent = f"no file {config.secret_file}" if config.secret_file else "no PADDLE_SECRET_FILE"
    last = config.port + config.ports_num + config.ports_num_sparse - 1
    say(
        f"WARNING: no secret ({absent}): anyone who reaches ports {config.port} to {last} of this pod can take part in "
        f"the training. Before you create the next Job, run {MAKE_SECRET} (docs/security.md)"
    )


def warn_of_misspelt(names: Iterable[str], known: Collection[str] = KNOWN, program: str = "the launcher") -> None:
    """Log a warning for each name that looks like a misspelt variable of the program."""
    for name, close in sorted(find_misspelt(names, known).items()):
        say(f"WARNING: {name} is set, but is no variable of {program}: did you mean {close}?")
