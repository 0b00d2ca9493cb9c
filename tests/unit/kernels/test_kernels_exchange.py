"""The compiled exchange: what it refuses, and the exact state that it returns; pserver/client tests its use."""

import os
import signal
import socket
import threading

import numpy as np
import pytest
from each import each

from paddle_base import kernels
from paddle_base.kernels import exchange as kernel
from paddle_base.kernels.exchange import ExchangeStatus as Status
from paddle_base.kernels.exchange import Line

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="the compiled module is not built here")
HEAD, PIECES, PIECE = 8, 3, 24  # bytes of a head, number of pieces, bytes of a piece
SIZE = PIECES * PIECE


def heads_of(letter):
    return b"".join(b"%s%7d" % (letter, piece) for piece in range(PIECES))


@pytest.fixture
def lines():
    """A function that returns a line, its arrays and its peer's end; the areas of a piece lie apart in the arrays."""
    made = []

    def build(**fields):
        own, peer = socket.socketpair()
        made.extend([own, peer])
        areas = [(flat, local, 8) for local, flat in enumerate([40, 0, 64, 8, 48, 16, 56, 24, 32])]
        areas = np.array([(flat, 8 * place, length) for flat, place, length in areas], np.int64)
        progress = np.zeros(kernel.PROGRESS, np.int64)
        given = {
            "file": own.fileno(),
            "rest": (),
            "sending": bytearray(b"\1\1\1"),
            "heads_out": heads_of(b"q"),
            "outbox": None,
            "awaited": bytearray(b"\1\1\1"),
            "heads_in": heads_of(b"a"),
            "inbox": None,
            "areas_out": areas,
            "areas_in": areas,
            "starts_out": np.arange(0, 10, 3),
            "starts_in": np.arange(0, 10, 3),
            "scratch": memoryview(bytearray(32)),
            "progress": progress,
        }
        for name in ("areas", "starts"):  # of both directions
            if name in fields:
                fields |= dict.fromkeys((f"{name}_out", f"{name}_in"), fields.pop(name))
        return Line(**{**given, **fields}), peer

    yield build
    for one in made:
        one.close()


SOURCE = np.arange(SIZE, dtype=np.uint8)


def local_of(flat, line):
    """The bytes of a flat array in the order of the areas."""
    return b"".join(bytes(flat[start : start + length]) for start, _, length in line.areas_out.tolist())


def answer_of(piece, data):
    return heads_of(b"a")[piece * HEAD : (piece + 1) * HEAD] + data[piece * PIECE : (piece + 1) * PIECE]


def request_of(line):
    data, heads = local_of(SOURCE, line), heads_of(b"q")
    return b"".join(
        heads[piece * HEAD : (piece + 1) * HEAD] + data[piece * PIECE : (piece + 1) * PIECE] for piece in range(PIECES)
    )


