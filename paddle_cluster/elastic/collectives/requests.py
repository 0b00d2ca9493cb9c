"""The requests of collectives, and the agreement of the ranks about the requests that run.

Every rank announces each of its requests once, in its own order. A request runs when all ranks have announced the same
request with the same name. The requests that can run at the same time run in the order of their first announcements,
which is the same on all ranks. So ranks may call any number of collectives in any order before they wait for one of
them.

A group is a request with members, which run together. A rank that has joined takes part with zeros in each all-reduce
that it has not announced, until all ranks have joined.

A request without a name gets a name from its number in the order of the calls. If two ranks call different collectives
without names at the same position, the requests have the same name and different kinds. This is a mismatch, too.

No I/O.
"""

from __future__ import annotations

import enum
import struct
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pserver.wire.protocol import ProtocolError

MAX_NAME_BYTES = 512
MAX_REQUESTS = 4096  # maximum number of requests in an announcement; further requests wait for the next announcement
MAX_PENDING = 1 << 20  # maximum number of requests of a rank that other ranks have not announced
MAX_DIMENSIONS = 32  # maximum number of dimensions in numpy before version 2
MAX_ELEMENTS = 1 << 40
JOIN_NAME = "join"  # name of every request of the kind JOIN


class CollectiveKind(enum.IntEnum):
    """The kinds of collectives."""

    ALLREDUCE = 1
    ALLGATHER = 2
    BROADCAST = 3
    BARRIER = 4
    JOIN = 7  # `shape`: the number of requests without a name that the rank has submitted
    GROUP = 8  # `argument`: the number of members, which follow in the announcement


class Reduction(enum.IntEnum):
    """The reductions of arrays; the numbers are those of Horovod's Average, Sum, Min, Max."""

    AVERAGE = 0
    SUM = 1
    MIN = 3
    MAX = 4


DTYPES = (
    *map(np.dtype, (np.float16, np.float32, np.float64, np.int32, np.int64)),
    *map(np.dtype, (np.int8, np.int16, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_)),
)
REDUCED_DTYPES = DTYPES[:5]
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
_FIXED = struct.Struct("<BBBBHHI")


class Request(NamedTuple):
    """A request for a collective.

    Attributes: argument: the reduction of an all-reduce, or the root of a broadcast.  prescale, postscale: factors of
        the arrays and of the result.  splits: rows of an all-to-all for each rank; empty: the same for all ranks.
        members: the requests of a group; they have no names.
    """

    kind: CollectiveKind
    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    argument: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    splits: tuple[int, ...] = ()
    members: tuple[Request, ...] = ()

    @property
    def elements(self) -> int:
        """The number of elements of this rank's array."""
        count = 1
        for length in self.shape:
            count *= length
        return count

    @property
    def nbytes(self) -> int:
        """The bytes of this rank's array."""
        return self.elements * self.dtype.itemsize

    def describe(self) -> str:
        """Return a text that describes the properties that must be equal on all ranks."""
        if self.kind == CollectiveKind.GROUP:
            return f"a group of {len(self.members)}"
        what = f"{self.kind.name.lower()} of {self.dtype} {self.shape}"
        if self.kind == CollectiveKind.ALLREDUCE:
            return f"{what} by {Reduction(self.argument).name.lower()}"
        return f"{what} from rank {self.argument}" if self.kind == CollectiveKind.BROADCAST else what

    def agrees(self, other: Request) -> bool:
        """Return whether two ranks request the same collective; the first dimension of an all-gather may differ."""
        if self.kind != other.kind or self.dtype != other.dtype or self.argument != other.argument:
            return False
        if self.kind == CollectiveKind.ALLGATHER:
            return len(self.shape) == len(other.shape) and self.shape[1:] == other.shape[1:]
        if self.kind == CollectiveKind.GROUP:
            return all(map(Request.agrees, self.members, other.members))  # `argument` is their number
        return self.shape == other.shape

    @property
    def allows_joined(self) -> bool:
        """Whether a joined rank takes part in this collective."""
        if self.kind == CollectiveKind.GROUP:
            return all(member.allows_joined for member in self.members)
        return self.kind == CollectiveKind.ALLREDUCE


class Agreement(NamedTuple):
    """The result of a round of announcements.

    Attributes: run: the requests that run, in order; each item contains the requests of all ranks by rank.  mismatches:
        by name of the request, a text that describes the mismatch.  last_joined: the rank that has joined last, if all
        ranks have joined now, else -1.  number: in this case, the largest number of requests without a name that a rank
        has submitted.
    """

    run: list[list[Request]]
    mismatches: dict[str, str]
    last_joined: int = -1
    number: int = 0


