"""What a rank takes from another one: each message once and in order, and a bounded number of bytes ahead."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from collective_ranks import DEADLINE_S
from each import each

from paddle_cluster.elastic.collectives import frames
from paddle_cluster.elastic.collectives import mesh as meshes
from paddle_cluster.elastic.collectives.frames import FrameKind
from paddle_cluster.elastic.collectives.mesh import Mesh
from paddle_cluster.elastic.collectives.peers import PeerRank
from paddle_cluster.elastic.errors import HorovodInternalError
from pserver.wire.authentication import MessageKeys
from pserver.wire.connection import Pool
from pserver.wire.protocol import ProtocolError

KEY = b"k" * 32


def message(kind: FrameKind, sequence: int, piece: int = 0, payload: bytes = b"") -> bytes:
    return b"".join(map(bytes, frames.encode(kind, sequence, b"", [memoryview(payload)], KEY, piece)))


@pytest.fixture
def link() -> Iterator[tuple[socket.socket, PeerRank]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield theirs, PeerRank(ours, MessageKeys(b"own", KEY), Pool())


def test_the_limit_of_sending_counts_from_the_last_byte_that_was_sent(
    monkeypatch: pytest.MonkeyPatch, link: tuple[socket.socket, PeerRank]
) -> None:
    """The root of a broadcast, and a rank with most rows of an all-to-all, had the limit of a piece for all of them."""
    theirs, peer = link
    mesh = Mesh(0, {1: peer})
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(meshes, "time", clock)
    turn, is_read = mesh.turn, True

    def read_and_turn(_: float) -> bool:
        clock.now += 0.9
        if is_read:
            theirs.recv(1 << 17)
        return turn(0.0)

    monkeypatch.setattr(mesh, "turn", read_and_turn)
    array = memoryview(bytes(1 << 20))
    for piece in range(4):
        mesh.send(1, FrameKind.DATA, 0, b"", [array], piece)
    mesh.flush(1.0)
    assert clock.now > 103.0
    is_read = False
    for piece in range(4):
        mesh.send(1, FrameKind.DATA, 1, b"", [array], piece)
    with pytest.raises(HorovodInternalError, match="rank 1: not all messages could be sent"):
        mesh.flush(1.0)


@each("kind", FrameKind)
def test_a_message_is_not_taken_twice_or_late(kind: FrameKind) -> None:
    """One signed message of 1 MiB, sent again and again, filled up to 16 GiB; a recorded heartbeat hid a lost rank."""
    for again in ((7, 1), (7, 0), (6, 5)):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with ours, theirs:
            peer = PeerRank(ours, MessageKeys(b"own", KEY), Pool())
            theirs.sendall(message(kind, 7, 0) + message(kind, 7, 1))
            peer.read()
            before = len(peer.arrived)
            theirs.sendall(message(kind, *again))
            with pytest.raises(ProtocolError, match="a second time or too late"):
                peer.read()
            assert len(peer.arrived) == before


def test_the_kinds_of_messages_are_counted_apart(link: tuple[socket.socket, PeerRank]) -> None:
    """The ranks of a host count their steps apart from the exchanges of all ranks."""
    theirs, peer = link
    sent = [
        (FrameKind.HELLO, 1),
        (FrameKind.ANNOUNCE, 0),
        (FrameKind.DATA, 5),
        (FrameKind.STEP, 2),
        (FrameKind.DATA, 6),
    ]
    theirs.sendall(b"".join(message(*one) for one in sent))
    peer.read()
    assert [(one.kind, one.sequence) for one in peer.arrived] == sent


def test_a_rank_reads_no_further_while_too_much_is_ahead(
    link: tuple[socket.socket, PeerRank], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, piece, count = 1 << 20, bytes(1 << 18), 40
    monkeypatch.setattr(meshes, "MAX_AHEAD_BYTES", limit)
    theirs, peer = link
    mesh = Mesh(0, {1: peer})
    stream = b"".join(message(FrameKind.DATA, 0, number, piece) for number in range(count))
    sender = threading.Thread(target=theirs.sendall, args=(stream,), daemon=True)
    sender.start()
    deadline = time.monotonic() + DEADLINE_S
    while not peer.is_paused:
        assert time.monotonic() < deadline
        mesh.turn(0.1)
    held = peer.ahead
    for _ in range(20):
        mesh.turn(0)
    assert limit < peer.ahead == held <= limit + 4 * len(piece)
    for number in range(count):
        mesh.wait([1], deadline)
        assert mesh.take(1, FrameKind.DATA, 0, number).payload.nbytes == len(piece)
    sender.join(DEADLINE_S)
    assert (peer.ahead, peer.is_paused) == (0, False)
    mesh.leave()


def test_a_piece_is_not_used_in_place_of_another_one(link: tuple[socket.socket, PeerRank]) -> None:
    """A piece that a program on the way has left out was replaced by the next one."""
    theirs, peer = link
    mesh = Mesh(0, {1: peer})
    theirs.sendall(message(FrameKind.DATA, 3, 1))
    mesh.wait([1], time.monotonic() + DEADLINE_S)
    with pytest.raises(
        HorovodInternalError, match="DATA for exchange 3, piece 1, in place of DATA for exchange 3, piece 0"
    ):
        mesh.take(1, FrameKind.DATA, 3, 0)


def test_heartbeats_have_numbers(link: tuple[socket.socket, PeerRank]) -> None:
    theirs, peer = link
    mesh = Mesh(0, {1: peer})
    seen = []
    for _ in range(2):
        mesh._pulse._said = -1e9
        mesh.beat()
        head = theirs.recv(frames.HEADER_BYTES)
        seen.append((head[4], *frames.peek(head)))
    assert seen == [(FrameKind.ALIVE, 1, 0), (FrameKind.ALIVE, 2, 0)]
    mesh.leave()
