"""The command line of `paddle pserver`, read as gflags did: `--name=value`, `--name value`, `--flag`, `--noflag`.

Every flag that the legacy's pserver took is accepted; those that mean nothing here are named in one warning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pserver.addresses import list_hosts
from pserver.errors import UsageError

Value = bool | int | float | str


@dataclass(frozen=True)
class Flag:
    """One flag: its default gives its type; bounds are inclusive."""

    name: str
    default: Value
    meaning: str
    least: float | None = None
    most: float | None = None
    is_used: bool = True


FLAGS = {
    flag.name: flag
    for flag in (
        Flag("help", False, "print this and exit"),
        Flag("port", 20134, "first port", 1, 65535),
        Flag("ports_num", 1, "number of ports for dense parameters", 1, 65535),
        Flag("ports_num_for_sparse", 0, "number of further ports for sparse parameters", 0, 65535),
        Flag(
            "nics", "", "comma list of interface names, labels such as lo:1, or IPv4 addresses to listen on; empty: all"
        ),
        Flag("num_gradient_servers", 1, "number of trainers", 1, 1 << 20),
        Flag("async_lagged_ratio_min", 1.0, "a config's async_lagged_grad_discard_ratio that is not above it", 0),
        Flag("async_lagged_ratio_default", 1.5, "becomes this: gradients older than it times trainers are dropped", 0),
        Flag("pserver_num_threads", 1, "threads that take an optimiser step together; for large parameters", 1, 256),
        Flag("log_period_server", 500, "batches between two log lines of a pass; 0: none", 0),
        Flag("log_json", "", "file that log lines are also appended to, each as a JSON object; empty: none"),
        Flag("metrics_port", 0, "port of /healthz, /readyz and /metrics, on what --nics names; 0: none", 0, 65535),
        Flag("sock_send_buf_size", 0, "bytes of the send buffer of a connection; 0: the system's choice", 0, 1 << 30),
        Flag(
            "sock_recv_buf_size", 0, "bytes of the receive buffer of a connection; 0: the system's choice", 0, 1 << 30
        ),
        Flag("sock_listen_queue_size", 1024, "connections that may wait to be accepted", 1, 1 << 20),
        Flag("rdma_tcp", "tcp", "transport; only tcp is supported"),
        Flag("comment", "", "free text; scripts use it to find processes"),
        Flag("probe", False, "ask every service of --pservers whether it is ready instead of serving; exit 0 or 69"),
        Flag("pservers", "127.0.0.1", "with --probe: the hosts to ask, by comma; host:port has its own first port"),
        Flag("timeout", 60.0, "with --probe: seconds until all must have answered", 0, 86400),
        # ----- accepted, without a meaning here -----
        Flag("small_messages", False, "messages always leave at once", is_used=False),
        Flag("log_barrier_abstract", True, "no barrier statistics are kept", is_used=False),
        Flag("log_barrier_lowest_nodes", 5, "no barrier statistics are kept", is_used=False),
        Flag("log_barrier_show_log", False, "no barrier statistics are kept", is_used=False),
        Flag("seed", 1, "a server draws no random numbers", is_used=False),
        Flag("thread_local_rand_use_global_seed", False, "a server draws no random numbers", is_used=False),
        Flag("use_gpu", False, "a server has no use for it", is_used=False),
        Flag("trainer_count", 1, "a flag of the trainer", is_used=False),
        Flag("trainer_id", 0, "a flag of the trainer", is_used=False),
        Flag("local", False, "a flag of the trainer", is_used=False),
    )
}

_TRUE, _FALSE = ("1", "true", "t", "yes", "y"), ("0", "false", "f", "no", "n")


@dataclass(frozen=True)
class CommandLine:
    """The values of all flags, and which of the given ones mean nothing here."""

    values: dict[str, Value]
    ignored: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        """Return the value of a flag of text."""
        return str(self.values[name])

    def number(self, name: str) -> int:
        """Return the value of a whole number."""
        return int(self.values[name])


def parse(argv: Sequence[str]) -> CommandLine:
    """Return what the arguments say; of a flag given twice the last one counts, as gflags had it.

    Raises: UsageError: a flag that is unknown (with the closest known one), malformed or out of bounds.
    """
    values: dict[str, Value] = {flag.name: flag.default for flag in FLAGS.values()}
    ignored: list[str] = []
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("-") or not argument.strip("-"):
            raise UsageError(f"Unknown commandline argument: {argument}")
        name, has_value, text = argument.removeprefix("-").removeprefix("-").partition("=")
        flag = FLAGS.get(name) or _find_negated(name)
        if not has_value and isinstance(flag.default, bool):
            text = "true" if flag.name == name else "false"
        elif not has_value:
            if not rest:
                raise UsageError(f"flag --{name} needs a value")
            text = rest.pop(0)
        values[flag.name] = _convert(flag, text)
        if not flag.is_used and flag.name not in ignored:
            ignored.append(flag.name)
    _check_together(values)
    return CommandLine(values, ignored)


def format_help() -> str:
    """Return the manual of the command."""
    lines = [
        "usage: paddle pserver [--flag=value ...]",
        "",
        "Environment: PADDLE_JOB_NAME, PADDLE_ATTEMPT (set by the launcher; empty: stand-alone), PADDLE_SECRET or",
        "PADDLE_SECRET_FILE (proven to all peers; empty: anyone may take part),",
        "PADDLE_PEER_TIMEOUT (seconds without a sign of life after which a trainer is lost; 10).",
        "",
    ]
    for flag in FLAGS.values():
        note = "" if flag.is_used else "no effect: "
        default = str(flag.default).lower() if isinstance(flag.default, bool) else str(flag.default)
        lines.append(f"  --{flag.name}={default}".ljust(42) + note + flag.meaning)
    return "\n".join(lines) + "\n"


def _find_negated(name: str) -> Flag:
    flag = FLAGS.get(name.removeprefix("no"))
    if flag and name.startswith("no") and isinstance(flag.default, bool):
        return flag
    import difflib  # costs more to import than everything else here, and is needed only now

    close = difflib.get_close_matches(name, FLAGS, 1)
    hint = f"; did you mean --{close[0]}?" if close else "; see paddle pserver --help"
    raise UsageError(f"unknown flag --{name}{hint}")


def _convert(flag: Flag, text: str) -> Value:
    try:
        if isinstance(flag.default, bool):
            if text.lower() not in _TRUE + _FALSE:
                raise ValueError
            return text.lower() in _TRUE
        value = type(flag.default)(text)
        if isinstance(value, float) and math.isinf(value):
            raise ValueError
    except ValueError:
        kind = {bool: "true or false", int: "a whole number", float: "a finite number"}[type(flag.default)]
        raise UsageError(f"illegal value '{text}' for --{flag.name}: it must be {kind}") from None
    if not isinstance(value, str) and not (flag.least is None or value >= flag.least):
        raise UsageError(f"illegal value '{text}' for --{flag.name}: it must be at least {flag.least}")
    if not isinstance(value, str) and not (flag.most is None or value <= flag.most):
        raise UsageError(f"illegal value '{text}' for --{flag.name}: it must be at most {flag.most}")
    return value


def _check_together(values: dict[str, Value]) -> None:
    last = int(values["port"]) + int(values["ports_num"]) + int(values["ports_num_for_sparse"]) - 1
    if last > 65535:
        raise UsageError(
            f"--port={values['port']} --ports_num={values['ports_num']} --ports_num_for_sparse="
            f"{values['ports_num_for_sparse']} would need port {last}; the last one is 65535"
        )
    if int(values["port"]) <= int(values["metrics_port"]) <= last and not values["probe"]:
        raise UsageError(
            f"--metrics_port={values['metrics_port']} is one of the ports {values['port']} to {last} of the server"
        )
    if values["rdma_tcp"] != "tcp":
        raise UsageError(f"illegal value '{values['rdma_tcp']}' for --rdma_tcp: only tcp is supported")
    if values["probe"]:
        list_hosts(str(values["pservers"]), int(values["port"]), last - int(values["port"]) + 1)
