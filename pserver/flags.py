"""The command line of `paddle pserver`: the table of its flags; runtime/gflags.py reads them.

Every flag that the legacy's pserver took is accepted; those that mean nothing here are named in one warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime.addresses import list_hosts
from runtime.errors import UsageError
from runtime.gflags import Flag, Status, Value, index_flags, read_arguments

_S, _Q = Status.SUPPORTED, Status.QUIET

FLAGS = index_flags(
    Flag("help", False, _S, "print this and exit"),
    Flag("port", 20134, _S, "first port", 1, 65535),
    Flag("ports_num", 1, _S, "number of ports for dense parameters", 1, 65535),
    Flag("ports_num_for_sparse", 0, _S, "number of further ports for sparse parameters", 0, 65535),
    Flag(
        "nics",
        "",
        _S,
        "comma list of interface names, labels such as lo:1, or IPv4 addresses to listen on; empty: all",
    ),
    Flag("num_gradient_servers", 1, _S, "number of trainers", 1, 1 << 20),
    Flag("async_lagged_ratio_min", 1.0, _S, "bound above which a config's async_lagged_grad_discard_ratio counts", 0),
    Flag(
        "async_lagged_ratio_default",
        1.5,
        _S,
        "the ratio of other configs; gradients of a staleness of ratio x trainers are dropped",
        0,
    ),
    Flag("pserver_num_threads", 1, _S, "threads that take an optimiser step together; for large parameters", 1, 256),
    Flag("log_period_server", 500, _S, "batches between two log lines of a pass; 0: none", 0),
    Flag("log_json", "", _S, "file that log lines are also appended to, each as a JSON object; empty: none"),
    Flag("metrics_port", 0, _S, "port of /healthz, /readyz and /metrics, on what --nics names; 0: none", 0, 65535),
    Flag("sock_send_buf_size", 0, _S, "bytes of the send buffer of a connection; 0: the system's choice", 0, 1 << 30),
    Flag(
        "sock_recv_buf_size",
        0,
        _S,
        "bytes of the receive buffer of a connection; 0: the system's choice",
        0,
        1 << 30,
    ),
    Flag("sock_listen_queue_size", 1024, _S, "connections that may wait to be accepted", 1, 1 << 20),
    Flag("rdma_tcp", "tcp", _S, "transport; only tcp is supported", choices=("tcp",)),
    Flag("comment", "", _S, "free text; scripts use it to find processes"),
    Flag("probe", False, _S, "ask every service of --pservers whether it is ready instead of serving; exit 0 or 69"),
    Flag("pservers", "127.0.0.1", _S, "with --probe: the hosts to ask, by comma; host:port has its own first port"),
    Flag("timeout", 60.0, _S, "with --probe: seconds until all must have answered", 0, 86400),
    # ----- accepted, without a meaning here -----
    Flag("small_messages", False, _Q, "messages always leave at once"),
    Flag("log_barrier_abstract", True, _Q, "no barrier statistics are kept"),
    Flag("log_barrier_lowest_nodes", 5, _Q, "no barrier statistics are kept"),
    Flag("log_barrier_show_log", False, _Q, "no barrier statistics are kept"),
    Flag("seed", 1, _Q, "a server draws no random numbers"),
    Flag("thread_local_rand_use_global_seed", False, _Q, "a server draws no random numbers"),
    Flag("use_gpu", False, _Q, "a server has no use for it"),
    Flag("trainer_count", 1, _Q, "a flag of the trainer"),
    Flag("trainer_id", 0, _Q, "a flag of the trainer"),
    Flag("local", False, _Q, "a flag of the trainer"),
)


@dataclass(frozen=True)
class PserverFlags:
    """The values of all flags, and which of the given ones mean nothing here."""

    values: dict[str, Value]
    ignored: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        """Return the value of a flag of text."""
        return str(self.values[name])

    def number(self, name: str) -> int:
        """Return the value of a whole number."""
        return int(self.values[name])


def parse(argv: Sequence[str]) -> PserverFlags:
    """Return what the arguments say; of a flag given twice the last one counts, as gflags had it.

    Raises: UsageError: a flag that is unknown (with the closest known one), malformed or out of bounds.
    """
    given = read_arguments(argv, FLAGS)
    values = {flag.name: flag.default for flag in FLAGS.values()} | given
    _check_together(values)
    return PserverFlags(values, [name for name in given if FLAGS[name].status is Status.QUIET])


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
        note = "" if flag.status is Status.SUPPORTED else "no effect: "
        default = str(flag.default).lower() if isinstance(flag.default, bool) else str(flag.default)
        lines.append(f"  --{flag.name}={default}".ljust(41) + " " + note + flag.meaning)
    return "\n".join(lines) + "\n"


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
    if values["probe"]:
        list_hosts(str(values["pservers"]), int(values["port"]), last - int(values["port"]) + 1)
