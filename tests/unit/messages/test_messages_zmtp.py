"""What is let through to libzmq, byte by byte."""

import pytest
from each import each

from paddle_base.messages.zmtp import FRAME_BYTES, FrameHeads, PeerBytes, ServerBytes, ZmtpError

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x1a\x05READY\x0bSocket-Type\0\0\0\x06DEALER"[:28]
MESSAGE = b"\x00\x05hello"


def peer_after(*parts: bytes, agreed: bool = False) -> PeerBytes:
    peer = PeerBytes(b"NULL")
    peer.has_agreed = agreed
    for part in parts:
        peer.feed(part)
    return peer


def test_the_handshake_of_a_program_of_ours_passes_however_it_is_cut() -> None:
    whole = GREETING + READY + MESSAGE * 3
    for cut in range(len(whole)):
        assert peer_after(whole[:cut], whole[cut:], agreed=True).is_let_in
    assert peer_after(*(bytes([one]) for one in whole), agreed=True).is_let_in


@each(
    ("data", "wrong"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 0),
        (b"\x16\x03\x01\x02\x00\x01", 0),  # TLS
        (b"\n", 0),
        (b"\xff" + bytes(9), 9),
        (GREETING[:10] + b"\x01" + GREETING[11:], 10),  # ZMTP 2
        (GREETING.replace(b"NULL\0", b"PLAIN"), 12),
        (GREETING + b"\x01\x00", 65),  # more frames follow
        (GREETING + MESSAGE, 65),
    ],
)
def test_a_peer_is_refused_at_its_first_wrong_byte(data: bytes, wrong: int) -> None:
    peer = peer_after(data[:wrong])
    with pytest.raises(ZmtpError):
        peer.feed(data[wrong : wrong + 1])


def test_libzmq_sees_a_peer_when_its_signature_has_come() -> None:
    assert not peer_after(GREETING[:9]).has_signed
    assert peer_after(GREETING[:10]).has_signed


@each(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "greeting"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", "greeting"),  # TLS
        (b"\xff" + bytes(9), "greeting"),
        (GREETING[:10] + b"\x01" + GREETING[11:], "greeting"),  # ZMTP 2
        (GREETING.replace(b"NULL\0", b"CURVE"), "mechanism"),
        (GREETING + MESSAGE, "handshake"),
        (GREETING + READY + MESSAGE, "handshake"),  # libzmq has not agreed
        (GREETING + b"\x00\x00", "handshake"),  # an empty frame
        (GREETING + b"\x01\x00", "frames"),
        (GREETING + b"\x80\x00", "frames"),
        (GREETING + b"\x06" + (5000).to_bytes(8, "big") + b"\x05READY", "bytes"),
        (GREETING + b"\x06" + (1 << 62).to_bytes(8, "big") + b"\x05READY", "size"),
        (GREETING + b"\x04\x06\x05READY" * 200, "bytes"),
    ],
)
def test_what_no_program_of_ours_sends_is_refused(data: bytes, code: str) -> None:
    for parts in ([data], [bytes([one]) for one in data]):
        with pytest.raises(ZmtpError) as caught:
            peer_after(*parts)
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x01\x00", "frames"),  # a message of more than one frame
        (b"\x03" + bytes(8), "frames"),
        (b"\x02" + (FRAME_BYTES + 1).to_bytes(8, "big"), "size"),
        (b"\x06" + (513).to_bytes(8, "big") + b"\x04PING", "size"),  # a long command
    ],
)
def test_a_peer_that_is_let_in_has_limits_too(data: bytes, code: str) -> None:
    with pytest.raises(ZmtpError) as caught:
        peer_after(GREETING, READY, data, agreed=True)
    assert caught.value.code == code


def test_the_mechanisms_are_named_when_one_side_has_no_secret() -> None:
    with pytest.raises(ZmtpError, match="the peer has the mechanism CURVE, this server has NULL: one of the two"):
        peer_after(GREETING.replace(b"NULL\0", b"CURVE"))


def test_the_bodies_of_frames_are_skipped() -> None:
    heads = FrameHeads()
    long = b"\x02" + (300).to_bytes(8, "big") + b"\x04" * 300
    assert heads.feed(long + b"\x04\x06\x05READY" + b"\x00\x00" + b"\x00\x02ab") == [
        (2, 300, b""),
        (4, 6, b"READY"),
        (0, 0, b""),
        (0, 2, b""),
    ]


def test_libzmq_has_agreed_when_it_says_ready() -> None:
    for cut in range(100):
        server = ServerBytes()
        said = GREETING + b"\x04\x09\x07WELCOMEx" + READY
        server.feed(said[:cut])
        assert not server.is_ready or cut > 75
        server.feed(said[cut:])
        assert server.is_ready
