"""The typed settings of the launcher, parsed from the environment variables."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from paddle_base.runtime.environment import MAKE_SECRET, SECRET, SECRET_FILE, WITHOUT_SECRET, read_environment
from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.kubernetes.account import read_text
from paddle_cluster.launcher.layout import PodLayout
from paddle_cluster.launcher.text import say
from paddle_cluster.launcher.variables import KNOWN, VARIABLES, find_misspelt, parse_variable

TUTORIALS_PODS = "3"  # number of pods of a job if the number is neither set nor readable, as in the tutorial


@dataclasses.dataclass(frozen=True)
class LauncherConfig:
    """The checked settings of the environment; a field has its variable's name in lower case without CONF_PADDLE_."""

    job_name: str
    job_path: Path
    job_namespace: str
    nic: str
    port: int
    ports_num: int
    ports_num_sparse: int
    control_port: int
    gradient_num: int
    gradient_min: int  # 0: an attempt needs all pods
    pserver_num: int
    pserver_apart: bool
    pod_service: str  # "": programs reach pods by their IPs
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
    without_secret: bool

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> LauncherConfig:
        """Read every variable of VARIABLES.

        Raises: ConfigError: variables are missing or wrong; the error has one line for each problem.
        """
        account = Path(environ.get("SERVICE_ACCOUNT_DIR") or "/var/run/secrets/kubernetes.io/serviceaccount")
        defaults = {variable.name: variable.default for variable in VARIABLES}
        defaults["JOB_NAMESPACE"] = read_text(account / "namespace")
        defaults["POD_NAME"] = socket.gethostname()
        defaults["CONF_PADDLE_GRADIENT_NUM"] = TUTORIALS_PODS  # with_number_of_pods inserts the Job's parallelism later
        defaults["CONF_PADDLE_PSERVER_NUM"] = "1"  # replaced below by the number of trainers
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
        values.update(
            job_path=Path(values["job_path"]),
            service_account_dir=account,
            pserver_apart=bool(values["pserver_apart"]),
            resume=bool(values["resume"]),
            log_json=bool(values["log_json"]),
            stuck_timeout=values.pop("paddle_stuck_timeout"),
            secret=values.pop("paddle_secret"),
            secret_file=values.pop("paddle_secret_file"),
            without_secret=bool(values.pop("paddle_without_secret")),
        )
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
        return PodLayout(self.gradient_num, self.pserver_num, self.pserver_apart)

    @property
    def may_shrink(self) -> bool:
        """Whether the Job may continue without pods that are gone."""
        return may_shrink(self.layout, self.gradient_min)

    def having(self, layout: PodLayout) -> LauncherConfig:
        """Return the config of an attempt with these numbers of trainers and pservers."""
        return dataclasses.replace(self, gradient_num=layout.trainers, pserver_num=layout.pservers)


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
    if first <= control <= last:
        problems.append(f"CONF_PADDLE_CONTROL_PORT is {control}, but {theirs}; choose another port")
    return problems


def find_missing_numbers(environ: Mapping[str, str], values: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each number of pods that is missing or inconsistent with another variable."""
    problems = []
    missing = [name for name in ("CONF_PADDLE_GRADIENT_NUM", "CONF_PADDLE_PSERVER_NUM") if not environ.get(name)]
    if values["pserver_apart"] and missing:
        names = " and ".join(missing)
        problems = [f"CONF_PADDLE_PSERVER_APART is 1, but {names} is not set: separate pods need both numbers"]
    least, number = values["gradient_min"], values["gradient_num"]
    if least > number and environ.get("CONF_PADDLE_GRADIENT_NUM"):
        problems.append(f"CONF_PADDLE_GRADIENT_MIN is {least}, above CONF_PADDLE_GRADIENT_NUM = {number}; lower it")
    layout = PodLayout(number, values["pserver_num"], bool(values["pserver_apart"]))
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
    table = {variable.name: variable for variable in VARIABLES}
    trainers, pservers, apart = (f"CONF_PADDLE_{name}" for name in ("GRADIENT_NUM", "PSERVER_NUM", "PSERVER_APART"))
    try:
        number = int(parse_variable(table[trainers], environ.get(trainers)))
        others = int(parse_variable(table[pservers], environ.get(pservers) or str(number)))
        return PodLayout(number, others, bool(parse_variable(table[apart], environ.get(apart) or "0")))
    except ValueError as problem:
        raise ConfigError(str(problem)) from None


def own_address() -> str:
    """Return the IP address to which this host's name resolves, as the tutorial does."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "0.0.0.0"  # no pod has this address; own_trainer_id then raises an error about POD_IP


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
    for name, variable in sorted(find_misspelt(names, known).items()):
        say(f"WARNING: {name} is set, but is no variable of {program}: did you mean {variable}?")
