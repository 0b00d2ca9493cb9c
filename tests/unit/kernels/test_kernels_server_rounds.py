"""Receiving expected messages, sending answers and adding gradients: both forms do the same, whatever a peer sends."""

import contextlib
import hashlib
import random
import socket
import struct

import numpy as np
import pytest

from paddle_base import kernels
from paddle_base.kernels import server_rounds
from paddle_base.kernels.server_rounds import COMPLETE, ENDED, UNEXPECTED, WAITS, ExpectedMessage

HEADER = bytes(range(1, 17))
MASK = bytes([255] * 12 + [0x0F, 0, 255, 255])  # four bits of byte 12 and all of byte 13 are free
FORMS = ["compiled", "plain"]


@pytest.fixture(params=FORMS)
def form(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(server_rounds, "compiled", None)
    elif kernels.compiled is None:
        pytest.skip("the compiled module is not built here")
    return request.param


@pytest.fixture
def pairs():
    """Connect a number of pairs of sockets; the second of each does not block."""
    with contextlib.ExitStack() as stack:

        def make(count=1):
            made = []
            for _ in range(count):
                peer, own = socket.socketpair()
                stack.enter_context(peer)
                stack.enter_context(own)
                own.setblocking(False)
                made.append((peer, own))
            return made

        yield make


def expect(own, size):
    return ExpectedMessage.of(own.fileno(), HEADER, memoryview(bytearray(size)))


def receive(*messages, mask=MASK):
    statuses, received = server_rounds.receive_expected(list(messages), mask)
    return list(statuses), received


def answer(*messages, payload=b"", template=HEADER, echo=bytes(16), number_at=8):
    return server_rounds.send_answers(list(messages), template, echo, number_at, payload)


def received_bytes(message):
    return b"".join(bytes(part) for part in message.list_received())


@pytest.mark.parametrize("size", [0, 1, 40])
def test_a_message_in_any_parts_is_complete_with_its_last_byte(form, pairs, size):
    payload = random.Random(1).randbytes(size)
    whole = HEADER + payload
    for first in range(len(whole) + 1):
        for second in range(first, len(whole) + 1):
            [(peer, own)] = pairs()
            message = expect(own, size)
            begin = 0
            for end in (first, second, len(whole)):
                peer.sendall(whole[begin:end] + (b"next message" if end == len(whole) else b""))
                if message.have < len(whole):
                    [status], received = receive(message)
                    assert received == min(end, len(whole)) - begin
                    assert status == (COMPLETE if end == len(whole) else WAITS)
                    assert received_bytes(message) == whole[:end]
                begin = end
            assert message.header == HEADER and bytes(message.payload) == payload
            assert own.recv(64).endswith(b"next message"), "the bytes behind the message are left"
            peer.close()
            own.close()


def test_nothing_to_read_changes_nothing(form, pairs):
    [(_, own)] = pairs()
    message = expect(own, 8)
    assert receive(message) == ([WAITS], 0) and message.have == 0


@pytest.mark.parametrize("place", range(len(HEADER)))
def test_only_the_free_bits_of_a_header_may_differ(form, pairs, place):
    for bit in range(8):
        [(peer, own)] = pairs()
        header = bytearray(HEADER)
        header[place] ^= 1 << bit
        peer.sendall(bytes(header) + b"12345678")
        message = expect(own, 8)
        is_free = not MASK[place] >> bit & 1
        assert receive(message) == ([COMPLETE if is_free else UNEXPECTED], len(HEADER) + 8)
        assert received_bytes(message) == bytes(header) + b"12345678", "the caller can read it on"


def test_the_first_wrong_byte_is_found_before_the_header_is_whole(form, pairs):
    [(peer, own)] = pairs()
    message = expect(own, 8)
    peer.sendall(HEADER[:2])
    assert receive(message) == ([WAITS], 2)
    peer.sendall(b"x")
    assert receive(message) == ([UNEXPECTED], 1)
    assert received_bytes(message) == HEADER[:2] + b"x"


@pytest.mark.parametrize("before", [0, 3, len(HEADER), len(HEADER) + 5])
def test_the_end_of_a_connection_leaves_what_came_before(form, pairs, before):
    [(peer, own)] = pairs()
    message = expect(own, 8)
    whole = HEADER + b"12345678"
    peer.sendall(whole[:before])
    peer.close()
    assert receive(message) == ([ENDED], before)
    assert received_bytes(message) == whole[:before]
    assert receive(message) == ([ENDED], 0), "the end is found again"


def test_a_broken_connection_is_an_end(form):
    with socket.create_server(("127.0.0.1", 0)) as port, socket.create_connection(port.getsockname()) as peer:
        own, _ = port.accept()
        with own:
            own.setblocking(False)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()  # sends a reset
            assert receive(expect(own, 8)) == ([ENDED], 0)
            # the first write after a reset may still be taken
            for _ in range(2):
                sent, unsent = answer(expect(own, 8), payload=b"payload")
            assert (sent, unsent) == (0, [(0, -1)])


def test_many_connections_are_received_from_in_one_call(form, pairs):
    made = pairs(200)
    draw = random.Random(2)
    messages, expected = [], []
    for number, (peer, own) in enumerate(made):
        payload = struct.pack("<I", number) * 10
        kind = draw.choice(["whole", "part", "wrong", "closed", "silent"])
        if kind in ("whole", "part"):
            peer.sendall((HEADER + payload)[: 30 if kind == "part" else None])
        elif kind == "wrong":
            peer.sendall(b"y" * 20)
        elif kind == "closed":
            peer.close()
        messages.append(expect(own, len(payload)))
        expected.append({"whole": COMPLETE, "wrong": UNEXPECTED, "closed": ENDED}.get(kind, WAITS))
    statuses, received = receive(*messages)
    assert statuses == expected and received == sum(one.have for one in messages)
    for number, (message, status) in enumerate(zip(messages, statuses, strict=True)):
        if status == COMPLETE:
            assert bytes(message.payload) == struct.pack("<I", number) * 10


def test_a_payload_of_megabytes_arrives_in_as_many_calls_as_it_takes(form, pairs):
    [(peer, own)] = pairs()
    payload = random.Random(3).randbytes(2 << 20)
    message = expect(own, len(payload))
    left = memoryview(HEADER + payload)
    peer.setblocking(False)
    status = WAITS
    while status == WAITS:
        if left:
            with contextlib.suppress(BlockingIOError):
                left = left[peer.send(left) :]
        [status], _ = receive(message)
    assert status == COMPLETE and bytes(message.payload) == payload


def hostile_messages(own):
    """Messages that do not fit their buffers."""
    good = expect(own, 8)
    counted = {}
    for have in (24, 25, 1 << 31, 1 << 63, (1 << 64) - 1):
        counted[have] = good._replace(state=bytearray(struct.pack("=Q", have)) + good.state[8:])
    return [*misfits(good), *counted.values()]


def misfits(good):
    """Messages whose states do not fit the header."""
    states = good.state + b"1", good.state[:-1], good.state[:-16], bytearray()
    return [good._replace(state=state) for state in states]


def test_no_length_reaches_out_of_a_buffer(form, pairs):
    [(peer, own)] = pairs()
    peer.sendall(HEADER + bytes(100))
    for message in hostile_messages(own):
        with pytest.raises(ValueError):
            receive(message)
    with pytest.raises(ValueError):
        receive(expect(own, 8), mask=MASK[:-1])
    assert receive(expect(own, 8)) == ([COMPLETE], 24), "none of them has read a byte"


@pytest.mark.skipif(kernels.compiled is None, reason="the compiled module is not built here")
def test_the_compiled_form_refuses_what_is_no_message(pairs):
    [(_, own)] = pairs()
    good = expect(own, 8)
    compiled = kernels.compiled
    for call in (
        lambda: compiled.receive_expected([good]),
        lambda: compiled.receive_expected((good,), MASK),
        lambda: compiled.receive_expected([good[:4]], MASK),
        lambda: compiled.receive_expected([list(good)], MASK),
        lambda: compiled.receive_expected([good._replace(file=-1)], MASK),
        lambda: compiled.receive_expected([good._replace(file=1 << 40)], MASK),
        lambda: compiled.receive_expected([good._replace(file="1")], MASK),
        lambda: compiled.receive_expected([good._replace(payload=bytes(8))], MASK),
        lambda: compiled.receive_expected([good._replace(payload=None)], MASK),
        lambda: compiled.receive_expected([good._replace(receiving_key=None)], MASK),
        lambda: compiled.receive_expected([good._replace(receiving_key=bytes(65))], MASK),
        lambda: compiled.receive_expected([], b""),
        lambda: compiled.receive_expected([], bytes(7)),
        lambda: compiled.receive_expected([], bytes(257)),
        lambda: compiled.send_answers([good], HEADER, bytes(16), 8),
        lambda: compiled.send_answers((good,), HEADER, bytes(16), 8, b""),
        lambda: compiled.send_answers([good[:4]], HEADER, bytes(16), 8, b""),
        lambda: compiled.send_answers([good], HEADER, bytes(16), "8", b""),
        lambda: compiled.send_answers([good], HEADER, bytes(16), 1 << 70, b""),
        lambda: compiled.send_answers([good], HEADER, bytes(16), 8, None),
        lambda: compiled.send_answers([good], None, bytes(16), 8, b""),
        lambda: compiled.send_answers([good], bytes(257), bytes(257), 8, b""),
        lambda: compiled.send_answers([good._replace(sending_key=bytes(65))], HEADER, bytes(16), 8, b""),
        lambda: compiled.add_gradients(np.zeros(2, np.float32), [], 0),
        lambda: compiled.add_gradients(np.zeros(2, np.float32), (np.zeros(2, np.float32),), 0),
        lambda: compiled.add_gradients(np.zeros(2, np.float64), [np.zeros(2, np.float32)], 0),
        lambda: compiled.add_gradients(np.zeros(2, np.float32), [np.zeros(2, np.float32)], -1),
        lambda: compiled.add_gradients(np.zeros(2, np.float32), [np.zeros(2, np.float32)], (1 << 63) - 1),
        lambda: compiled.add_gradients(np.zeros(2, np.float32), [np.zeros(2, np.float32), np.zeros(1, np.float32)], 0),
    ):
        with pytest.raises((TypeError, ValueError, OverflowError, BufferError)):
            call()
    assert compiled.receive_expected([], MASK) == (b"", 0)
    assert compiled.send_answers([], HEADER, bytes(16), 8, b"") == (0, [])
    assert good.have == 0 and good.answer == bytes(16)


def test_answers_are_sent_as_far_as_each_socket_takes_them(form, pairs):
    made = pairs(5)
    payload = random.Random(4).randbytes(4 << 20)
    [(_, full)] = pairs()
    with contextlib.suppress(BlockingIOError):
        while full.send(bytes(1 << 16)):
            pass
    made[3] = (made[3][0], full)
    made[4][0].close()
    messages = [expect(own, 8) for _, own in made]
    sent, unsent = answer(*messages, payload=payload)
    numbers = dict(unsent)
    whole = [len(HEADER) + len(payload)] * 3
    assert numbers[3] == 0 and numbers[4] == -1 and sorted(numbers) == list(range(5))
    assert all(len(HEADER) < numbers[number] < whole[number] for number in range(3))
    assert sent == sum(numbers[number] for number in range(3))
    for number in range(3):
        assert receive_all(made[number][0]) == (HEADER + payload)[: numbers[number]]
        assert messages[number].answer == HEADER


def receive_all(peer):
    """Return what has arrived."""
    peer.setblocking(False)
    came = bytearray()
    with contextlib.suppress(BlockingIOError):
        while part := peer.recv(1 << 20):
            came += part
    return bytes(came)


@pytest.mark.parametrize("payload", [b"", b"payload", memoryview(b"payload")])
def test_an_answer_has_the_echo_of_its_message_and_the_next_number_is_expected(form, pairs, payload):
    made = pairs(3)
    messages = [expect(own, 0) for _, own in made]
    for number, one in enumerate(messages):
        one.expect(bytes([number] * 7 + [15]) + (256 * number + 255).to_bytes(8, "little"))
    echo = bytes([255] * 4 + [0] * 3 + [7] + [255] * 8)
    for turn in range(2):
        sent, unsent = answer(*messages, payload=payload, template=bytes(4) + b"abcd" + bytes(8), echo=echo)
        assert (sent, unsent) == (3 * (16 + len(payload)), [])
        for number, ((peer, _), one) in enumerate(zip(made, messages, strict=True)):
            count = (256 * number + 255 + turn).to_bytes(8, "little")
            assert one.answer == bytes([number] * 4) + b"abc" + bytes([ord("d") | 7]) + count
            assert receive_all(peer) == one.answer + bytes(payload)
            following = bytes([number] * 7 + [15]) + (256 * number + 256 + turn).to_bytes(8, "little")
            peer.sendall(following)
            assert receive(one, mask=bytes([255] * 16)) == ([COMPLETE], 16)


def test_the_number_of_a_message_begins_again_after_its_last(form, pairs):
    [(_, own)] = pairs()
    message = expect(own, 0)
    message.expect(bytes(8) + b"\xff" * 8)
    answer(message)
    assert bytes(message.state[8:24]) == bytes(16)


def test_no_place_reaches_out_of_a_header(form, pairs):
    [(peer, own)] = pairs()
    for one in misfits(expect(own, 8)):
        with pytest.raises(ValueError):
            answer(one)
    for number_at in (-1, 9, 16, 1 << 40):
        with pytest.raises(ValueError):
            answer(expect(own, 8), number_at=number_at)
    for echo in (bytes(15), bytes(17), b""):
        with pytest.raises(ValueError):
            answer(expect(own, 8), echo=echo)
    assert receive_all(peer) == b""


@pytest.mark.parametrize("length", [1, 32, 64])
def test_tags_are_those_of_hashlib(form, pairs, length):
    draw = random.Random(length)
    for size in (8, 9, 16, 135, 136, 137, 256):
        [(peer, own)] = pairs()
        keys = draw.randbytes(length), draw.randbytes(length)
        header = draw.randbytes(size)
        message = ExpectedMessage.of(own.fileno(), header, memoryview(bytearray(3)), *keys)
        tag = hashlib.blake2b(header[:-8], digest_size=8, key=keys[0]).digest()
        peer.sendall(header[:-8] + tag + b"abc")
        mask = bytes([255] * (size - 8) + [0] * 8)
        assert receive(message, mask=mask) == ([COMPLETE], size + 3)
        template = draw.randbytes(size)
        server_rounds.send_answers([message], template, bytes(size), 0, b"")
        assert receive_all(peer) == (
            template[:-8] + hashlib.blake2b(template[:-8], digest_size=8, key=keys[1]).digest()
        )


@pytest.mark.parametrize("place", range(16))
def test_a_changed_bit_of_a_signed_header_is_unexpected(form, pairs, place):
    key = b"key"
    tag = hashlib.blake2b(HEADER[:8], digest_size=8, key=key).digest()
    for first in (0, 1, 8, 15):
        [(peer, own)] = pairs()
        header = bytearray(HEADER[:8] + tag)
        header[place] ^= 1
        message = ExpectedMessage.of(own.fileno(), HEADER, memoryview(bytearray(2)), key)
        statuses = []
        for part in (header[:first], header[first:]):
            if part and UNEXPECTED not in statuses:
                peer.sendall(part)
                statuses += receive(message, mask=bytes(16))[0]
        assert statuses[-1] == UNEXPECTED, "the payload need not arrive before"
        assert received_bytes(message) == bytes(header)


@pytest.mark.parametrize("trainers", [1, 2, 3, 64])
@pytest.mark.parametrize("length", [0, 1, 2047, 2048, 5000])
def test_gradients_are_added_in_their_order_at_any_address(form, trainers, length):
    rng = np.random.default_rng(5)
    scales = 10.0 ** rng.integers(-6, 7, (trainers, 1))
    numbers = (rng.standard_normal((trainers, length + 3)) * scales).astype(np.float32)
    gradients = []
    for number, row in enumerate(numbers):
        memory = np.zeros(row.nbytes + 3, np.uint8)
        gradients.append(memory[number % 4 :][: row.nbytes].view(np.float32))
        gradients[-1][:] = row
    out = np.full(length, np.nan, np.float32)
    server_rounds.add_gradients(out, gradients, 2)
    expected = numbers[0, 2 : 2 + length].copy()
    for row in numbers[1:]:
        expected += row[2 : 2 + length]
    assert out.tobytes() == expected.tobytes()


def test_a_gradient_that_is_too_short_is_not_read(form):
    out = np.zeros(5, np.float32)
    with pytest.raises(ValueError):
        server_rounds.add_gradients(out, [np.zeros(7, np.float32), np.zeros(6, np.float32)], 2)
