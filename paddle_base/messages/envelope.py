"""Pure functions that encode a message as a JSON object {"v": 1, "kind": ..., "id": ..., "ack": ..., "body": {...}}.

- `kind`: a member sends join, beat, leave and the protocol's requests. The server sends joined, beat, reply, error and
  the protocol's pushes.
- `id`: number of a request, counted by the member from 1. The reply or error to a request has the number of the
  request, and all other messages have 0.
- `ack`: a member has received the answers to all requests below this id, so the server may delete these answers.
- `body`: content of the message according to the protocol's table.

The limits of a message are checked before the message is parsed. The parser accepts only JSON; a message therefore
cannot contain code. No I/O.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from paddle_base.runtime.bounded_json import BoundedJsonError, dump_bounded, parse_bounded, show_value
from paddle_base.runtime.schema import MOST_EXACT, Fields, Integer, JsonObject, SchemaError, Text

VERSION = 1  # version of the envelope
MAX_BYTES = 1 << 20  # maximum bytes of a message
MAX_DEPTH = 16  # maximum levels of objects and lists
MAX_VALUES = 1 << 17  # maximum number of values of a message; each value takes up to 100 bytes of memory

JOIN, JOINED, BEAT, LEAVE, REPLY, ERROR = "join", "joined", "beat", "leave", "reply", "error"

_BODY = "the message"
IDENTITY = Fields(uid=Text(200, least=1), incarnation=Integer(0))
JOIN_FIELDS = Fields(protocol=Text(200), realm=Text(200), member=IDENTITY)  # the join message, without the hello
JOINED_FIELDS = Fields(server=IDENTITY)  # the welcome message, without the protocol's part
ERROR_FIELDS = Fields(code=Text(40), reason=Text(4000))


class MemberId(NamedTuple):
    """A member's identity: the UID of its pod (or of another object), and a number that differs with each start.

    The number is the time of the start. It only names the process, because clocks are set back: no program may compare
    two numbers for their order.
    """

    uid: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.uid}.{self.incarnation}"

    def to_json(self) -> JsonObject:
        """Return the identity as JSON for messages."""
        return {"uid": self.uid, "incarnation": self.incarnation}


@dataclass(frozen=True)
class Envelope:
    """A message."""

    kind: str
    body: Mapping[str, Any] = field(default_factory=dict)
    id: int = 0
    ack: int = 0


@dataclass(frozen=True)
class PreparedMessage:
    """A message without `id` and `ack`, which can be sent several times with different values of `id` and `ack`."""

    before: bytes
    after: bytes

    def encode(self, id: int, ack: int) -> bytes:
        """Return the bytes of the message."""
        return b'%b"id":%d,"ack":%d%b' % (self.before, id, ack, self.after)


def prepare(kind: str, body: Mapping[str, Any]) -> PreparedMessage:
    """Return a message that can be sent with any values of `id` and `ack`.

    Raises: SchemaError: the other side would refuse the form or size of the message.
    """
    text = _dump(kind, body)
    before = _begin(kind)
    size = len(before) + len(text) + _NUMBERS
    if size > MAX_BYTES:
        raise SchemaError("size", f"a message {kind} has {size} bytes, and at most {MAX_BYTES} are accepted")
    return PreparedMessage(before, b',"body":%b}' % text)


def encode(message: Envelope) -> bytes:
    """Return the bytes of a message.

    Raises: SchemaError: the other side would refuse the form or size of the message.
    """
    return prepare(message.kind, message.body).encode(message.id, message.ack)


@functools.lru_cache(256)
def _begin(kind: str) -> bytes:
    return b'{"v":%d,"kind":%b,' % (VERSION, _dump(kind, kind))


def _dump(kind: str, value: object) -> bytes:
    try:
        return dump_bounded(value, depth=MAX_DEPTH - 1, values=_BODY_VALUES)
    except BoundedJsonError as exc:
        raise SchemaError("form", f"a message {kind} {exc}") from exc


def decode(data: bytes) -> Envelope:
    """Parse bytes as a message, and return the message, whose body is not checked yet.

    Raises: SchemaError: the message is malformed; the code is `size`, `form`, `version` or `schema`.
    """
    if len(data) > MAX_BYTES:
        raise SchemaError("size", f"a message has {len(data)} bytes, and at most {MAX_BYTES} are accepted")
    try:
        parts = parse_bounded(data, depth=MAX_DEPTH, values=MAX_VALUES)
    except BoundedJsonError as exc:
        raise SchemaError("form", f"a message {exc}") from exc
    version, body = parts.pop("v", None), parts.pop("body", None)
    if version != VERSION or isinstance(version, bool):
        raise SchemaError("version", f"a message has version {show_value(version)}; this program uses {VERSION}")
    _ENVELOPE.check(parts, _BODY)
    if not isinstance(body, dict):
        raise SchemaError("schema", f"{_BODY}.body is {show_value(body)}, not an object")
    return Envelope(parts["kind"], body, parts["id"], parts["ack"])


def error(code: str, reason: str, answers: int = 0) -> bytes:
    """Return the bytes of an error message; a long reason is truncated."""
    shown = reason[:4000].encode(errors="replace").decode()  # a file name may contain unpaired surrogates
    return encode(Envelope(ERROR, {"code": code[:40], "reason": shown}, answers))


_NUMBERS = len(f'"id":{MOST_EXACT},"ack":{MOST_EXACT},"body":' + "}")  # maximum bytes of the fields around the body
_BODY_VALUES = MAX_VALUES - 5  # an envelope has five values: v, kind, id, ack and body
_ENVELOPE = Fields(kind=Text(60, least=1), id=Integer(0, MOST_EXACT), ack=Integer(0, MOST_EXACT))
