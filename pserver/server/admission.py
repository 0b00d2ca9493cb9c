"""Check the trainers and probes that want to join a server. A refusal names both sides.

In this module, `caller` is the description of the trainer or probe for messages. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, ConfigError, PaddleError, PeerUnreachableError
from paddle_base.runtime.schema import Maybe, Row, Shape, Text
from pserver.server.trainer_session import TrainerSession
from pserver.wire import notes, protocol
from pserver.wire.authentication import DATA, TOKEN_BYTES
from pserver.wire.notes import show
from pserver.wire.protocol import Message

_HELLO: dict[str, Shape] = {
    "parameters": Text(64),
    "settings": Text(64),
    "services": notes.INTEGER,
    "service": notes.INTEGER,
    "memory": Maybe(notes.OBJECT),
    "shape": Row((notes.INTEGER, notes.INTEGER)),  # the count and the size of the parameters
}


@dataclass(frozen=True)
class Identity:
    """The job that a server belongs to, and the number of trainers that may join the server."""

    name: str  # address:port, for messages
    num_trainers: int  # 0 in a task job
    job: str = ""
    attempt: str = ""
    secret: str = ""
    is_task_job: bool = False  # whether trainers join and leave

    def __str__(self) -> str:
        return f"pserver {self.name} (job {self.job!r}, attempt {self.attempt!r})"


def refuse_other_job(one: Identity, hello: Mapping[str, Any], caller: str) -> PaddleError | None:
    """Return why a trainer or probe does not belong to this job and attempt, or None."""
    for key, ours in (("job", one.job), ("attempt", one.attempt)):
        if hello.get(key) != ours:
            return PeerUnreachableError(
                f"{one} was called by {caller} with {key} {show(hello.get(key))}; this server has {key} {ours!r}"
            )
    return None


def refuse_kind(one: Identity, hello: Mapping[str, Any], caller: str) -> PaddleError | None:
    """Return a refusal if either only the server or only the trainer belongs to a task job, else None."""
    theirs = hello.get("elastic") is True
    if theirs == one.is_task_job or hello.get("job") != one.job:
        return None
    kinds = ("was started for a fixed number of trainers", "was started with a store, for trainers that come and go")
    return ConfigError(
        f"{one} {kinds[one.is_task_job]}; {caller} {kinds[theirs]}: start both with --store_dir or "
        "--etcd_endpoints, or both without these flags"
    )


def refuse_trainer(
    one: Identity, trainers: Mapping[int, TrainerSession], connection: bytes, message: Message, caller: str
) -> PaddleError | None:
    """Return why a process of the job cannot join as a trainer, or None.

    Args: connection: name of the process's connection.
    """
    hello = message.note
    if hello.get("num_trainers") != one.num_trainers:
        return ConfigError(
            f"{one} serves num_gradient_servers = {one.num_trainers}; {caller} has "
            f"num_gradient_servers = {show(hello.get('num_trainers'))}: give pservers and trainers the same "
            "--num_gradient_servers, or leave the flag out at the trainers, which then take the pserver's number"
        )
    if not 0 <= message.trainer < one.num_trainers:
        return ConfigError(f"{one} serves trainers 0 to {one.num_trainers - 1}; {caller} has another id")
    refusal = refuse_hello(one, connection, hello, caller)
    if refusal:
        return refusal
    known = trainers.get(message.trainer)
    if known and known.token != connection[:TOKEN_BYTES]:
        return ConfigError(f"{one} was joined by two trainers with one id: {known} and {caller}")
    first = next(iter(trainers.values()), None)
    return refuse_difference(one, hello, caller, first.hello, str(first)) if first else None


def refuse_hello(one: Identity, connection: bytes, hello: Mapping[str, Any], caller: str) -> PaddleError | None:
    """Return why a hello is invalid by itself, without regard to other trainers, or None."""
    if connection[TOKEN_BYTES:] != DATA:
        return BugError(f"{one}: {caller} joins on a connection that is not for data")
    if hello.get("dtype") != protocol.DTYPE:
        return ConfigError(f"{one} stores {protocol.DTYPE}; {caller} has {show(hello.get('dtype'))}")
    try:
        _check_types(hello)
    except PaddleError as exc:
        return BugError(f"{one}: the hello of {caller} is invalid: {exc}")
    return None


def _check_types(hello: Mapping[str, Any]) -> None:
    """Check the types of the fields of a trainer's hello.

    Raises: BugError: a field has a wrong type; the message names the field.
    """
    for key, shape in _HELLO.items():
        notes.get(hello, key, shape)


def refuse_difference(
    one: Identity, hello: Mapping[str, Any], caller: str, first: Mapping[str, Any], owner: str
) -> PaddleError | None:
    """Return how the model of a trainer differs from the model of an earlier trainer, or None if it does not differ.

    Args: hello: the hello of the trainer. first, owner: the hello and the description of the earlier trainer.
    """
    for key, name in (
        ("services", "number of services (hosts x ports)"),
        ("service", "number for this service"),
        ("parameters", "parameter digest"),
        ("shape", "count and size of the parameters"),
    ):
        if hello.get(key) != first.get(key):
            return ConfigError(
                f"{one}: {caller} joins with another {name} than {owner}: {_show(hello)} against {_show(first)}"
            )
    if hello.get("settings") != first.get("settings"):
        counting = "the first values" if one.is_task_job else "trainer 0"
        glog.warning(f"{caller} has other optimization settings than {owner}; the settings of {counting} are used")
    return None


def list_trainers(numbers: Sequence[int]) -> str:
    """Return 'trainer 1' or 'trainers 1, 2'."""
    return f"trainer{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:10]))}" + (
        f" and {len(numbers) - 10} more" if len(numbers) > 10 else ""
    )


def _show(hello: Mapping[str, Any]) -> str:
    return (
        f"service {show(hello.get('service'))} of {show(hello.get('services'))}, digest "
        f"{show(hello.get('parameters'))} of {show(hello.get('shape'))} (parameters, elements)"
    )
