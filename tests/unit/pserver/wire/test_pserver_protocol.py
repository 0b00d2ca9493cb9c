"""Frames: round trip, truncated at each byte, oversized, of another version, and fuzzed."""

import struct

import pytest
from each import each
from hypothesis import given
from hypothesis import strategies as st

from pserver.wire import protocol
from pserver.wire.protocol import Message, MessageFlag, Op, ProtocolError, VersionError

SESSION = protocol.session_of("job", "1")
PUSH = Message(Op.PUSH, SESSION, 2, 9, 128, note={"a": [1, "ä"]}, payload=[b"\x00\x00\x80\x3f", b"12345678"])


def frames(message=PUSH):
    return [bytes(frame) for frame in protocol.encode(message)]


def header(**changes):
    """The header of PUSH with some fields changed."""
    names = ["magic", "version", "op", "flags", "session", "trainer", "note", "sequence", "argument", "payload"]
    names += ["piece", "samples", "tag"]
    fields = dict(zip(names, struct.unpack("<4sHBB8siIQqQII8s", frames()[0]), strict=True))
    return struct.pack("<4sHBB8siIQqQII8s", *(fields | changes).values())


notes = st.dictionaries(st.text(), st.none() | st.integers(-(10**9), 10**9) | st.text() | st.lists(st.integers(0, 9)))


messages = st.builds(
    Message,
    st.sampled_from(Op),
    st.binary(min_size=8, max_size=8),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(
        [
            MessageFlag.NONE,
            MessageFlag.ANSWER,
            MessageFlag.ANSWER | MessageFlag.FATAL,
            MessageFlag.CHECKPOINT | MessageFlag.LOCAL,
        ]
    ),
    notes,
    st.lists(st.binary(), max_size=4),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
)


@given(messages)
def test_a_message_comes_back_as_it_was(message):
    assert protocol.decode(protocol.encode(message)) == message


def test_a_message_read_from_memoryviews_is_the_same_and_payloads_are_not_copied():
    views = [memoryview(frame) for frame in frames()]
    message = protocol.decode(views)
    assert message.note == PUSH.note and message.payload[0] is views[2]


@pytest.mark.parametrize("part", range(4))
def test_a_frame_cut_at_any_byte_is_refused(part):
    whole = frames()
    for length in range(len(whole[part])):
        with pytest.raises(ProtocolError):
            protocol.decode([*whole[:part], whole[part][:length], *whole[part + 1 :]])


@pytest.mark.parametrize("part", range(4))
def test_a_frame_with_a_byte_too_many_or_missing_altogether_is_refused(part):
    whole = frames()
    with pytest.raises(ProtocolError):
        protocol.decode([*whole[:part], whole[part] + b"x", *whole[part + 1 :]])
    with pytest.raises(ProtocolError):
        protocol.decode([*whole[:part], *whole[part + 1 :]])


