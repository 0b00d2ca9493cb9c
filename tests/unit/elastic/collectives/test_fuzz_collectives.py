"""A rank that knows the secret and sends what it likes: the other one gets a result or an error of ours, in time."""

from __future__ import annotations

import contextlib
import socket

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_cluster.elastic.collectives import frames
from paddle_cluster.elastic.collectives.frames import FrameKind
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.mesh import Mesh
from paddle_cluster.elastic.collectives.paths import SocketPath
from paddle_cluster.elastic.collectives.peers import PeerRank
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Request, encode_request
from paddle_cluster.elastic.collectives.stalls import Patience
from paddle_cluster.elastic.errors import CollectiveMismatchError, HorovodInternalError
from pserver.wire.authentication import MessageKeys
from pserver.wire.connection import Pool

KEY = b"k" * 32
LIMIT_S = 20.0
FUSED_KINDS = CollectiveKind.ALLREDUCE, CollectiveKind.BROADCAST
SMALL, LARGE = 10, 100_000  # elements: with the announcement, and by a ring
REQUESTS = [
    Request(kind, name, np.dtype(kept), (count,), 1, splits=(3, 4) if kind == CollectiveKind.ALLTOALL else ())
    for kind in (*FUSED_KINDS, CollectiveKind.ALLGATHER, CollectiveKind.ALLTOALL, CollectiveKind.REDUCESCATTER)
    for name in ("noname.0", "w")
    for kept in (np.float32, np.int64)
    for count in (SMALL, LARGE)
]
_FIRST = REQUESTS[0]
# what no honest rank announces, and what a joined rank has to answer
ODD = [
    *(_FIRST._replace(splits=splits) for splits in ((0,), (0, 0), (0, 0, 0))),
    *(_FIRST._replace(dtype=np.dtype(bool), argument=0, name=name) for name in ("w", "v")),
    _FIRST._replace(dtype=np.dtype(bool), prescale=2.0, name="v"),
    *(_FIRST._replace(kind=CollectiveKind.JOIN, name="join", shape=shape) for shape in ((), (0,), (1 << 40,), (2, 2))),
    *(Request(CollectiveKind.GROUP, "g", _FIRST.dtype, (), len(parts), members=parts) for parts in ((), (_FIRST,) * 2)),
    *(Request(CollectiveKind.BROADCAST, name, _FIRST.dtype, (SMALL,), 7) for name in ("w", "v")),
]
NOTES = st.one_of(
    st.lists(st.sampled_from([encode_request(one) for one in REQUESTS + ODD]), max_size=3).map(b"".join),
    st.binary(max_size=60),
)
SIZES = st.sampled_from([0, 1, 4 * SMALL, 8 * SMALL, 2 * LARGE, 4 * LARGE, 8 * LARGE]).map(bytes)
FRAMES = st.builds(
    lambda kind, sequence, piece, note, payload: b"".join(
        map(bytes, frames.encode(kind, sequence, note, [memoryview(payload)], KEY, piece))
    ),
    st.sampled_from(FrameKind),
    st.integers(0, 3),
    st.integers(0, 3),
    NOTES,
    SIZES,
)

DAMAGES = st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255))  # a part of the way, and a byte there


def honest(request: Request) -> bytes:
    """What an honest rank announces."""
    payload = bytes(request.nbytes if request.nbytes <= 1 << 15 and request.kind == CollectiveKind.ALLREDUCE else 0)
    parts = frames.encode(FrameKind.ANNOUNCE, 0, encode_request(request), [memoryview(payload)], KEY)
    return b"".join(map(bytes, parts))


@settings(max_examples=250, deadline=None)
@given(st.sampled_from([*REQUESTS, None]), st.booleans(), st.lists(FRAMES, max_size=6), st.none() | DAMAGES)
def test_whatever_a_rank_sends_the_other_one_ends(
    request: Request | None, begins_well: bool, sent: list[bytes], damage: tuple[float, int] | None
) -> None:
    join = _FIRST._replace(kind=CollectiveKind.JOIN, name="join", shape=(0,))
    stream = b"".join([honest(request or join)] * begins_well + sent)
    if damage is not None:
        place = int(damage[0] * len(stream))
        stream = stream[:place] + bytes([damage[1]]) + stream[place + 1 :]
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    for one in (ours, theirs):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    theirs.settimeout(LIMIT_S)
    mesh = Mesh(0, {1: PeerRank(ours, MessageKeys(b"own", KEY), Pool())})
    group = RankGroup(mesh, SocketPath(mesh, LIMIT_S), Patience(LIMIT_S, LIMIT_S))
    try:
        theirs.sendall(stream[: 1 << 18])
        theirs.shutdown(socket.SHUT_WR)
        with contextlib.suppress(HorovodInternalError, CollectiveMismatchError):
            if request is None:
                assert 0 <= group.join() < group.size
                return
            array = np.ones(request.shape, request.dtype)
            name = None if request.name == "noname.0" else request.name
            handle = group.submit(request.kind, array, name=name, argument=1, splits=request.splits)
            result = group.wait(handle)
            assert result.dtype == request.dtype
        assert group.size == 2
    finally:
        group.leave()
        theirs.close()