@each("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_pieces_are_sent_in_order_and_received_in_any(lines, order):
    line, peer = lines()
    target, answers = np.zeros(SIZE, np.uint8), bytes(range(100, 100 + SIZE))
    peer.sendall(b"".join(answer_of(piece, answers) for piece in order))
    assert kernel.exchange(SOURCE, target, [line], 5.0) == Status.COMPLETE
    assert peer.recv(1000) == request_of(line)
    assert local_of(target, line) == answers
    assert not any(line.sending) and not any(line.awaited) and line.progress.tolist() == [0, 0, 0, -1, 0]


def test_the_rest_of_earlier_messages_is_sent_first(lines):
    line, peer = lines(rest=(b"one", b"", bytearray(b"two")), awaited=bytearray(3))
    assert kernel.exchange(SOURCE, None, [line], 5.0) == Status.COMPLETE
    assert peer.recv(1000) == b"onetwo" + request_of(line)
    assert line.progress[kernel.REST_SENT] == 6


@each("cut", range(HEAD + PIECE + HEAD + 2))
def test_a_timeout_returns_exactly_what_has_arrived(lines, cut):
    """The exchange is called again with every state; a part of a payload is continued by its caller."""
    line, peer = lines()
    target, answers = np.zeros(SIZE, np.uint8), bytes(range(100, 100 + SIZE))
    data = answer_of(1, answers) + answer_of(0, answers)
    peer.sendall(data[:cut])
    assert kernel.exchange(SOURCE, target, [line], 0.0) == Status.TIMEOUT
    piece, received, end = (line.progress[place] for place in (kernel.PIECE, kernel.PIECE_RECEIVED, kernel.SCRATCH_END))
    if cut < HEAD:
        assert (piece, end, bytes(line.awaited)) == (-1, cut, b"\1\1\1")
    elif cut < HEAD + PIECE:
        assert (piece, received, end, bytes(line.awaited)) == (1, cut - HEAD, 0, b"\1\1\1")
    else:
        more = cut - HEAD - PIECE
        assert bytes(line.awaited) == b"\1\0\1"
        assert (piece, received, end) == ((-1, 0, more) if more < HEAD else (0, more - HEAD, 0))
    if piece == -1:
        assert bytes(line.scratch[:end]) == data[cut - end : cut]
        peer.sendall(data[cut:] + answer_of(2, answers))
        line.awaited[1] = cut < HEAD + PIECE
        assert kernel.exchange(SOURCE, target, [line], 5.0) == Status.COMPLETE
        assert local_of(target, line) == answers


def test_a_peer_that_does_not_read_leaves_a_part_to_send(lines):
    big = np.random.default_rng(0).integers(0, 256, 1 << 22).astype(np.uint8)
    line, peer = lines(
        areas=np.array([(0, 0, 1 << 21), (1 << 21, 1 << 21, 1 << 21)], np.int64),
        starts=np.array([0, 1, 2, 2]),
        awaited=bytearray(3),
    )
    assert kernel.exchange(big, None, [line], 0.0) == Status.TIMEOUT
    assert bytes(line.sending) == b"\1\1\1"
    come = b""
    while len(come) < line.progress[kernel.PIECE_SENT]:
        come += peer.recv(1 << 20)
    whole = heads_of(b"q")[:HEAD] + big[: 1 << 21].tobytes()
    assert HEAD < len(come) < len(whole) and come == whole[: len(come)]


@each("data", [b"b      0", b"a      7", b"a      0" + bytes(PIECE) + b"a      0"])
def test_a_head_that_is_not_awaited_stays_in_the_scratch_memory(lines, data):
    line, peer = lines()
    peer.sendall(data + b"what follows")
    assert kernel.exchange(SOURCE, np.zeros(SIZE, np.uint8), [line], 5.0) == Status.UNSETTLED
    end = int(line.progress[kernel.SCRATCH_END])
    left = bytes(line.scratch[:end]) + peer_rest(line)
    assert left == data[-HEAD:] + b"what follows" and line.progress[kernel.PIECE] == -1
    assert bytes(line.awaited) == (b"\0\1\1" if len(data) > HEAD else b"\1\1\1")


def peer_rest(line):
    """What lies unread on the line."""
    with socket.socket(fileno=os.dup(line.file)) as own:
        own.setblocking(False)
        try:
            return own.recv(1000)
        except BlockingIOError:
            return b""


def test_more_than_is_awaited_is_not_complete(lines):
    line, peer = lines(awaited=bytearray(b"\0\1\0"), scratch=memoryview(bytearray(64)))
    data = bytes(SIZE)
    peer.sendall(answer_of(1, data) + b"more")
    assert kernel.exchange(SOURCE, np.zeros(SIZE, np.uint8), [line], 5.0) == Status.UNSETTLED
    assert bytes(line.scratch[: line.progress[kernel.SCRATCH_END]]) == b"more" and not any(line.awaited)


def test_the_end_of_one_line_is_found_while_another_is_awaited(lines):
    (one, peer), (two, other) = lines(), lines()
    peer.sendall(answer_of(0, bytes(SIZE)) + answer_of(1, bytes(SIZE))[:12])
    peer.shutdown(socket.SHUT_WR)
    assert kernel.exchange(SOURCE, np.zeros(SIZE, np.uint8), [two, one], 5.0) == Status.UNSETTLED
    assert bytes(one.awaited) == b"\0\1\1" and one.progress[kernel.PIECE_RECEIVED] == 4
    other.close()
    assert kernel.exchange(SOURCE, np.zeros(SIZE, np.uint8), [two], 5.0) == Status.UNSETTLED


def test_shared_memory_takes_the_place_of_payloads(lines):
    inbox = memoryview(bytes(range(SIZE, 2 * SIZE)))
    line, peer = lines(outbox=memoryview(bytearray(SIZE)), inbox=inbox)
    target = np.zeros(SIZE, np.uint8)
    peer.sendall(heads_of(b"a"))
    assert kernel.exchange(SOURCE, target, [line], 5.0) == Status.COMPLETE
    assert peer.recv(1000) == heads_of(b"q")
    assert bytes(line.outbox) == local_of(SOURCE, line) and local_of(target, line) == bytes(inbox)


def test_a_signal_ends_the_wait(lines):
    line, _ = lines(sending=bytearray(3))
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    sender = threading.Timer(0.02, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1))
    try:
        sender.start()
        assert kernel.exchange(SOURCE, np.zeros(SIZE, np.uint8), [line], 60.0) == Status.INTERRUPTED
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)


