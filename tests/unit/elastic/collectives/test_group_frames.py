"""Messages of a group: what was written is read, and nothing else."""

from __future__ import annotations

import contextlib
import socket

import pytest
from each import each
from hypothesis import given
from hypothesis import strategies as st

from paddle_cluster.elastic.collectives import frames
from paddle_cluster.elastic.collectives.frames import Frame, FrameKind
from paddle_cluster.elastic.collectives.peers import PeerRank
from pserver.wire.authentication import DATA, ClientHandshake, ServerHandshake
from pserver.wire.connection import Pool
from pserver.wire.protocol import ProtocolError

KEY = b"k" * 32


def written(key: bytes = KEY) -> list[bytes]:
    parts = frames.encode(FrameKind.DATA, 7, b"note", [memoryview(b"abc")], key, 5)
    return [bytes(part) for part in parts]


def test_a_message_is_read_as_it_was_written() -> None:
    assert frames.decode(written(), KEY) == Frame(FrameKind.DATA, 7, 5, b"note", memoryview(b"abc"))
    assert frames.measure(written()[0]) == (4, 3)
    assert frames.peek(written()[0]) == (7, 5)


def test_every_begin_of_a_header_waits_for_the_rest() -> None:
    for length in range(frames.HEADER_BYTES):
        assert frames.measure(written()[0][:length]) is None


@each("place", range(frames.HEADER_BYTES))
def test_a_changed_header_is_refused(place: int) -> None:
    header, *rest = written()
    changed = header[:place] + bytes([header[place] ^ 1]) + header[place + 1 :]
    with pytest.raises(ProtocolError):
        frames.measure(changed)
        frames.decode([changed, *rest], KEY)


def test_a_message_of_another_key_is_refused() -> None:
    with pytest.raises(ProtocolError, match="secret"):
        frames.decode(written(b"other"), KEY)


def test_a_rank_does_not_take_its_own_message_that_comes_back() -> None:
    """One key signed both directions: the announcements of a rank, returned to it, ended its collective."""
    client, server = ClientHandshake("s", bytes(16) + DATA, b"c" * 32), ServerHandshake("s", b"s" * 32)
    client.feed(server.feed(client.feed(server.feed(client.greeting))))
    for one in (client, server):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            peer = PeerRank(ours, one.keys, Pool())
            theirs.sendall(b"".join(map(bytes, frames.encode(FrameKind.ANNOUNCE, 0, b"", [], one.keys.sending))))
            with pytest.raises(ProtocolError, match="does not prove"):
                peer.read()
            assert not peer.arrived


def test_a_message_over_the_limits_is_not_made() -> None:
    with pytest.raises(ProtocolError, match="over the limit"):
        frames.encode(FrameKind.DATA, 0, b"", [memoryview(bytes(frames.MAX_PAYLOAD_BYTES + 1))], KEY)


@given(st.binary(max_size=2 * frames.HEADER_BYTES))
def test_noise_is_refused_or_waits(noise: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        frames.measure(noise[: frames.HEADER_BYTES])
