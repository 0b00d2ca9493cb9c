"""The handshake: both sides prove the secret, and whatever else comes ends it after at most 128 bytes."""

import itertools
import struct
from random import Random

import pytest
from each import each
from fuzz import seeds

from pserver.wire import authentication, protocol
from pserver.wire.authentication import (
    DATA,
    HEARTBEAT,
    NO_KEYS,
    PROBE,
    RECORD_BYTES,
    VERSION,
    ClientHandshake,
    ServerHandshake,
)
from pserver.wire.protocol import Message, Op

NAME = b"t" * 16 + DATA


def pair(client_secret="hush", server_secret="hush", name=NAME, nonces=(b"c" * 32, b"s" * 32)):
    return ClientHandshake(client_secret, name, nonces[0]), ServerHandshake(server_secret, nonces[1])


def shake(client, server):
    """Let both sides speak until neither has anything to say; returns all records, in order."""
    said = [client.greeting]
    while said[-1]:
        side = server if len(said) % 2 else client
        said.append(side.feed(said[-1]) if side.wanted else b"")
    return said[:-1]


@each("secret", ["hush", "", "é" * 4096])
@each("kind", [DATA, HEARTBEAT, PROBE])
def test_two_that_share_a_secret_know_each_other_after_two_round_trips(secret, kind):
    client, server = pair(secret, secret, b"n" * 16 + kind)
    said = shake(client, server)
    assert [len(one) for one in said] == [RECORD_BYTES] * 4
    assert (client.wanted, server.wanted, client.fault, server.fault) == (0, 0, "", "")
    assert server.name == b"n" * 16 + kind and client.keys == server.keys[::-1]
    assert all(client.keys) if secret else client.keys == NO_KEYS
    assert not secret or secret.encode() not in b"".join(said)


@pytest.mark.parametrize("secrets", [("hush", "other"), ("", "hush"), ("hush", "")])
def test_another_secret_is_refused_and_said_by_both_sides(secrets):
    client, server = pair(*secrets)
    said = shake(client, server)
    assert said[-1] == struct.pack("<4sHBBB55s", b"PDLP", VERSION, 0, 1, authentication.Reason.PROOF, b"")
    assert "PADDLE_SECRET differs" in client.fault and "PADDLE_SECRET differs" in server.fault
    assert server.name == b"" and client.keys == server.keys == NO_KEYS


def test_a_server_that_does_not_know_the_secret_is_not_believed():
    client, server = pair("hush", "hush")
    challenge = server.feed(client.greeting)
    server.feed(client.feed(challenge))
    for liar in (authentication._pack(authentication.Record.PROOF, 1, bytes(32)), challenge, bytes(64)):
        one, _ = pair("hush", "hush")
        one.feed(challenge)
        one.feed(liar)
        assert one.fault and one.keys == NO_KEYS and not one.wanted


def test_no_proof_fits_another_nonce_name_or_side():
    """So nothing that was recorded is of use: not to the same server, not for another name, not sent back."""
    facts = itertools.product(
        (b"c" * 32, b"C" * 32), (b"s" * 32, b"S" * 32), (NAME, b"T" * 16 + DATA, NAME[:16] + b"h")
    )
    proofs, keys = set(), set()
    for client_nonce, server_nonce, name in facts:
        client, server = pair(name=name, nonces=(client_nonce, server_nonce))
        said = shake(client, server)
        proofs |= {said[2][8:40], said[3][8:40]}
        keys |= set(client.keys)
    assert len(proofs) == 24 and len(keys) == 24 and not proofs & keys


def test_no_side_accepts_its_own_messages():
    """One key signed both directions, so a returned PUSH was an answer with the trainer's own gradients as values."""
    client, server = pair()
    shake(client, server)
    for one, other in ((client, server), (server, client)):
        frames = protocol.encode(Message(Op.PUSH, b"s" * 8, 0, 1), one.keys.sending)
        assert protocol.is_signed(frames, other.keys.receiving)
        assert not protocol.is_signed(frames, one.keys.receiving)


