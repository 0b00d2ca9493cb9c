"""The requests of collectives, and the agreement of the ranks about the requests that run.

Every rank announces each of its requests once, in its own order. A request runs when all ranks have announced the same
request with the same name. The requests that can run at the same time run in the order in which rank 0 has announced
them. So ranks may call any number of collectives in any order before they wait for one of them.

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


class CollectiveKind(enum.IntEnum):
    """The kinds of collectives."""

    ALLREDUCE = 1
    ALLGATHER = 2
    BROADCAST = 3
    BARRIER = 4
    ALLTOALL = 5
    REDUCESCATTER = 6


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
        rank sends to each rank in an all-to-all; rows after their sum are not sent.
    """

    kind: CollectiveKind
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    argument: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    splits: tuple[int, ...] = ()

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
        return self.shape == other.shape


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
        by name of the request, a text that describes the mismatch.
    """

    run: list[list[Request]]
    mismatches: dict[str, str]


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
    return b"".join((fixed, scales, struct.pack(f"<{len(lengths)}q", *lengths), name))


def parse_announcement(note: bytes) -> list[Request]:
    """Parse the requests of an announcement.

    Raises: ProtocolError: the announcement is malformed; the message names the problem.
    """
    requests: list[Request] = []
    place = 0
    while place < len(note):
        if len(requests) == MAX_REQUESTS:
            raise ProtocolError(f"an announcement of more than {MAX_REQUESTS} collectives")
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
        requests.append(request)
    return requests


def _check(request: Request, beyond: int) -> None:
    if beyond > 0 or min(request.shape, default=0) < 0 or request.elements > MAX_ELEMENTS:
        raise ProtocolError("an announcement with a shape or a name that is out of bounds")
    if request.kind in REDUCING_KINDS and request.argument not in set(Reduction):
        raise ProtocolError(f"an announcement with the unknown reduction {request.argument}")
    if not request.shape and request.kind not in (CollectiveKind.ALLREDUCE, CollectiveKind.BROADCAST):
        raise ProtocolError("an announcement of an array that has no rows")
    is_split = request.kind == CollectiveKind.ALLTOALL
    if min(request.splits, default=0) < 0 or sum(request.splits) > (request.shape[0] if is_split else 0):
        raise ProtocolError("an announcement with splits that are out of bounds")
    if math.isnan(request.prescale) or math.isnan(request.postscale):
        raise ProtocolError("an announcement with a scale factor that is no number")


class Ledger:
    """The requests that some ranks have announced and others have not; it is the same on every rank."""

    def __init__(self, size: int) -> None:
        self._of_rank: list[dict[str, Request]] = [{} for _ in range(size)]
        self._places: dict[str, int] = {}  # by name: place in the order in which rank 0 has announced the requests
        self._number = 0

    @property
    def is_empty(self) -> bool:
        """Whether no request waits for the announcement of another rank."""
        return not any(self._of_rank)

    def list_pending(self, rank: int) -> list[Request]:
        """Return the announced requests of a rank that have not run yet."""
        return list(self._of_rank[rank].values())

    def add(self, announced: Sequence[Sequence[Request]]) -> Agreement:
        """Add announcements; return the requests that run now, and the mismatches, and forget both.

        Args: announced: by rank, the new requests of the rank, in the order of that rank.
        Raises: ProtocolError: a rank has announced a request twice, or too many requests.
        """
        for rank, requests in enumerate(announced):
            pending = self._of_rank[rank]
            for request in requests:
                if request.name in pending:
                    raise ProtocolError(f"a second announcement of '{request.name}' from rank {rank}")
                if request.kind == CollectiveKind.ALLTOALL and len(request.splits) != len(self._of_rank):
                    raise ProtocolError(f"{len(request.splits)} splits of '{request.name}' from rank {rank}")
                pending[request.name] = request
                # every rank runs requests in the order of rank 0, because all have to do the same at the same time
                if not rank:
                    self._places[request.name] = self._number
                    self._number += 1
            if len(pending) > MAX_PENDING:
                raise ProtocolError(f"more than {MAX_PENDING} collectives of rank {rank} that other ranks do not call")
        new = {request.name for requests in announced for request in requests}
        whole = [name for name in new if all(name in pending for pending in self._of_rank)]
        agreement = Agreement([], {})
        for name in sorted(whole, key=self._places.__getitem__):
            same = [pending.pop(name) for pending in self._of_rank]
            del self._places[name]
            if all(same[0].agrees(other) for other in same):
                agreement.run.append(same)
            else:
                agreement.mismatches[name] = describe_mismatch(same)
        return agreement


def describe_mismatch(requests: Sequence[Request]) -> str:
    """Return a text about the ranks whose requests differ from the most frequent request, and about the difference.

    Args: requests: requests with the same name, by rank.
    """
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
