"""Keys from the job's secret."""

import hashlib
import hmac

import pytest
import zmq
from zmq.utils import z85

from paddle_base.messages.errors import NoCurveError
from paddle_base.messages.keys import answer_zap, derive_keys, derive_private

SECRET = "0123456789abcdef"
KEYS = derive_keys(SECRET)


def test_every_program_of_a_job_derives_the_same_keys() -> None:
    assert derive_keys(SECRET) == KEYS
    assert derive_keys(SECRET + "x") != KEYS


def test_without_a_secret_there_are_no_keys() -> None:
    assert derive_keys("") is None


def test_the_private_key_is_hkdf_clamped() -> None:
    extracted = hmac.digest(b"paddle-on-kubernetes control messages 1", SECRET.encode(), hashlib.sha256)
    expanded = bytearray(hmac.digest(extracted, b"server\x01", hashlib.sha256))
    key = derive_private(SECRET, b"server")
    assert key[1:31] == expanded[1:31]
    assert (key[0] & 7, key[31] >> 6) == (0, 1)


def test_a_pair_fits_together_and_no_key_is_shown() -> None:
    assert KEYS
    assert zmq.curve_public(KEYS.server_private) == KEYS.server_public
    assert zmq.curve_public(KEYS.client_private) == KEYS.client_public
    assert KEYS.server_private.decode() not in repr(KEYS)


def test_a_libzmq_without_curve_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq, "has", lambda what: False)
    with pytest.raises(NoCurveError, match="has no CURVE to prove the secret; install pyzmq"):
        derive_keys(SECRET)


def ask(key: bytes, mechanism: bytes = b"CURVE") -> list[bytes]:
    assert KEYS
    return answer_zap([b"1.0", b"7", b"paddle", b"", b"", mechanism, key], KEYS.client_public)


def test_only_the_clients_key_of_the_job_is_admitted() -> None:
    other = derive_keys("another secret..")
    assert KEYS and other
    assert ask(z85.decode(KEYS.client_public))[:3] == [b"1.0", b"7", b"200"]
    for frames in (ask(z85.decode(other.client_public)), ask(b""), ask(z85.decode(KEYS.client_public), b"PLAIN")):
        assert frames[2] == b"400"
    assert answer_zap([], KEYS.client_public)[2] == b"400"
