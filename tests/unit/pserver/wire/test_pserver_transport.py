"""Messages over a stream: however they are cut on the way, whatever their sizes, and wherever their payloads go."""

import contextlib
import itertools
import os
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pserver.wire import protocol
from pserver.wire.connection import SCRATCH_BYTES, Connection, ConnectionLimits, Pool, linger
from pserver.wire.protocol import Message, Op

LIMITS = ConnectionLimits(note=1 << 20, payload=1 << 20)


def fresh(frames, size):
    return [memoryview(bytearray(size))]


@pytest.fixture
def pair():
    """Two ends of a stream, the second of them a connection."""
    made = []

    def build(place=fresh, limits=LIMITS):
        left, right = socket.socketpair()
        right.setblocking(False)
        made.extend([left, right])
        return left, Connection(right, place, limits)

    yield build
    for one in made:
        one.close()


def frames_of(number, note, payload):
    more = [b"p" * payload] if payload else []
    text = {"n": "x" * note} if note else {}
    return protocol.encode(Message(Op.PUSH, b"s" * 8, 0, number, note=text, payload=more))


def read_all(connection, until):
    messages = []
    while len(messages) < until:
        messages += connection.receive()
    return [[bytes(message[0]), bytes(message[1]), b"".join(message[2:])] for message in messages]


def as_sent(frames):
    return [frames[0], frames[1], b"".join(frames[2:])]


sizes = st.sampled_from([0, 1, 100, SCRATCH_BYTES - 100, SCRATCH_BYTES, SCRATCH_BYTES + 1, 40_000])


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(sizes, sizes), min_size=1, max_size=5), st.lists(st.integers(1, 50_000), max_size=30))
def test_messages_come_whole_however_the_stream_is_cut(shapes, cuts):
    sent = [frames_of(number, *shape) for number, shape in enumerate(shapes)]
    data = b"".join(itertools.chain.from_iterable(sent))
    left, right = socket.socketpair()
    with left, right:
        right.setblocking(False)
        left.setblocking(False)
        connection, come = Connection(right, fresh, LIMITS), []
        for cut in itertools.chain(cuts, itertools.repeat(len(data))):
            if not data:
                break
            with contextlib.suppress(BlockingIOError):  # it is full
                data = data[left.send(data[:cut]) :]
            come += connection.receive()
        while len(come) < len(sent):
            come += connection.receive()
    assert [as_sent(one) for one in come] == [as_sent(one) for one in sent]


@pytest.mark.parametrize("parts", [[5000], [1, 4999], [1000] * 5, [4, 0, 4996]])
def test_a_payload_is_read_to_where_it_belongs(pair, parts):
    memory = [bytearray(size) for size in parts]
    left, connection = pair(lambda frames, size: [memoryview(one) for one in memory])
    data = os.urandom(5000)
    left.sendall(b"".join(protocol.encode(Message(Op.PUSH, b"s" * 8, 0, 1, payload=[data]))))
    left.sendall(b"".join(frames_of(2, 3, 0)))
    first, second = read_all(connection, 2)
    assert b"".join(memory) == data == first[2] and second == as_sent(frames_of(2, 3, 0))


def test_what_the_stream_does_not_take_leaves_later(pair):
    left, connection = pair()
    sent = [frames_of(number, 10, 900_000) for number in range(4)]
    for frames in sent:
        connection.send(frames)
    assert connection.unsent
    data, whole = b"", b"".join(itertools.chain.from_iterable(sent))
    while len(data) < len(whole):
        data += left.recv(1 << 20)
        connection.flush()
    assert data == whole and not connection.unsent


def test_many_parts_are_sent_in_order(pair):
    left, connection = pair()
    parts = [bytes([number]) * 3 for number in range(200)]
    connection.send([b"h", b"n", *parts])
    while connection.unsent:
        connection.flush()
    assert left.recv(10_000) == b"hn" + b"".join(parts)


@pytest.mark.parametrize("note, payload, part", [(101, 0, "note of 101"), (0, 51, "payload of 51")])
def test_a_length_over_the_limit_takes_no_memory_and_ends_the_reading(pair, note, payload, part):
    asked = []
    left, connection = pair(lambda frames, size: asked.append(size), ConnectionLimits(100, 50))
    header = bytearray(frames_of(1, 0, 0)[0])
    header[20:24], header[40:48] = note.to_bytes(4, "little"), payload.to_bytes(8, "little")
    left.sendall(header + b"x" * 1000)
    assert connection.receive() == [] and part in connection.fault and asked == []
    left.sendall(b"".join(frames_of(2, 0, 0)))
    assert connection.receive() == []


def test_noise_is_known_by_its_first_bytes(pair):
    left, connection = pair()
    left.sendall(b"GE")
    assert connection.receive() == [] and "begins with b'GE'" in connection.fault


def test_a_message_before_the_end_is_not_lost(pair):
    left, connection = pair()
    left.sendall(b"".join(frames_of(1, 0, 20_000)))
    left.close()
    assert len(read_all(connection, 1)) == 1
    with pytest.raises(EOFError):
        connection.receive()


def test_memory_is_used_again_when_nobody_refers_to_it():
    pool = Pool()
    first = pool.take(1000)
    first[:] = b"a" * 1000
    kept = first[500:]
    del first
    second = pool.take(2000)  # of the same size class, while a view of the first is in use
    second[:] = b"b" * 2000
    assert bytes(kept) == b"a" * 500
    address = id(kept.obj)
    del kept
    assert id(pool.take(10).obj) in (address, id(second.obj)) and len(pool.take(700_000)) == 700_000
    del second
    taken = {id(pool.take(5).obj) for _ in range(50)}
    assert len(taken) <= 2


def test_lingering_lets_the_last_words_be_read(pair):
    left, connection = pair()
    left.sendall(b"unread" * 1000)
    connection.send(frames_of(1, 0, 900_000))
    reader = socket.socket(fileno=os.dup(left.fileno()))
    data = bytearray()

    def read():
        while part := reader.recv(65536):
            data.extend(part)
        reader.shutdown(socket.SHUT_RDWR)

    thread = threading.Thread(target=read)
    thread.start()
    linger([connection], 20.0)
    thread.join(20)
    reader.close()
    assert bytes(data) == b"".join(frames_of(1, 0, 900_000))
