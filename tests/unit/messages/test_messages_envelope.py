"""Messages as bytes."""

import json

import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.messages.envelope import MAX_BYTES, Envelope, MemberId, decode, encode, error
from paddle_base.runtime.schema import SchemaError

GOOD = {"v": 1, "kind": "beat", "id": 0, "ack": 0, "body": {}}


def test_a_message_comes_back_as_it_was() -> None:
    message = Envelope("report", {"status": 3, "lines": ["ä"]}, 7, 5)
    assert decode(encode(message)) == message


@each(
    ("change", "code"),
    [
        ({"v": 2}, "version"),
        ({"v": True}, "version"),
        ({"v": None}, "version"),
        ({"kind": ""}, "schema"),
        ({"kind": 1}, "schema"),
        ({"kind": "k" * 61}, "schema"),
        ({"id": -1}, "schema"),
        ({"id": "1"}, "schema"),
        ({"ack": 1 << 63}, "schema"),
        ({"body": []}, "schema"),
        ({"body": None}, "schema"),
        ({"extra": 1}, "schema"),
        ({"body": {"a": [[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]}}, "form"),
    ],
)
def test_a_wrong_part_is_refused(change: dict[str, object], code: str) -> None:
    with pytest.raises(SchemaError) as caught:
        decode(json.dumps({**GOOD, **change}).encode())
    assert caught.value.code == code


@pytest.mark.parametrize(("data", "code"), [(b"x" * (MAX_BYTES + 1), "size"), (b"", "form"), (b"\x80\x04.", "form")])
def test_what_is_no_message_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(SchemaError) as caught:
        decode(data)
    assert caught.value.code == code


def test_a_message_that_is_cut_anywhere_is_refused() -> None:
    whole = encode(Envelope("report", {"status": 3}, 7))
    for size in range(len(whole)):
        with pytest.raises(SchemaError):
            decode(whole[:size])


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_refused_and_nothing_else(noise: bytes) -> None:
    with pytest.raises(SchemaError):
        decode(noise)


def test_a_message_over_the_limit_is_not_sent() -> None:
    with pytest.raises(SchemaError, match="1048"):
        encode(Envelope("report", {"text": "x" * MAX_BYTES}))


def test_an_error_is_cut_and_never_fails_itself() -> None:
    message = decode(error("c" * 100, "\udcff" + "r" * 9000, 3))
    assert (len(message.body["code"]), len(message.body["reason"]), message.id) == (40, 4000, 3)


def test_a_later_incarnation_of_a_member_is_larger() -> None:
    assert MemberId("a", 1) < MemberId("a", 2)
    assert str(MemberId("a", 2)) == "a.2"
