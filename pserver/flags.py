"""The flags of `paddle pserver`, which `paddle_base/runtime/gflags.py` parses.

Every flag of the legacy pserver is accepted; one warning lists the given flags that have no effect. The flags of an
task job need a store: a directory or an etcd. They have the names of the Go pserver of 2017, with '_' or '-' between
the words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from paddle_base.registry.etcd_flags import ETCD_FLAGS
from paddle_base.runtime.command import FlagValues, format_flags
from paddle_base.runtime.errors import UsageError
from paddle_base.runtime.gflags import Flag, Status, Value, index_flags, read_arguments
from paddle_base.runtime.network.addresses import list_hosts

_S, _Q = Status.SUPPORTED, Status.QUIET

FLAGS = index_flags(
    Flag("help", False, _S, "print this help and exit"),
    Flag("port", 20134, _S, "first port; in a task job the default is 0, for any free ports", 0, 65535),
    Flag("ports_num", 1, _S, "number of ports for dense parameters", 1, 65535),
    Flag("ports_num_for_sparse", 0, _S, "number of further ports for sparse parameters", 0, 65535),
    Flag(
        "nics",
        "",
        _S,
        "interface names, labels such as lo:1, or IPv4 addresses to listen on, separated by commas; empty: all",
    ),
    Flag("num_gradient_servers", 1, _S, "number of trainers", 1, 1 << 20),
    Flag(
        "async_lagged_ratio_min",
        1.0,
        _S,
        "the config's async_lagged_grad_discard_ratio counts only if it is above this bound",
        0,
    ),
    Flag(
        "async_lagged_ratio_default",
        1.5,
        _S,
        "discard ratio if the config has no valid one; a gradient whose age is at least ratio x trainers is discarded",
        0,
    ),
    Flag(
        "pserver_num_threads",
        1,
        _S,
        "number of threads that share an optimiser step; useful for large parameters",
        1,
        256,
    ),
    Flag("log_period_server", 500, _S, "batches between two log lines of a pass; 0: none", 0),
    Flag("log_barrier_abstract", True, _S, "after a pass, log the trainers that were often the last of a round"),
    Flag("log_barrier_lowest_nodes", 5, _S, "maximum number of trainers that --log_barrier_abstract logs", 0, 1 << 20),
    Flag(
        "log_barrier_show_log",
        False,
        _S,
        "write the line of --log_barrier_abstract after every pass; with fewer than three trainers there is no line",
    ),
    Flag("log_json", "", _S, "file to which log lines are also appended as JSON; empty = no such file"),
    Flag("metrics_port", 0, _S, "port of /healthz, /readyz and /metrics on the addresses of --nics; 0: none", 0, 65535),
    Flag("sock_send_buf_size", 0, _S, "bytes of the send buffer of a connection; 0: the system's choice", 0, 1 << 30),
    Flag(
        "sock_recv_buf_size",
        0,
        _S,
        "bytes of the receive buffer of a connection; 0: the system's choice",
        0,
        1 << 30,
    ),
    Flag("sock_listen_queue_size", 1024, _S, "maximum number of connections that wait to be accepted", 1, 1 << 20),
    Flag("rdma_tcp", "tcp", _S, "transport; only tcp is supported", choices=("tcp",)),
    Flag("comment", "", _S, "free text; scripts use it to find processes"),
    Flag("probe", False, _S, "ask whether all services of --pservers are ready; the exit status is 0 or 69"),
    Flag("pservers", "127.0.0.1", _S, "with --probe: comma-separated hosts; host:port sets its first port"),
    Flag("timeout", 60.0, _S, "with --probe: maximum seconds until all services have answered", 0, 86400),
    # ----- flags of a task job -----
    Flag("store_dir", "", _S, "elastic: local directory in which the programs of a job find each other"),
    Flag("etcd_endpoints", "", _S, "elastic: endpoints of an etcd, instead of --store_dir: http://host:port,..."),
    Flag("etcd_endpoint", "", _S, "the 2017 name of --etcd_endpoints"),
    *ETCD_FLAGS,
    Flag("job", "", _S, "elastic: name of the job; empty: PADDLE_JOB_NAME, or 'job'"),
    Flag("num_pservers", 1, _S, "elastic: number of servers of the job; the value of the first server counts", 1, 4096),
    Flag("index", -1, _S, "elastic: index of this server; -1: the smallest free index", -1, 4095),
    Flag(
        "checkpoint_path",
        "",
        _S,
        "elastic: directory of snapshots, with one subdirectory for each job; empty: beside the registry in "
        "--store_dir, or /checkpoints",
    ),
    Flag("checkpoint_interval", "600s", _S, "elastic: time between two snapshots"),
    Flag("etcd_ttl", "5s", _S, "elastic: time after which a silent server loses its index"),
    Flag("dial_timeout", "5s", _Q, "the attempts to reach etcd at the start always last 15 s"),
    Flag("log_level", "info", _Q, "every log line is written"),
    # ----- flags that are accepted, but have no effect -----
    Flag("small_messages", False, _Q, "messages are always sent immediately"),
    Flag("seed", 1, _Q, "a server draws no random numbers"),
    Flag("thread_local_rand_use_global_seed", False, _Q, "a server draws no random numbers"),
    Flag("use_gpu", False, _Q, "a server uses no GPU"),
    Flag("trainer_count", 1, _Q, "a flag of the trainer"),
    Flag("trainer_id", 0, _Q, "a flag of the trainer"),
    Flag("local", False, _Q, "a flag of the trainer"),
)


ELASTIC_DEFAULTS: dict[str, Value] = {"port": 0}  # defaults that differ for a server with a store
STATIC_ONLY = ("num_gradient_servers",)  # flags that have no effect on a server with a store
ELASTIC_ONLY = ("job", "num_pservers", "index", "checkpoint_path", "checkpoint_interval", "etcd_ttl")
MOST_PORTS = 4096  # maximum number of ports of a server with a store; the registry lists the ports


class PserverFlags(FlagValues):
    """The values of the flags of a parameter server."""

    @property
    def endpoints(self) -> list[str]:
        """The endpoints of etcd, or [] if a directory is used."""
        return self.items("etcd_endpoints", "etcd_endpoint")

    @property
    def store_dir(self) -> Path | None:
        """The directory of the registry, or None if etcd is used."""
        return Path(self.text("store_dir")).absolute() if self.text("store_dir") else None

    @property
    def is_task_job(self) -> bool:
        """Whether a store is given; trainers may then join and leave."""
        return bool(self.endpoints or self.store_dir)


def parse(argv: Sequence[str]) -> PserverFlags:
    """Return the values of the flags; if a flag is given twice, the last value counts, as in gflags.

    Raises: UsageError: a flag is unknown (the message names the closest known flag), malformed or out of bounds.
    """
    given = read_arguments([_plain(argument) for argument in argv], FLAGS)
    line = PserverFlags({flag.name: flag.default for flag in FLAGS.values()} | given)
    if line.is_task_job and not line.values["probe"]:
        line.values.update({name: value for name, value in ELASTIC_DEFAULTS.items() if name not in given})
        _check_task_job(line)
        line.ignored.extend(name for name in STATIC_ONLY if name in given)
    else:
        _check_static(line, given)
    _check_together(line.values)
    line.ignored.extend(name for name in given if FLAGS[name].status is Status.QUIET)
    return line


def format_help() -> str:
    """Return the manual of the command."""
    lines = [
        "usage: paddle pserver [--flag=value ...]",
        "       paddle pserver --store_dir=DIR | --etcd_endpoints=http://host:2379 [--flag=value ...]",
        "",
        "Environment: PADDLE_JOB_NAME, PADDLE_ATTEMPT (set by the launcher; empty: stand-alone), PADDLE_SECRET or",
        "PADDLE_SECRET_FILE (authenticates all peers; empty: anyone may take part),",
        "PADDLE_PEER_TIMEOUT (seconds without a message after which a trainer is lost; default 10).",
        "",
        *format_flags(FLAGS),
    ]
    return "\n".join(lines) + "\n"


def _check_together(values: dict[str, Value]) -> None:
    if not values["port"]:
        return
    last = int(values["port"]) + int(values["ports_num"]) + int(values["ports_num_for_sparse"]) - 1
    if last > 65535:
        raise UsageError(
            f"--port={values['port']} --ports_num={values['ports_num']} --ports_num_for_sparse="
            f"{values['ports_num_for_sparse']} would need port {last}; the highest port is 65535"
        )
    if int(values["port"]) <= int(values["metrics_port"]) <= last and not values["probe"]:
        raise UsageError(
            f"--metrics_port={values['metrics_port']} is one of the ports {values['port']} to {last} of the server"
        )
    if values["probe"]:
        list_hosts(str(values["pservers"]), int(values["port"]), last - int(values["port"]) + 1)


def _check_static(line: PserverFlags, given: Mapping[str, Value]) -> None:
    alone = [f"--{name}" for name in (*ELASTIC_ONLY, *(flag.name for flag in ETCD_FLAGS)) if name in given]
    if alone and not line.is_task_job:
        raise UsageError(
            f"{', '.join(alone)} need{'s' * (len(alone) == 1)} a store: also give the --store_dir=DIR (one machine) or "
            "--etcd_endpoints=http://host:2379 (cluster) that the master and the trainers of the job have"
        )
    if not line.number("port"):
        raise UsageError("--port is 0; without a store it must be in [1, 65535]")


def _check_task_job(line: PserverFlags) -> None:
    if line.endpoints and line.store_dir:
        raise UsageError("--etcd_endpoints and --store_dir are both given; a job has only one store")
    for name, least in (("etcd_ttl", 1.0), ("checkpoint_interval", 0.1)):
        if line.seconds(name) < least:
            raise UsageError(f"--{name} is '{line.text(name)}'; it must be at least {least:g}s")
    if "," in line.text("nics"):
        raise UsageError(f"--nics is '{line.text('nics')}'; a server of a task job listens on one address or on all")
    if line.number("ports_num") + line.number("ports_num_for_sparse") > MOST_PORTS:
        raise UsageError(
            f"--ports_num and --ports_num_for_sparse together are over the limit of {MOST_PORTS} of an elastic server"
        )


def _plain(argument: str) -> str:
    """Return an argument with underscores in place of the hyphens that the flags of 2017 had."""
    name, equals, text = argument.lstrip("-").partition("=")
    plain = name.replace("-", "_")
    return f"--{plain}{equals}{text}" if argument.startswith("-") and plain in FLAGS else argument