def test_a_recorded_proof_is_refused_by_another_challenge():
    client, server = pair()
    recorded = shake(client, server)
    again = ServerHandshake("hush", b"another nonce of the server" + bytes(5))
    assert again.feed(recorded[0]) != recorded[1]
    again.feed(recorded[2])
    assert "does not prove" in again.fault and again.name == b""


@pytest.mark.parametrize("version", [0, 3, VERSION - 1, VERSION + 1, 65535])
def test_another_version_is_named_by_its_first_bytes_on_both_sides(version):
    head = b"PDLP" + version.to_bytes(2, "little")
    client, server = pair()
    refusal = server.feed(head)
    assert refusal[4:9] == bytes([VERSION, 0, 0, 1, authentication.Reason.VERSION])
    client.feed(head + b"\x00\x01")
    for one in (client, server):
        assert f"speaks protocol version {version}, this program speaks version {VERSION}" in one.fault


@pytest.mark.parametrize("text", [b"G", b"GET / HTTP/1.1", b"\x16\x03\x01", b"PDLQ", b"\0" * 64])
def test_noise_is_known_by_its_first_bytes(text):
    client, server = pair()
    assert server.feed(text)[8] == authentication.Reason.FORM and "begins with" in server.fault
    client.feed(text)
    assert "begins with" in client.fault


def test_records_in_another_order_are_refused():
    client, server = pair()
    said = shake(client, server)
    for order in itertools.product(range(4), repeat=2):
        one = ServerHandshake("hush", b"s" * 32)
        for number in order:
            if one.wanted:
                one.feed(said[number])
        assert (one.fault == "") == (order == (0, 2)), order
        other = ClientHandshake("hush", NAME, b"c" * 32)
        for number in order:
            if other.wanted:
                other.feed(said[number])
        assert (other.fault == "") == (order == (1, 3)), order


def test_no_bit_of_a_greeting_or_a_proof_is_free_but_those_of_nonces():
    client, server = pair()
    said = shake(client, server)
    for number, bit in itertools.product((0, 2), range(8 * RECORD_BYTES)):
        changed = bytearray(said[number])
        changed[bit // 8] ^= 1 << bit % 8
        one = ServerHandshake("hush", b"s" * 32)
        for record in (changed if number == 0 else said[0], changed if number == 2 else said[2]):
            if one.wanted:
                one.feed(bytes(record))
        assert one.fault, (number, bit)


@pytest.mark.parametrize("seed", seeds(3))
def test_whatever_comes_ends_or_waits_and_takes_no_more_than_a_record(seed):
    random = Random(seed)
    client, server = pair()
    said = shake(client, server)
    for _ in range(3000):
        stream = b"".join(random.choices([*said, random.randbytes(64), b"PDLP\x06\0" + random.randbytes(58)], k=3))
        if random.random() < 0.5:
            at = random.randrange(len(stream))
            stream = stream[:at] + random.randbytes(random.randrange(9)) + stream[at + random.randrange(9) :]
        stream = stream[: random.randrange(len(stream) + 1)]
        for one in (ServerHandshake("hush", random.randbytes(32)), ClientHandshake("hush", NAME, random.randbytes(32))):
            left, answered = stream, 0
            while left and one.wanted:
                take = random.randrange(1, one.wanted + 1)
                answered += len(one.feed(left[:take]))
                left = left[take:]
            assert answered <= 2 * RECORD_BYTES and len(one._come) < RECORD_BYTES and one.keys == NO_KEYS


def test_a_client_that_is_refused_says_why():
    for reason, part in [
        (1, "this program's handshake"),
        (2, "does not speak protocol version"),
        (3, "PADDLE_SECRET"),
        (9, "9"),
    ]:
        client, _ = pair()
        client.feed(authentication._pack(authentication.Record.REFUSAL, 1, bytes([reason])))
        assert part in client.fault and not client.wanted