def check_name(name: str) -> bytes:
    """Return the name of a collective in UTF-8.

    Raises: TypeError: the name is no text.  ValueError: the name is too long, or cannot be encoded.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a collective is {type(name).__name__}; it has to be a text")
    encoded = name.encode()
    if len(encoded) > MAX_NAME_BYTES:
        raise ValueError(
            f"the name '{name[:40]}...' of a collective has {len(encoded)} bytes; give it a name of at most "
            f"{MAX_NAME_BYTES} bytes"
        )
    return encoded


def encode_request(request: Request) -> bytes:
    """Encode a request for an announcement.

    Raises: TypeError, ValueError: no rank would accept the request; it is refused before any rank gets it.
    """
    name = check_name(request.name)
    if len(request.shape) > MAX_DIMENSIONS or request.elements > MAX_ELEMENTS:
        raise ValueError(
            f"an array of {len(request.shape)} dimensions and {request.elements} elements cannot take part in a "
            f"collective; at most {MAX_DIMENSIONS} dimensions and {MAX_ELEMENTS} elements can"
        )
    fixed = _FIXED.pack(request.kind, _CODES[request.dtype], len(request.shape), 0, len(name), 0, request.argument)
    members = map(encode_request, request.members)
    return b"".join((fixed, struct.pack(f"<{len(request.shape)}q", *request.shape), name, *members))


def parse_announcement(note: bytes) -> list[Request]:
    """Parse the requests of an announcement.

    Raises: ProtocolError: the announcement is malformed; the message names the problem.
    """
    requests: list[Request] = []
    place = count = 0
    while place < len(note):
        request, place = _parse_request(note, place)
        members: list[Request] = []
        if request.kind == CollectiveKind.GROUP:
            for _ in range(min(request.argument, MAX_REQUESTS)):
                member, place = _parse_request(note, place)
                members.append(member)
            if {CollectiveKind.GROUP, CollectiveKind.JOIN} & {member.kind for member in members}:
                raise ProtocolError("an announcement of a group in a group")
            request = request._replace(members=tuple(members))
        count += 1 + len(members)
        if count > MAX_REQUESTS:
            raise ProtocolError(f"an announcement of more than {MAX_REQUESTS} collectives")
        requests.append(request)
    return requests


def _parse_request(note: bytes, place: int) -> tuple[Request, int]:
    """Return the request at a place of an announcement, and the place of the next one."""
    try:
        kind, code, dimensions, _, length, _, argument = _FIXED.unpack_from(note, place)
        place += _FIXED.size
        if dimensions > MAX_DIMENSIONS or length > MAX_NAME_BYTES or code >= len(DTYPES):
            raise ProtocolError("an announcement with a field that is out of bounds")
        shape = struct.unpack_from(f"<{dimensions}q", note, place)
        place += 8 * dimensions
        name = note[place : place + length].decode()
        place += length
        request = Request(CollectiveKind(kind), name, DTYPES[code], shape, argument)
    except (struct.error, ValueError) as exc:
        raise ProtocolError(f"an announcement that cannot be read ({exc})") from exc
    _check(request, place - len(note))
    return request, place


def _check(request: Request, beyond: int) -> None:
    if beyond > 0 or min(request.shape, default=0) < 0 or request.elements > MAX_ELEMENTS:
        raise ProtocolError("an announcement with a shape or a name that is out of bounds")
    if request.kind == CollectiveKind.ALLREDUCE and request.argument not in set(Reduction):
        raise ProtocolError(f"an announcement with the unknown reduction {request.argument}")


class Ledger:
    """The requests that some ranks have announced and others have not; it is the same on every rank."""

    def __init__(self, size: int) -> None:
        self._of_rank: list[dict[str, Request]] = [{} for _ in range(size)]
        self._joins: dict[int, Request] = {}  # by rank, in the order in which the ranks have joined
        self._places: dict[str, int] = {}  # by name: place in the order of the first announcements
        self._number = 0

    @property
    def is_empty(self) -> bool:
        """Whether no request waits for the announcement of another rank."""
        return not (self._joins or any(self._of_rank))

    def list_pending(self, rank: int) -> list[Request]:
        """Return the announced requests of a rank that have not run yet."""
        joins = [self._joins[rank]] if rank in self._joins else []
        return [*self._of_rank[rank].values(), *joins]

    def add(self, announced: Sequence[Sequence[Request]]) -> Agreement:
        """Add announcements; return the requests that run now, and the mismatches, and forget both.

        Args: announced: by rank, the new requests of the rank, in the order of that rank.
        Raises: ProtocolError: a rank has announced a request twice, or too many requests.
        """
        joined = len(self._joins)
        for rank, requests in enumerate(announced):
            for request in requests:
                self._add(rank, request)
            if len(self._of_rank[rank]) > MAX_PENDING:
                raise ProtocolError(f"more than {MAX_PENDING} collectives of rank {rank} that other ranks do not call")
        # another joined rank may be the last one that earlier requests have waited for
        new = {request.name for requests in announced for request in requests} & self._places.keys()
        names = new if len(self._joins) == joined else list(self._places)
        waited_for = [pending for rank, pending in enumerate(self._of_rank) if rank not in self._joins]
        whole = [name for name in names if all(name in pending for pending in waited_for)]
        agreement = Agreement([], {})
        for name in sorted(whole, key=self._places.__getitem__):
            self._settle(name, agreement)
        if len(self._joins) < len(self._of_rank):
            return agreement
        last, number = list(self._joins)[-1], max(join.elements for join in self._joins.values())
        self._joins = {}
        return agreement._replace(last_joined=last, number=number)

    def _add(self, rank: int, request: Request) -> None:
        is_join = request.kind == CollectiveKind.JOIN
        if rank in self._joins if is_join else request.name in self._of_rank[rank]:
            raise ProtocolError(f"a second announcement of '{request.name}' from rank {rank}")
        if is_join:
            self._joins[rank] = request
            return
        self._of_rank[rank][request.name] = request
        # every rank runs requests in one order, because all have to do the same at the same time
        if request.name not in self._places:
            self._places[request.name] = self._number
            self._number += 1

    def _settle(self, name: str, agreement: Agreement) -> None:
        """Add a request to those that run, or to the mismatches; joined ranks take part without an announcement."""
        del self._places[name]
        found = [pending.pop(name, None) for pending in self._of_rank]
        given = [one for one in found if one is not None]
        absent = [rank for rank, one in enumerate(found) if one is None]
        same = [one or given[0] for one in found]
        if not all(given[0].agrees(other) for other in given):
            agreement.mismatches[name] = describe_mismatch(same)
        elif absent and not given[0].allows_joined:
            agreement.mismatches[name] = (
                f"collective '{name}': {_list(absent)} joined, and a joined rank takes part in all-reduces only; this "
                f"is {given[0].describe()}; call it on every rank before one joins"
            )
        else:
            agreement.run.append(same)


def describe_mismatch(requests: Sequence[Request]) -> str:
    """Return a text about the ranks whose requests differ from the most frequent request, and about the difference.

    Args: requests: requests with the same name, by rank.
    """
    first = requests[0]
    if first.members and all(one.kind == first.kind and one.argument == first.argument for one in requests):
        pairs = enumerate(zip(*(one.members for one in requests), strict=True))
        number, members = next((place, same) for place, same in pairs if not all(map(same[0].agrees, same)))
        return describe_mismatch([one._replace(name=f"{first.name}[{number}]") for one in members])
    texts = [request.describe() for request in requests]
    usual = Counter(texts).most_common(1)[0][0]
    others = [f"rank {rank} calls {text}" for rank, text in enumerate(texts) if text != usual]
    ranks = ", ".join(str(rank) for rank, text in enumerate(texts) if text == usual)
    return (
        f"collective '{requests[0].name}': {'; '.join(others[:8])}; "
        f"rank{'s' if texts.count(usual) > 1 else ''} {ranks} call{'s' if texts.count(usual) == 1 else ''} {usual}; "
        "let every rank call the same collective"
    )


def describe_stall(announced: Sequence[Sequence[Request] | None], rank: int, seconds: float) -> str:
    """Return a text that names the waiting collectives and the missing ranks.

    Args: announced: by rank, the announced requests; None: the rank has announced nothing since the last collective
        that ran.  rank: this rank.
    """
    names: dict[str, list[int]] = {}
    for number, requests in enumerate(announced):
        for request in requests or ():
            names.setdefault(request.name, []).append(number)
    parts = []
    for name, ranks in list(names.items())[:8]:
        missing = [str(number) for number in range(len(announced)) if number not in ranks]
        if missing:
            parts.append(f"'{name}' is called by {_list(ranks)} and waits for {_list(map(int, missing))}")
    text = "; ".join(parts) or "no rank calls a collective that another rank calls"
    return f"rank {rank} has waited {seconds:.0f} s for a collective: {text}"


def _list(ranks: object) -> str:
    numbers = [str(one) for one in ranks]  # type: ignore[attr-defined]
    shown = ", ".join(numbers[:16]) + (" ..." if len(numbers) > 16 else "")
    return f"rank{'s' if len(numbers) > 1 else ''} {shown}"
