"""The place of a worker in a generation, and its settings, as the environment gives them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from paddle_base.runtime.errors import ConfigError
from paddle_cluster.elastic.collectives.stalls import STALL_END_S, STALL_S, Patience
from paddle_cluster.elastic.constants import MOST_S, read_seconds
from paddle_cluster.elastic.hosts import SLOT_NUMBERS, list_slot_variables

_SLOT = tuple(name.upper() for name in SLOT_NUMBERS)


class ProcessPlacement(NamedTuple):
    """A worker's slot in a generation of the job."""

    hostname: str = "localhost"
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1
    generation: int = 0

    def variables(self) -> dict[str, str]:
        """Return the environment variables of this slot."""
        return list_slot_variables(self)


class WorkerSettings(NamedTuple):
    """The settings of a worker for the whole life of the process.

    Attributes:
    - address, port: address and port of the driver; "": there is no driver.
    - nic: network interface at which other workers reach this worker, or "".
    - is_elastic: whether further generations follow.
    - timeout: maximum seconds until the ranks of a generation have connected.
    - elastic_timeout: maximum seconds until the driver has begun the next generation.
    - own_address: address at which other workers reach this worker, or "".
    - is_dynamic: whether the script may add process sets after `init`.
    """

    address: str = ""
    port: int = 0
    nic: str = ""
    is_elastic: bool = False
    incarnation: str = ""
    timeout: float = 30.0
    elastic_timeout: float = 600.0
    patience: Patience = Patience()
    own_address: str = ""
    is_dynamic: bool = False


def read_placement(environ: Mapping[str, str]) -> ProcessPlacement:
    """Read the slot from the environment.

    Raises: ConfigError: a variable is missing or is no number, or the variables contradict each other.
    """
    if not environ.get("HOROVOD_RANK"):
        return ProcessPlacement()
    numbers = [_read(environ, f"HOROVOD_{name}") for name in _SLOT]
    generation = _read(environ, "PADDLE_ELASTIC_GENERATION") if environ.get("PADDLE_ELASTIC_GENERATION") else 0
    placement = ProcessPlacement._make((environ.get("HOROVOD_HOSTNAME", "localhost"), *numbers, generation))
    for name, rank, size in zip(_SLOT[::2], numbers[::2], numbers[1::2], strict=True):
        if rank >= size:
            raise ConfigError(
                f"HOROVOD_{name} is {rank}, but the size is {size}; let `paddle elastic run` set the variables"
            )
    return placement


def read_settings(environ: Mapping[str, str]) -> WorkerSettings:
    """Read the settings from the environment.

    Raises: ConfigError: a variable is no number.
    """
    address = environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR", "")
    return WorkerSettings(
        address=address,
        port=_read(environ, "HOROVOD_GLOO_RENDEZVOUS_PORT") if address else 0,
        nic=environ.get("HOROVOD_GLOO_IFACE", ""),
        is_elastic=environ.get("HOROVOD_ELASTIC", "") == "1",
        incarnation=environ.get("PADDLE_ELASTIC_INCARNATION", ""),
        timeout=read_seconds(environ, "HOROVOD_GLOO_TIMEOUT_SECONDS", 30.0),
        elastic_timeout=read_seconds(environ, "HOROVOD_ELASTIC_TIMEOUT", 600.0),
        patience=_read_patience(environ),
        own_address=environ.get("PADDLE_ELASTIC_ADDRESS", ""),
        is_dynamic=environ.get("HOROVOD_DYNAMIC_PROCESS_SETS", "") == "1",
    )


def _read_patience(environ: Mapping[str, str]) -> Patience:
    has_check = environ.get("HOROVOD_STALL_CHECK_DISABLE", "0") in ("", "0")
    return Patience(
        read_seconds(environ, "HOROVOD_STALL_CHECK_TIME_SECONDS", STALL_S) if has_check else MOST_S,
        read_seconds(environ, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", STALL_END_S) if has_check else MOST_S,
        read_seconds(environ, "PADDLE_ELASTIC_SILENCE_SECONDS", Patience.silence),
    )


def _read(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ConfigError(f"{name} is '{text}', not a number; let `paddle elastic run` set the variables")
    return int(text)
