"""Who may join a server: the identity of both sides, and refusals that name both (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pserver import glog, protocol
from pserver.errors import BugError, ConfigError, PaddleError, PeerUnreachableError
from pserver.protocol import Message
from pserver.shared_memory import SharedMemory

TOKEN_BYTES = 16  # the name of a trainer's connection is its token, then DATA or HEARTBEAT
DATA, HEARTBEAT = b"d", b"h"
RECONNECT_GRACE = 2.5  # seconds that a trainer whose connection closed has to be heard of again


@dataclass(frozen=True)
class Identity:
    """Which job a server belongs to, and who may join."""

    name: str  # address:port, for messages
    num_trainers: int
    job: str = ""
    attempt: str = ""
    secret: str = ""

    def __str__(self) -> str:
        return f"pserver {self.name} (job {self.job!r}, attempt {self.attempt!r})"


@dataclass
class Trainer:
    """A trainer that has joined."""

    number: int
    token: bytes
    address: str
    hello: dict[str, Any]
    heard: float
    suspected: float | None = None  # when its connection closed
    key: bytes = b""  # that signs its messages
    sequence: int = 0  # of the last request taken
    pieces: set[int] = field(default_factory=set)  # of that request that have come
    answers: dict[int, Message] = field(default_factory=dict)  # to its pieces, as far as there are
    pushed: float = 0.0  # when the last piece of a gradient came
    batch: int = 0  # of its pass, up to which its gradients have taken their steps
    keeps_values: bool = False  # it wants none with the answer to its gradient
    doing: str = "joined"
    passes: int = 0
    own: Any = None  # its part of a checkpoint
    memory: SharedMemory | None = None  # where its payloads are, if it lives beside this server
    is_waiting: bool = False  # for the start of a pass, or for initial values
    starts_at: int = 0  # batches of the pass that it trained in an earlier attempt
    has_finished_pass: bool = True
    has_left: bool = False

    def __str__(self) -> str:
        return f"trainer {self.number} at {self.address}"


def refuse_stranger(
    one: Identity, server_nonce: str, connection: bytes, message: Message, who: str
) -> PaddleError | None:
    """Return why a caller, probe or trainer, is none of this job and attempt, or None.

    Args: server_nonce: the one that its proof must hold; empty for a probe.
    """
    hello = message.note
    for key, ours in (("job", one.job), ("attempt", one.attempt)):
        if hello.get(key) != ours:
            return PeerUnreachableError(
                f"{one} was called by {who} with {key} {_show_value(hello, key)}; this server has {key} {ours!r}"
            )
    facts = ("hello", message.trainer, connection.hex(), protocol.canonical(hello))
    if hello.get("server_nonce") != server_nonce or not protocol.is_proven(hello.get("proof"), one.secret, *facts):
        return PeerUnreachableError(
            f"{one} was called by {who} without the proof of this job's secret; PADDLE_SECRET differs between the two"
        )
    return None


def refuse_trainer(
    one: Identity, trainers: Mapping[int, Trainer], connection: bytes, message: Message, who: str
) -> PaddleError | None:
    """Return why a member of the job cannot join as a trainer, or None."""
    hello = message.note
    if hello.get("num_trainers") != one.num_trainers:
        return ConfigError(
            f"{one} serves num_gradient_servers = {one.num_trainers}; {who} has "
            f"num_gradient_servers = {_show_value(hello, 'num_trainers')}"
        )
    if not 0 <= message.trainer < one.num_trainers:
        return ConfigError(f"{one} serves trainers 0 to {one.num_trainers - 1}; {who} has another id")
    if hello.get("dtype") != protocol.DTYPE:
        return ConfigError(f"{one} keeps {protocol.DTYPE}; {who} has {_show_value(hello, 'dtype')}")
    if len(connection) != TOKEN_BYTES + 1:
        return BugError(f"{one}: {who} calls on a connection whose name has {len(connection)} bytes")
    known = trainers.get(message.trainer)
    if known and known.token != connection[:TOKEN_BYTES]:
        return ConfigError(f"{one} was joined by two trainers with one id: {known} and {who}")
    first = next(iter(trainers.values()), None)
    return _refuse_difference(one, hello, who, first) if first else None


def _refuse_difference(one: Identity, hello: Mapping[str, Any], who: str, first: Trainer) -> PaddleError | None:
    for key, name in (
        ("services", "number of services (hosts x ports)"),
        ("service", "number for this service"),
        ("parameters", "parameter digest"),
        ("shape", "count and size of the parameters"),
    ):
        if hello.get(key) != first.hello.get(key):
            return ConfigError(
                f"{one}: {who} joins with another {name} than {first}: {_show(hello)} against {_show(first.hello)}"
            )
    if hello.get("settings") != first.hello.get("settings"):
        glog.warning(f"{who} has other optimization settings than {first}; those of trainer 0 count")
    return None


def list_trainers(numbers: Sequence[int]) -> str:
    """Return 'trainer 1' or 'trainers 1, 2'."""
    return f"trainer{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:10]))}" + (
        f" and {len(numbers) - 10} more" if len(numbers) > 10 else ""
    )


def _show(hello: Mapping[str, Any]) -> str:
    return (
        f"service {_show_value(hello, 'service')} of {_show_value(hello, 'services')}, digest "
        f"{_show_value(hello, 'parameters')} of {_show_value(hello, 'shape')} (parameters, elements)"
    )


def _show_value(hello: Mapping[str, Any], key: str) -> str:
    return glog.clean(repr(hello.get(key)), 100)
