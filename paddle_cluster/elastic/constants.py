"""Names of environment variables, and messages; most of these are Horovod's. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from paddle_base.runtime.errors import ConfigError

RESET_LIMIT_EXCEEDED_MESSAGE = (
    "the job was stopped because its workers have been reset as often as --reset-limit={} allows"
)
# Horovod's message about a failed job; users of Horovod and their scripts search for this text
HOROVOD_FAILURE_WORDS = "Horovod detected that one or more processes exited with non-zero status"

HOROVOD_HOSTNAME = "HOROVOD_HOSTNAME"
HOROVOD_RANK = "HOROVOD_RANK"
HOROVOD_SIZE = "HOROVOD_SIZE"
HOROVOD_LOCAL_RANK = "HOROVOD_LOCAL_RANK"
HOROVOD_LOCAL_SIZE = "HOROVOD_LOCAL_SIZE"
HOROVOD_CROSS_RANK = "HOROVOD_CROSS_RANK"
HOROVOD_CROSS_SIZE = "HOROVOD_CROSS_SIZE"
HOROVOD_ELASTIC = "HOROVOD_ELASTIC"
HOROVOD_ELASTIC_TIMEOUT = "HOROVOD_ELASTIC_TIMEOUT"
HOROVOD_GLOO_IFACE = "HOROVOD_GLOO_IFACE"
HOROVOD_GLOO_RENDEZVOUS_ADDR = "HOROVOD_GLOO_RENDEZVOUS_ADDR"
HOROVOD_GLOO_RENDEZVOUS_PORT = "HOROVOD_GLOO_RENDEZVOUS_PORT"
HOROVOD_GLOO_TIMEOUT_SECONDS = "HOROVOD_GLOO_TIMEOUT_SECONDS"
HOROVOD_START_TIMEOUT = "HOROVOD_START_TIMEOUT"
NIC_VARIABLES = (HOROVOD_GLOO_IFACE, "NCCL_SOCKET_IFNAME")  # NCCL_SOCKET_IFNAME is for scripts that use NCCL
# settings of a worker that a user may give to the driver, for the workers of all machines
WORKER_SETTINGS = (
    HOROVOD_GLOO_TIMEOUT_SECONDS,
    HOROVOD_ELASTIC_TIMEOUT,
    "HOROVOD_STALL_CHECK_DISABLE",
    "HOROVOD_STALL_CHECK_TIME_SECONDS",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
    "PADDLE_ELASTIC_SILENCE_SECONDS",
)
PADDLE_ELASTIC_INCARNATION = "PADDLE_ELASTIC_INCARNATION"
PADDLE_ELASTIC_GENERATION = "PADDLE_ELASTIC_GENERATION"
PADDLE_ELASTIC_ADDRESS = "PADDLE_ELASTIC_ADDRESS"
POD_SELECTOR = "app.kubernetes.io/part-of=paddle,app.kubernetes.io/component=worker"
AGENT_PORT = 7171  # default port of `paddle elastic agent`
MOST_S = 1e6  # seconds (11 days); the largest limit that a variable or a flag may set


def read_seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    """Return a number of seconds from the environment.

    Raises: ConfigError: the variable is no number from 0 to MOST_S.
    """
    text = environ.get(name) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST_S:
        raise ConfigError(f"{name} is '{text}'; set it to a number of seconds, e.g. {default:.0f}")
    return seconds or default  # 0 means the default, as in Horovod
