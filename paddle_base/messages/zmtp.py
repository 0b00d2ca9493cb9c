"""Checks the greeting of ZMTP 3, and the length and kind of each frame, before libzmq receives the bytes.

libzmq collects all frames of a message before it delivers the message. libzmq limits the length of the frames, but does
not limit their number, even for unauthenticated peers: 20 MB of empty frames use 650 MB of memory (libzmq 4.3.5).
`PeerBytes` checks the bytes of a peer, and refuses bytes that no program of this project sends. `ServerBytes` reads the
bytes that libzmq sends to the peer, because they show when the peer is authenticated. The two classes do no input or
output.

A greeting has 64 bytes: ff, 8 bytes, 7f, major and minor version, the mechanism in 20 bytes, a byte that says whether
the sender is a server, and 31 zeros. A frame has a byte of flags (1: more frames follow, 2: the length has 8 bytes, 4:
a command), the length and the body. A command's body begins with the length and the text of its name. Source:
rfc.zeromq.org/spec/23 and 26. No I/O.
"""

from __future__ import annotations

from paddle_base.messages.envelope import MAX_BYTES

GREETING_BYTES = 64
SIGNATURE_BYTES = 10  # bytes of a greeting from ff to 7f
# maximum bytes from a peer before it is authenticated, including its greeting; CURVE uses 600 bytes, and NULL 120
HANDSHAKE_BYTES = 2048
FRAME_BYTES = MAX_BYTES + 256  # maximum bytes of a frame: a message, and the 33 bytes that CURVE adds
COMMAND_BYTES = 512  # maximum bytes of a command after the handshake

MORE, LONG, COMMAND = 1, 2, 4
# a command ERROR with the reason 400, which the peer's libzmq reports as a failed authentication; spec/26 defines the
# command, and spec/27 the number
REFUSED_PROOF = bytes([COMMAND, 10]) + b"\x05ERROR\x03400"


class ZmtpError(ValueError):
    """The peer does not follow the protocol of this project's programs. `code` names the counter of such errors."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class FrameHeads:
    """Find the headers of frames in a stream; keep the name of a command, and drop the rest of each body."""

    def __init__(self) -> None:
        self._head = b""  # the beginning of an incomplete header
        self._left = 0  # bytes of the body that have not arrived

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Return (flags, length, name of the command) of each frame that begins in these bytes."""
        found = []
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            size = 9 if data[at] & LONG else 2
            # usually the whole header is in these bytes
            if not self._head and not data[at] & COMMAND and len(data) - at >= size:
                self._left = int.from_bytes(data[at + 1 : at + size], "big")
                found.append((data[at], self._left, b""))
                at += size
                continue
            self._head += data[at : at + 1]  # reading single bytes is fast enough for the few bytes of each header
            at += 1
            frame = self._read_head()
            if frame is not None:
                found.append(frame)
        return found

    def _read_head(self) -> tuple[int, int, bytes] | None:
        """Return the frame if its header is complete; `feed` then skips the frame's body."""
        head, flags = self._head, self._head[0]
        size = 9 if flags & LONG else 2
        if len(head) < size:
            return None
        length = int.from_bytes(head[1:size], "big")
        name = b""
        if flags & COMMAND and length:
            if len(head) == size or len(head) < min(size + 1 + head[size], size + length):
                return None
            name = head[size + 1 :]
        self._left, self._head = length - (len(head) - size), b""
        return flags, length, name


class PeerBytes:
    """Check the bytes of a peer.

    Args: mechanism: NULL or CURVE; a peer that uses another mechanism is refused.
    """

    def __init__(self, mechanism: bytes) -> None:
        self.is_ready = False  # the peer has sent READY or INITIATE, the end of its part of the handshake
        self.said_hello = False  # the peer has sent HELLO, which only a server with the same secret can decrypt
        self.has_agreed = False  # libzmq has sent READY; set by the gate
        self._mechanism = mechanism.ljust(20, b"\0")
        self._greeting = b""
        self._taken = GREETING_BYTES
        self._heads = FrameHeads()

    @property
    def has_signed(self) -> bool:
        """Whether the peer's signature has arrived; the peer's libzmq then waits for the server's signature."""
        return len(self._greeting) >= SIGNATURE_BYTES

    @property
    def is_let_in(self) -> bool:
        """Whether the handshake is complete."""
        return self.is_ready and self.has_agreed

    def feed(self, data: bytes) -> None:
        """Check some bytes.

        Raises: ZmtpError: the peer is not a program of this project.
        """
        missing = GREETING_BYTES - len(self._greeting)
        if missing:
            self._greeting += data[:missing]
            data = data[missing:]
            self._check_greeting()
        for flags, length, name in self._heads.feed(data):
            self._check_frame(flags, length, name)

    def _check_greeting(self) -> None:
        come = self._greeting
        if come[:1] not in (b"", b"\xff") or (len(come) > 9 and come[9] != 0x7F) or (len(come) > 10 and come[10] < 3):
            raise ZmtpError("greeting", "the peer does not begin with the greeting of ZMTP 3")
        mechanism = come[12:32]
        if mechanism != self._mechanism[: len(mechanism)]:
            shown = mechanism.rstrip(b"\0").decode("ascii", "backslashreplace")
            ours = self._mechanism.rstrip(b"\0").decode()
            raise ZmtpError(
                "mechanism", f"the peer has the mechanism {shown}, this server has {ours}: one of the two has no secret"
            )

    def _check_frame(self, flags: int, length: int, name: bytes) -> None:
        if flags & ~(MORE | LONG | COMMAND) or flags & MORE:
            raise ZmtpError("frames", "the peer sends a message of more than one frame, or a frame that is not ZMTP")
        if length > (COMMAND_BYTES if flags & COMMAND and self.is_let_in else FRAME_BYTES):
            raise ZmtpError("size", f"the peer sends a frame of {length} bytes")
        if not self.is_let_in:
            self._taken += 9 + length
            if not flags & COMMAND:
                raise ZmtpError("handshake", "the peer sends a message before the handshake is over")
            if self._taken > HANDSHAKE_BYTES:
                raise ZmtpError("bytes", f"the peer sends more than {HANDSHAKE_BYTES} bytes in the handshake")
        self.is_ready |= name in (b"READY", b"INITIATE")
        self.said_hello |= name == b"HELLO"


class ServerBytes:
    """Examine the bytes that libzmq sends to a peer, until the handshake is complete."""

    def __init__(self) -> None:
        self.is_ready = False  # libzmq has sent READY
        self.has_welcomed = False  # libzmq has sent WELCOME, and has therefore decrypted the peer's HELLO
        self._skip = GREETING_BYTES
        self._heads = FrameHeads()

    def feed(self, data: bytes) -> None:
        """Read bytes that libzmq sends."""
        if self.is_ready:
            return
        greeting = min(self._skip, len(data))
        self._skip -= greeting
        names = [name for _, _, name in self._heads.feed(data[greeting:])]
        self.is_ready, self.has_welcomed = b"READY" in names, self.has_welcomed or b"WELCOME" in names

    def rest_of_greeting(self, mechanism: bytes) -> bytes:
        """Return the part of the greeting that libzmq has not sent yet, with the mechanism of the server.

        The gate sends these bytes to a peer before it closes the connection. From these bytes, the peer's libzmq finds
        that the mechanisms differ.
        """
        whole = b"\xff" + bytes(7) + b"\x01\x7f\x03\x01" + mechanism.ljust(20, b"\0") + b"\x01" + bytes(31)
        return whole[GREETING_BYTES - self._skip :]
