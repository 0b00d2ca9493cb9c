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
import math
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from paddle_cluster.elastic.collectives.dtypes import DTYPES, name_dtype
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
    ALLTOALL = 5
    REDUCESCATTER = 6
    JOIN = 7  # `shape`: the number of requests without a name that the rank has submitted
    GROUP = 8  # `argument`: the number of members, which follow in the announcement


REDUCING_KINDS = frozenset((CollectiveKind.ALLREDUCE, CollectiveKind.REDUCESCATTER))
# kinds whose arrays may have different numbers of rows on different ranks
UNEVEN_KINDS = frozenset((CollectiveKind.ALLGATHER, CollectiveKind.ALLTOALL))


class Reduction(enum.IntEnum):
    """The reductions of arrays; the numbers are those of Horovod's Average, Sum, Min, Max, Product."""

    AVERAGE = 0
    SUM = 1
    MIN = 3
    MAX = 4
    PRODUCT = 5


_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
_FIXED = struct.Struct("<BBBBHHI")
_FACTORS = struct.Struct("<dd")
_HAS_FACTORS = 1  # flag of a request with scale factors


class Request(NamedTuple):
    """A request for a collective.

    Attributes: argument: the reduction of an all-reduce or a reduce-scatter, or the root of a broadcast.
        prescale, postscale: factors of the arrays and of the result of a reduction.  splits: number of rows that this
        rank sends to each rank in an all-to-all; rows after their sum are not sent.  members: the requests of a
        group; they have no names.
    """

    kind: CollectiveKind
    name: str
    dtype: np.dtype[Any]
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

    @property
    def row(self) -> int:
        """The number of elements of a row, which is an item of the first dimension."""
        count = 1
        for length in self.shape[1:]:
            count *= length
        return count

    def describe(self) -> str:
        """Return a text that describes the properties that must be equal on all ranks."""
        if self.kind == CollectiveKind.GROUP:
            return f"a group of {len(self.members)}"
        what = f"{self.kind.name.lower()} of {name_dtype(self.dtype)} {self.shape}"
        if self.kind in REDUCING_KINDS:
            what = f"{what} by {Reduction(self.argument).name.lower()}"
        elif self.kind == CollectiveKind.BROADCAST:
            what = f"{what} from rank {self.argument}"
        if self.prescale == self.postscale == 1.0:
            return what
        return f"{what} with the factors {self.prescale:g} and {self.postscale:g}"

    def agrees(self, other: Request) -> bool:
        """Return whether two ranks request the same collective; the number of rows may differ in `UNEVEN_KINDS`."""
        if self[4:7] != other[4:7] or self.kind != other.kind or self.dtype != other.dtype:
            return False
        if self.kind in UNEVEN_KINDS:
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


def split_evenly(count: int, size: int) -> list[int]:
    """Return the number of rows of each rank's part; the first ranks get one more if `size` does not divide `count`."""
    return [count // size + (number < count % size) for number in range(size)]


def shape_of_result(same: Sequence[Request], rank: int) -> tuple[int, ...]:
    """Return the shape of the result of a rank. Args: same: the requests of all ranks, by rank."""
    own = same[rank]
    if own.kind == CollectiveKind.ALLGATHER:
        return (sum(one.shape[0] for one in same), *own.shape[1:])
    if own.kind == CollectiveKind.ALLTOALL:
        return (sum(one.splits[rank] for one in same), *own.shape[1:])
    if own.kind == CollectiveKind.REDUCESCATTER:
        return (split_evenly(own.shape[0], len(same))[rank], *own.shape[1:])
    return own.shape


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
    if len(request.shape) > MAX_DIMENSIONS or max((request.elements, *request.shape)) > MAX_ELEMENTS:
        raise ValueError(
            f"an array of {len(request.shape)} dimensions and {request.elements} elements cannot take part in a "
            f"collective; at most {MAX_DIMENSIONS} dimensions and {MAX_ELEMENTS} elements can"
        )
    factors = request.prescale, request.postscale
    if any(map(math.isnan, factors)):
        raise ValueError(f"the scale factors of '{request.name}' are {factors}; give numbers")
    flags = _HAS_FACTORS if factors != (1.0, 1.0) else 0
    lengths = (*request.shape, *request.splits)
    fixed = _FIXED.pack(
        request.kind,
        _CODES[request.dtype],
        len(request.shape),
        flags,
        len(name),
        len(request.splits),
        request.argument,
    )
    scales = _FACTORS.pack(*factors) if flags else b""
    members = map(encode_request, request.members)
    return b"".join((fixed, scales, struct.pack(f"<{len(lengths)}q", *lengths), name, *members))


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
        kind, code, dimensions, flags, length, parts, argument = _FIXED.unpack_from(note, place)
        place += _FIXED.size
        if dimensions > MAX_DIMENSIONS or length > MAX_NAME_BYTES or code >= len(DTYPES):
            raise ProtocolError("an announcement with a field that is out of bounds")
        factors = (1.0, 1.0)
        if flags:
            factors = _FACTORS.unpack_from(note, place)
            place += _FACTORS.size
        lengths = struct.unpack_from(f"<{dimensions + parts}q", note, place)
        place += 8 * len(lengths)
        name = note[place : place + length].decode()
        place += length
        shape, splits = lengths[:dimensions], lengths[dimensions:]
        request = Request(CollectiveKind(kind), name, DTYPES[code], shape, argument, *factors, splits)
    except (struct.error, ValueError) as exc:
        raise ProtocolError(f"an announcement that cannot be read ({exc})") from exc
    _check(request, place - len(note))
    return request, place


def _check(request: Request, beyond: int) -> None:
    # an array of no elements may have a dimension of any length; the sum of all ranks' rows must have 64 bits
    if beyond > 0 or min(request.shape, default=0) < 0 or max((request.elements, *request.shape)) > MAX_ELEMENTS:
        raise ProtocolError("an announcement with a shape or a name that is out of bounds")
    if request.kind in REDUCING_KINDS and request.argument not in set(Reduction):
        raise ProtocolError(f"an announcement with the unknown reduction {request.argument}")
    if not request.shape and (request.kind in UNEVEN_KINDS or request.kind == CollectiveKind.REDUCESCATTER):
        raise ProtocolError("an announcement of an array that has no rows")
    if request.splits and request.kind != CollectiveKind.ALLTOALL:
        raise ProtocolError(f"an announcement of the kind {request.kind.name} with splits")
    if request.splits and (min(request.splits) < 0 or sum(request.splits) > request.shape[0]):
        raise ProtocolError("an announcement with splits that are out of bounds")
    is_scaled = request.argument == Reduction.AVERAGE or not request.prescale == request.postscale == 1.0
    if request.kind in REDUCING_KINDS and request.dtype == np.bool_ and is_scaled:
        raise ProtocolError("an announcement of truth values with an average or a factor")
    if math.isnan(request.prescale) or math.isnan(request.postscale):
        raise ProtocolError("an announcement with a scale factor that is no number")


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
        for one in (request, *request.members):
            if one.kind == CollectiveKind.ALLTOALL and len(one.splits) != len(self._of_rank):
                raise ProtocolError(f"{len(one.splits)} splits of '{request.name}' from rank {rank}")
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
