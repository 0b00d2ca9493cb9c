"""The submitted requests of a rank, which wait for their results.

A request is a single collective, a group of collectives that run together, or a join. No I/O.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle_cluster.elastic.collectives.dtypes import Flat
from paddle_cluster.elastic.collectives.frames import MAX_NOTE_BYTES
from paddle_cluster.elastic.collectives.requests import (
    JOIN_NAME,
    MAX_PENDING,
    MAX_REQUESTS,
    CollectiveKind,
    Request,
    encode_request,
)

_INTEGER = np.dtype(np.int64)
# the names of the collectives that callers give no name; with such a name, the request of a caller would meet the
# request of another rank that has only the same number
_NUMBERED = re.compile(r"noname\.[0-9]+")


class Handle:
    """A submitted request.

    Attributes: error: the reason why there is no result.  place: the group, the exchange in which the request has run,
        and its number there; they are the same on all ranks, and no other request has them.  note: the request in an
        announcement.  is_announced: whether this rank has announced the request.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.note = b""
        self.error: Exception | None = None
        self.is_done = self.is_announced = False
        self.place = ("", 0, 0)

    @property
    def parts(self) -> Sequence[CollectiveHandle]:
        """The collectives of the request."""
        return ()

    @property
    def count(self) -> int:
        """The number of requests in an announcement."""
        return 1 + len(self.request.members)

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays of this rank."""
        return sum(part.source.nbytes for part in self.parts)


class CollectiveHandle(Handle):
    """A submitted collective.

    Attributes: output: the result.  received_splits: number of rows from each rank in the result of an all-to-all.
    """

    def __init__(self, request: Request, source: Flat, output: np.ndarray[Any, Any] | None = None) -> None:
        super().__init__(request)
        self.source, self.output = source, output
        self.received_splits: list[int] = []

    @property
    def parts(self) -> Sequence[CollectiveHandle]:
        """The collective itself."""
        return (self,)


class GroupHandle(Handle):
    """A submitted group of collectives, which all run in the same round, or fail together."""

    def __init__(self, members: Sequence[CollectiveHandle]) -> None:
        requests = tuple(member.request for member in members)
        super().__init__(Request(CollectiveKind.GROUP, "", _INTEGER, (), len(members), members=requests))
        self._members = members

    @property
    def parts(self) -> Sequence[CollectiveHandle]:
        """The members, in the order of the call."""
        return self._members


class JoinHandle(Handle):
    """A submitted join. `last`: the rank that has joined last."""

    def __init__(self) -> None:
        super().__init__(Request(CollectiveKind.JOIN, "", _INTEGER, (0,)))
        self.last = -1


def make_collective(
    request: Request,
    array: np.ndarray[Any, Any],
    output: np.ndarray[Any, Any] | None,
    wire: np.dtype[Any] | None = None,
) -> CollectiveHandle:
    """Return a collective of an array; type and shape in `request` are replaced by those of the array.

    Args: wire: the type in which the values are sent; None: that of the array.
    """
    source = np.ascontiguousarray(array).reshape(-1)
    return CollectiveHandle(request._replace(dtype=wire or array.dtype, shape=array.shape), source, output)


def make_zeros(request: Request) -> Handle:
    """Return a request like that of other ranks, with arrays of zeros, by which a joined rank takes part."""
    if request.kind == CollectiveKind.GROUP:
        return GroupHandle([_make_zeros(member) for member in request.members])
    return _make_zeros(request)


def _make_zeros(request: Request) -> CollectiveHandle:
    zeros = np.zeros(request.shape, request.dtype)
    return CollectiveHandle(request, zeros.reshape(-1), zeros)


class WaitingRequests:
    """The requests of a rank that wait.

    Attributes: new: those that the rank has not announced yet.  nbytes: bytes of the arrays of all of them.  number:
        number of requests without a name that this rank has submitted.
    """

    def __init__(self) -> None:
        self._of_key: dict[tuple[str, bool], Handle] = {}  # see `_key`
        self.new: collections.deque[Handle] = collections.deque()
        self.nbytes = self.number = 0

    def __bool__(self) -> bool:
        """Whether a request waits."""
        return bool(self._of_key)

    def add(self, handle: Handle, name: str | None) -> None:
        """Give a request its name, and add the request. `name`: None: the next number.

        Raises: ValueError: a request with this name waits already, too many requests wait, or no rank would accept the
            request.  TypeError: the name is no text.
        """
        text = f"noname.{self.number}" if name is None else name
        if isinstance(name, str) and _NUMBERED.fullmatch(name):
            raise ValueError(f"the name '{name}' is that of a collective without a name; choose another name")
        handle.request = handle.request._replace(name=text)
        if isinstance(handle, JoinHandle):  # afterwards all ranks count on from the largest number
            handle.request = handle.request._replace(shape=(self.number,))
        handle.note = encode_request(handle.request)
        if len(handle.note) > MAX_NOTE_BYTES or handle.count > MAX_REQUESTS:
            raise ValueError(
                f"a group of {len(handle.parts)} arrays cannot be announced at once: a group may have "
                f"{MAX_REQUESTS - 1} arrays whose shapes take {MAX_NOTE_BYTES} bytes; make several groups of it"
            )
        key = _key(handle)
        if key in self._of_key:
            what = "a join" if isinstance(handle, JoinHandle) else f"a collective named '{text}'"
            raise ValueError(f"{what} waits already; wait for its end, or choose another name")
        if len(self._of_key) >= MAX_PENDING:
            raise ValueError(f"{MAX_PENDING} collectives wait already; wait for the end of some of them")
        self.number += name is None
        self._of_key[key] = handle
        self.new.append(handle)
        self.nbytes += handle.nbytes

    def take_new(self) -> list[Handle]:
        """Return the requests of the next announcement."""
        handles: list[Handle] = []
        count = length = 0
        while self.new:
            count += self.new[0].count
            length += len(self.new[0].note)
            if count > MAX_REQUESTS or length > MAX_NOTE_BYTES:
                break
            handle = self.new.popleft()
            handle.is_announced = True
            handles.append(handle)
        return handles

    def find(self, name: str) -> Handle | None:
        """Return the collective or group that this rank has announced under a name, or None."""
        handle = self._of_key.get((name, False))
        return handle if handle is not None and handle.is_announced else None

    def end_join(self, last: int, number: int) -> Handle:
        """Return the join of this rank, in which all ranks have joined now.

        Args: last: the rank that has joined last.  number: where every rank continues to count requests without names.
        """
        handle = self._of_key[JOIN_NAME, True]
        assert isinstance(handle, JoinHandle)
        handle.last, self.number = last, max(self.number, number)
        return handle

    def remove(self, handle: Handle) -> None:
        """Remove a request that is done; nothing happens if it is none of this rank."""
        key = _key(handle)
        if self._of_key.get(key) is handle:
            del self._of_key[key]
            self.nbytes -= handle.nbytes

    def clear(self) -> list[Handle]:
        """Remove and return all requests."""
        handles = list(self._of_key.values())
        self._of_key, self.new, self.nbytes = {}, collections.deque(), 0
        return handles


def _key(handle: Handle) -> tuple[str, bool]:
    """Return the name of a request, and whether it is a join, with whose name a caller may name a collective."""
    return handle.request.name, isinstance(handle, JoinHandle)
