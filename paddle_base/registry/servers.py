"""The parameter servers of a job in its registry: their number and their addresses."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from paddle_base.registry.interface import WATCH_S, Claim, Registry
from paddle_base.runtime.errors import DamagedError
from paddle_base.runtime.rate_limit import WAIT_LINE_S, RateLimit
from paddle_base.runtime.schema import Integer, Items, Record, SchemaError, Such, Text, parse_object

DESIRED, SERVERS, CHECKPOINTS = "ps_desired", "ps/", "ckpt/"
INIT_LOCK, INIT_DONE = "init/lock", "init/done"
JOB_END = "job/end"
MOST_SERVERS, MOST_PORTS, LAST_PORT = 4096, 4096, 65535

_PORTS = Items(Integer(1, LAST_PORT), MOST_PORTS)
_SERVER = Record(
    host=Such(Text(253, least=1), lambda host: host.isprintable() and " " not in host, "a host"),
    ports=_PORTS,
    sparse_ports=_PORTS,
)


@dataclass(frozen=True)
class ServerRecord:
    """A parameter server.

    Attributes: index: number of the server, from 0.  incarnation: the token of the server's claim; a later server with
        the same index has a larger token.  ports, sparse_ports: ports for dense and for sparse parameters; both are
        empty while the server starts.
    """

    index: int
    incarnation: int
    host: str
    ports: tuple[int, ...] = ()
    sparse_ports: tuple[int, ...] = ()

    @property
    def attempt(self) -> str:
        """The attempt name in messages between the server and its trainers; messages with another name are refused."""
        return f"ps{self.index}.{self.incarnation}"

    @property
    def value(self) -> str:
        """The text that the registry stores under the key of this server."""
        return json.dumps({"host": self.host, "ports": self.ports, "sparse_ports": self.sparse_ports})


def write_desired(registry: Registry, wanted: int) -> int:
    """Write the number of servers of the job, unless it is written already; return the number in the registry."""
    while True:
        registry.put_new(DESIRED, str(wanted))
        found = registry.read(DESIRED).get(DESIRED)
        if found is not None:
            return read_desired(found.value)


def read_desired(value: str) -> int:
    """Return the number of servers that the value of the key `ps_desired` states.

    Raises: DamagedError: the value is malformed.
    """
    if not (value.isascii() and value.isdigit() and len(value) <= 9 and 1 <= int(value) <= MOST_SERVERS):
        raise DamagedError(
            f"the registry's {DESIRED} is {value[:40]!r}, which is no number of servers; remove all keys of the job to "
            "begin anew"
        )
    return int(value)


def claim_index(
    registry: Registry, desired: int, host: str, note: Callable[[str], None], only: int = -1
) -> tuple[Claim, ServerRecord]:
    """Wait for a free index and claim the smallest; return the claim, and the record of the server without its ports.

    Args: desired: number of servers of the job.  host: name or address of this server.  note: function that writes a
        log line about the wait.  only: the only acceptable index; -1: any index.
    """
    first = ServerRecord(-1, 0, host)
    indices = range(desired) if only < 0 else [only]
    lines = RateLimit(WAIT_LINE_S)
    while True:
        taken = registry.read(SERVERS)
        for index in indices:
            if f"{SERVERS}{index}" in taken:
                continue
            claim = registry.claim(f"{SERVERS}{index}", first.value)
            if claim is not None:
                return claim, replace(first, index=index, incarnation=claim.token)
        if lines.is_due(time.monotonic()):
            note(f"waiting until {_describe(registry, desired, only)}")
        registry.wait(SERVERS, taken, WATCH_S)


def find_servers(registry: Registry) -> list[ServerRecord | None]:
    """Return the servers of the job, with None for a server that is absent or not ready; [] if no server ever started.

    Raises: DamagedError: a record is malformed.
    """
    desired = registry.read(DESIRED).get(DESIRED)
    if desired is None:
        return []
    taken = registry.read(SERVERS)
    found: list[ServerRecord | None] = []
    for index in range(read_desired(desired.value)):
        entry = taken.get(f"{SERVERS}{index}")
        record = entry and read_record(index, entry.token, entry.value)
        found.append(record if record and record.ports + record.sparse_ports else None)
    return found


def describe_missing(servers: list[ServerRecord | None]) -> str:
    """Return a text that names the servers that a trainer waits for, or "" if all servers are ready."""
    if not servers:
        return "the parameter servers: none was ever started for this job"
    missing = [str(index) for index, one in enumerate(servers) if one is None]
    if not missing:
        return ""
    return f"parameter server{'s' if len(missing) > 1 else ''} {', '.join(missing)} of {len(servers)}"


def read_record(index: int, incarnation: int, value: str) -> ServerRecord:
    """Return the server that a value describes.

    Raises: DamagedError: the value is malformed.
    """
    try:
        fields = parse_object(value, _SERVER, f"{SERVERS}{index}", depth=3, values=2 * MOST_PORTS)
    except SchemaError as exc:
        raise DamagedError(
            f"the registry's {exc}; another program has written this key: give the job another name"
        ) from exc
    return ServerRecord(index, incarnation, fields["host"], tuple(fields["ports"]), tuple(fields["sparse_ports"]))


def _describe(registry: Registry, desired: int, only: int) -> str:
    """Return a text that says which index must become free, and which servers hold it."""
    held = [
        f"index {one.index} is held by {one.host}:{one.ports[0]}"
        if one.ports
        else f"index {one.index} is held by {one.host}"
        for one in find_servers(registry)
        if one is not None and only in (-1, one.index)
    ]
    what = f"one of {desired} indices of servers" if only < 0 else f"index {only}"
    return f"{what} is free: {'; '.join(held[:10]) or 'every holder is a server that is being started'}"