def change(array, place, value):
    changed = np.array(array)
    changed.flat[place] = value
    return changed


AREAS = np.array([(0, 0, 8)] * 9, np.int64)
STARTS = np.arange(0, 10, 3)
UNFIT = [
    ("areas", change(AREAS, 0, -1)),
    ("areas", change(AREAS, 1, -8)),
    ("areas", change(AREAS, 2, -8)),
    ("areas", change(AREAS, 0, SIZE - 7)),
    ("areas", change(AREAS, 2, SIZE + 1)),
    ("areas", change(AREAS, 0, np.iinfo(np.int64).max)),
    ("areas", change(AREAS, 2, np.iinfo(np.int64).max)),
    ("areas", AREAS.reshape(-1)[:-1].copy()),
    ("areas", np.zeros(7, np.uint8)),
    ("starts", change(STARTS, 0, 1)),
    ("starts", change(STARTS, 1, 7)),
    ("starts", change(STARTS, 3, 10)),
    ("starts", STARTS[:3].copy()),
]


@each(
    "fields",
    [
        {"file": -1},
        {"file": 1 << 40},
        {"file": "1"},
        {"rest": [b"one"]},
        {"rest": ("text",)},
        {"sending": bytes(3)},
        {"sending": bytearray(4)},
        {"awaited": bytearray(2)},
        {"heads_out": b"q" * 23},
        {"heads_out": b""},
        {"heads_in": b"a" * 300},  # a head would not fit into the scratch memory
        {"outbox": memoryview(bytearray(SIZE - 1))},
        {"outbox": memoryview(bytes(SIZE))},
        {"inbox": memoryview(bytearray(SIZE - 1))},
        *({f"{name}_{way}": array} for name, array in UNFIT for way in ("out", "in")),
        {"scratch": memoryview(bytearray(HEAD - 1))},
        {"progress": np.zeros(4, np.int64)},
        {"progress": change(np.zeros(kernel.PROGRESS, np.int64), kernel.SCRATCH_END, 33)},
        {"progress": change(np.zeros(kernel.PROGRESS, np.int64), kernel.SCRATCH_END, -1)},
    ],
)
def test_fields_that_do_not_fit_are_refused(lines, fields):
    line, peer = lines(**fields)
    with pytest.raises((ValueError, TypeError, BufferError, OverflowError)):
        kernel.exchange(SOURCE, np.zeros(SIZE, np.uint8), [line], 0.0)
    peer.setblocking(False)
    with pytest.raises(BlockingIOError):
        peer.recv(1)


def test_the_two_directions_may_have_different_pieces(lines):
    """The answer to rows has other lengths than the push, and another number of pieces."""
    source, target = np.arange(40, dtype=np.uint8), np.zeros(30, np.uint8)
    line, peer = lines(
        sending=bytearray(b"\1\1"),
        heads_out=heads_of(b"q")[: 2 * HEAD],
        areas_out=np.array([(0, 0, 30), (30, 0, 10)], np.int64),
        starts_out=np.arange(3),
        areas_in=np.array([(10, 0, 5), (0, 0, 9), (20, 0, 1)], np.int64),
        starts_in=np.arange(4),
    )
    heads = [heads_of(b"a")[one * HEAD :][:HEAD] for one in range(3)]
    peer.sendall(heads[2] + b"c" + heads[0] + b"aaaaa" + heads[1] + b"bbbbbbbbb")
    assert kernel.exchange(source, target, [line], 5.0) == Status.COMPLETE
    assert peer.recv(99) == heads_of(b"q")[:HEAD] + bytes(source[:30]) + heads_of(b"q")[HEAD : 2 * HEAD] + bytes(
        source[30:]
    )
    assert bytes(target) == b"bbbbbbbbb\0aaaaa\0\0\0\0\0c" + bytes(9)


@each("seconds", [-1.0, float("nan"), float("inf"), 1e300, "1"])
def test_other_waits_are_refused(lines, seconds):
    with pytest.raises((ValueError, TypeError)):
        kernel.exchange(SOURCE, np.zeros(SIZE, np.uint8), [lines()[0]], seconds)


@each("arguments", [(), (None, None, [], 0.0), (None, None, ((),), 0.0), (None, None, (1,), 0.0), (1, None, (), 0.0)])
def test_other_arguments_are_refused(arguments):
    with pytest.raises(TypeError):
        kernels.compiled.exchange(*arguments)


def test_an_array_that_must_not_be_written_is_no_target(lines):
    target = np.zeros(SIZE, np.uint8)
    target.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        kernel.exchange(SOURCE, target, [lines()[0]], 0.0)
