"""The requests of the driver to an agent, and the answers of the agent.

- `GET /agent/state` asks for the state; the answer is {"agent": "ID", "workers": 2, "is_leaving": false}.
- `PUT /workers/<incarnation>?agent=ID` starts a worker; the body is {"argv": [...], "environ": {...}, "rank": 0}.
- `PUT /ends/<incarnation>?agent=ID` ends a worker by SIGTERM, and by SIGKILL after a grace period.
- `GET /output/<incarnation>?agent=ID&stdout=A.B&stderr=A.B&most=N&wait=S` asks for the output and the exit code.

All requests and answers are signed with the job's secret. ID is a text that is unique to each agent. A request that is
replayed to a later agent at the same address therefore has no effect. A replay to the same agent has no effect either,
because a worker is started once and ended once. A.B is a mark, which consists of two offsets in a stream. The driver
has shown the bytes before A, and the agent may drop them. The driver has received the bytes before B. A is -1 if the
driver does not know how many bytes it has shown. The answer to /output is a line of JSON and the bytes of both streams:

    {"stdout": [first, length, total], "stderr": [first, length, total], "exit": null}

`first` is the offset of the answer's bytes in the stream, and `length` is the number of these bytes. `total` is the
number of bytes that the worker has written so far. `exit` is the exit code, or null while the worker runs. No I/O.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from paddle_base.runtime.schema import (
    Integer,
    Items,
    Maybe,
    Named,
    Record,
    Row,
    SchemaError,
    Such,
    Text,
    Truth,
    parse_object,
)

KINDS = ("stdout", "stderr")
MOST_LAUNCH_BYTES = 256 << 10
MOST_WORDS = 2000  # maximum number of words of a command line and of its variables together
MOST_CHUNK = 128 << 10  # maximum bytes of a stream in an answer
MOST_ANSWER = 2 * MOST_CHUNK + 4096
_MOST_NUMBER = (1 << 31) - 1
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_TEXT = re.compile(r"[0-9a-zA-Z_.-]{1,64}")
_MARK = re.compile(r"(-1|[0-9]{1,18})\.([0-9]{1,18})")


class WorkerLaunch(NamedTuple):
    """A worker that an agent is to start.

    Attributes: environ: variables in addition to the variables of the agent.
    """

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    rank: int

    def encode(self) -> bytes:
        """Return the body of a request."""
        return json.dumps({"argv": self.argv, "environ": dict(self.environ), "rank": self.rank}).encode()


class AgentState(NamedTuple):
    """The state of an agent.

    Attributes: agent: unique name of the agent; the next agent at the same address has another name.  workers: number
        of running workers.  is_leaving: the agent starts no more workers.
    """

    agent: str
    workers: int
    is_leaving: bool

    def encode(self) -> bytes:
        """Return the body of an answer."""
        return json.dumps(self._asdict()).encode()


class StreamMark(NamedTuple):
    """The part of a stream that the driver has shown, and the part that it has received; a request names them as A.B.

    Attributes: shown: number of shown bytes, which the agent may drop; -1: unknown.  seen: number of received bytes.
    """

    shown: int = -1
    seen: int = 0


class StreamPart(NamedTuple):
    """A part of the output of a worker.

    Attributes: first: offset of the part in bytes.  total: number of bytes that the worker has written so far.
    """

    first: int
    data: bytes
    total: int


class OutputAnswer(NamedTuple):
    """The output of a worker by stream, and its exit code: None while the worker runs, -n after signal n."""

    parts: Mapping[str, StreamPart]
    exit_code: int | None

    def encode(self) -> bytes:
        """Return the body of an answer."""
        head: dict[str, Any] = {kind: [one.first, len(one.data), one.total] for kind, one in self.parts.items()}
        line = json.dumps({**head, "exit": self.exit_code}).encode()
        return b"\n".join([line, b"".join(self.parts[kind].data for kind in KINDS)])


def read_launch(body: bytes) -> WorkerLaunch:
    """Parse the body of a request to start a worker.

    Raises: SchemaError: the body is malformed.
    """
    fields = _parse(body, _LAUNCH)
    return WorkerLaunch(tuple(fields["argv"]), fields["environ"], fields["rank"])


def read_state(body: bytes) -> AgentState:
    """Parse the state of an agent from an answer.

    Raises: SchemaError: the body is malformed.
    """
    fields = _parse(body, _STATE)
    return AgentState(*(fields[name] for name in AgentState._fields))


def read_output_answer(body: bytes) -> OutputAnswer:
    """Parse the output and the exit code of a worker from an answer.

    Raises: SchemaError: the body is malformed.
    """
    line, newline, data = body.partition(b"\n")
    fields = _parse(line, _NEWS)
    if not newline:
        raise SchemaError("form", "the body has no end of its first line")
    parts, at = {}, 0
    for kind in KINDS:
        first, length, total = fields[kind]
        if first + length > total:
            raise SchemaError("form", f"the part of {kind} exceeds the stream")
        parts[kind] = StreamPart(first, data[at : at + length], total)
        at += length
    if at != len(data):
        raise SchemaError("form", "the bytes do not have the announced lengths")
    return OutputAnswer(parts, fields["exit"])


def write_mark(mark: StreamMark) -> str:
    """Return a mark as the text in a request."""
    return f"{mark.shown}.{mark.seen}"


def read_mark(text: str) -> StreamMark:
    """Parse the text of a mark in a request.

    Raises: SchemaError: the mark is malformed.
    """
    found = _MARK.fullmatch(text)
    if not found:
        raise SchemaError("form", "a mark has to be two numbers with a dot between them")
    return StreamMark(int(found[1]), int(found[2]))


def is_name(text: str) -> bool:
    """Return whether a text is a name of an agent or of a worker's process."""
    return _TEXT.fullmatch(text) is not None


# a word of a command line, or the value of a variable, which may be a password
_WORD = Such(Text(MOST_LAUNCH_BYTES), lambda word: "\0" not in word, "a text without null characters", is_secret=True)
_LAUNCH = Record(
    argv=Such(Items(_WORD, MOST_WORDS), lambda argv: bool(argv and argv[0]), "a list that begins with a program"),
    environ=Named(
        Such(Text(200), lambda name: _NAME.fullmatch(name) is not None, "a name of a variable"), _WORD, MOST_WORDS
    ),
    rank=Integer(0, _MOST_NUMBER),
)
_STATE = Record(
    agent=Such(Text(64), is_name, "a name of an agent"), workers=Integer(0, _MOST_NUMBER), is_leaving=Truth()
)
_PART = Row((Integer(), Integer(), Integer()))
_NEWS = Record(**dict.fromkeys(KINDS, _PART), exit=Maybe(Integer(-64, 255)))


_parse = functools.partial(parse_object, name="a body", depth=2, values=MOST_WORDS)