@each(
    "bad, part",
    [
        ([], "empty"),
        ([b""], "begins with"),
        ([b"GET / HTTP/1.1\r\n"], "begins with b'GET '"),
        ([header(op=77), *frames()[1:]], "unknown op 77"),
        ([header(flags=128), *frames()[1:]], "unknown flags"),
        ([header(note=protocol.MAX_NOTE_BYTES + 1), *frames()[1:]], "over the limit"),
        ([header(payload=protocol.MAX_PAYLOAD_BYTES + 1), *frames()[1:]], "over the limit"),
        ([header(payload=13), *frames()[1:]], "declared 13"),
        ([header(note=3), b"[1]", *frames()[2:]], "list instead of an object"),
        ([header(note=3), b"{a}", *frames()[2:]], "not JSON"),
        ([header(note=2), b"\xff\xfe", *frames()[2:]], "not JSON"),
        ([header(op=3, note=200000), b"[" * 200000, *frames()[2:]], "more than 32 levels"),
        ([header(note=9000), b"1" * 9000, *frames()[2:]], "64 bits"),
        ([header(note=protocol.SMALL_NOTE_BYTES + 1), *frames()[1:]], "over the limit of 65536"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_with_a_frame_is_named(bad, part):
    with pytest.raises(ProtocolError, match=part):
        protocol.decode(bad)


@pytest.mark.parametrize("version", [0, 1, 65535])
def test_another_version_is_named_whatever_else_it_says(version):
    with pytest.raises(VersionError, match=f"version {version}") as caught:
        protocol.decode([header(version=version)[:8] + b"a future layout"])
    assert caught.value.version == version


def test_too_large_a_message_is_refused_before_it_is_sent(monkeypatch):
    monkeypatch.setattr(protocol, "MAX_PAYLOAD_BYTES", 11)
    with pytest.raises(ProtocolError, match="over the limit of 11"):
        protocol.encode(PUSH)


@each("op", Op)
def test_what_becomes_a_part_of_another_note_has_fewer_levels(op):
    """What a trainer gives to a checkpoint is stored, and sent again inside of a note of up to 32 levels."""

    def deep(levels):
        note = b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"
        return [header(op=op, note=len(note), payload=0), note]

    most = 28 if op in (Op.FINISH_PASS, Op.CHECKPOINT) else 32
    assert protocol.decode(deep(most)).op == op
    with pytest.raises(ProtocolError, match=f"more than {most} levels"):
        protocol.decode(deep(most + 1))


def test_job_and_attempt_are_both_in_the_session():
    sessions = {protocol.session_of(*pair) for pair in [("a", "1"), ("a", "2"), ("b", "1"), ("a1", ""), ("", "a1")]}
    assert len(sessions) == 5


@pytest.mark.parametrize("size, pieces", [(0, 1), (1, 1), (2 << 20, 1), ((2 << 20) + 1, 2), (9 << 20, 5)])
def test_an_array_is_cut_into_pieces_that_make_it_up(size, pieces):
    array = memoryview(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
    cut = [protocol.cut(array, piece) for piece in range(protocol.count_pieces(size))]
    assert len(cut) == pieces and b"".join(cut) == array.tobytes()
    assert len(protocol.cut(array, pieces)) == 0


def welcome(**changes):
    note = {"job": "j", "attempt": "1"} | changes
    return Message(Op.HELLO, SESSION, -1, 1, flags=MessageFlag.ANSWER, note=note)


@pytest.mark.parametrize(
    "answer, part",
    [
        (welcome(job="other"), "'other'"),
        (welcome(attempt="0"), "'0'"),
        (welcome(attempt=[{"a": 1}]), "[{'a': 1}]"),
        (Message(Op.ERROR, SESSION, -1, 1, note={"message": "go away"}), "go away"),
        (Message(Op.PING, SESSION, -1, 1, flags=MessageFlag.ANSWER), "PING"),
    ],
    ids=["job", "attempt", "type", "refusal", "op"],
)
def test_a_wrong_answer_to_a_hello_is_explained(answer, part):
    assert part in protocol.find_fault(answer, "j", "1")
    assert protocol.find_fault(welcome(), "j", "1") is None


@each(("argument", "length"), [(0, 0), (3, 3), (4, 4), (5, 4), (1 << 62, 4), (-1, 0), (-(1 << 62), 0)])
def test_a_payload_in_shared_memory_never_reaches_beyond_its_piece(monkeypatch, argument, length):
    monkeypatch.setattr(protocol, "PIECE_BYTES", 4)
    shared = memoryview(bytes(range(10)))
    one = Message(Op.PUSH, b"12345678", 0, 1, argument, MessageFlag.LOCAL, piece=1)
    assert bytes(protocol.cut_local(shared, one)) == bytes(range(4, 8))[:length]
    assert len(protocol.cut_local(shared, one._replace(piece=2))) <= 2
    assert len(protocol.cut_local(shared, one._replace(piece=2**32 - 1))) == 0
