"""The handshake of every connection: four records of 64 bytes with fixed fields.

client    greeting     its nonce
server    challenge    its nonce
client    proof        the name of the connection, and the proof that the client knows the secret
server    proof        the proof that the server knows the secret

Each record has its fields at fixed offsets, little-endian, and zeros in the rest:

offset  0  4s   magic b"PDLP"      offset  4  u16  version     offset  6  u8  record    offset  7  u8  1: a server's
offset  8  32s  nonce, or proof    offset 40  16s  token       offset 56  1s  kind

The proofs are HMAC-SHA256 with the secret over both nonces and the name (token and kind). Without a secret the key of
the HMAC is empty; the format of the records does not change. The client sends its proof first; a server reveals nothing
to a peer that has not sent a valid proof. Instead of an answer, either side may send a refusal, which has its reason at
offset 8 and ends the handshake. The keys that sign the messages of the connection are also derived from the secret, the
nonces and the name. Each direction has its own key, so that no side accepts its own messages when they come back.

No I/O.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import struct
from typing import NamedTuple

MAGIC = b"PDLP"
VERSION = 6
RECORD_BYTES = 64
NONCE_BYTES = 32
TOKEN_BYTES = 16  # bytes of a connection's name without its last byte, the kind
DATA, HEARTBEAT, PROBE = b"d", b"h", b"p"
KINDS = (DATA, HEARTBEAT, PROBE)

_RECORD = struct.Struct("<4sHBB32s16s1s7s")
_LABEL = struct.Struct("<4sH10s")
_ZEROS = bytes(RECORD_BYTES)
_FROM_CLIENT, _FROM_SERVER = b"by client", b"by server"  # labels of the keys of the messages


class Record(enum.IntEnum):
    """The type of a record. Only REFUSAL has the number of a message's op (ERROR), because every version reads this
    number as a refusal.
    """

    REFUSAL = 0
    GREETING = 12
    PROOF = 16


class Reason(enum.IntEnum):
    """The reason for a refused handshake. An unauthenticated peer receives no other information."""

    FORM = 1
    VERSION = 2
    PROOF = 3


_WORDS = {
    Reason.FORM: "it does not accept this program's handshake",
    Reason.VERSION: f"it does not speak protocol version {VERSION}",
    Reason.PROOF: "it refuses the proof of the secret; PADDLE_SECRET differs between the two programs",
}


class MessageKeys(NamedTuple):
    """The keys that sign the messages of a connection, as one side has them; without a secret both are empty."""

    sending: bytes
    receiving: bytes


NO_KEYS = MessageKeys(b"", b"")


class Handshake:
    """One side of a handshake: it consumes received bytes, and returns bytes to send.

    `wanted`: number of missing bytes of the next record; 0 after the handshake. After the handshake, either `fault` is
    the reason for its failure, or `keys` are the keys that sign messages. At most one record of the other side is
    stored.
    """

    def __init__(self, secret: str, nonce: bytes) -> None:
        self.name = b""
        self.keys = NO_KEYS
        self.fault = ""
        self.wanted = RECORD_BYTES
        self._secret, self._nonce = secret, nonce
        self._come = b""
        self._other = b""  # the other side's nonce

    def feed(self, data: bytes) -> bytes:
        """Consume at most `wanted` bytes; return the bytes to send."""
        self._come += data
        self.wanted = RECORD_BYTES - len(self._come)
        head = self._come[:8]
        if head[:4] != MAGIC[: len(head)]:
            hint = "; it is a web server" if head[:4] == b"HTTP" else ""
            return self._fail(Reason.FORM, f"it begins with {head[:4]!r} instead of {MAGIC!r}{hint}")
        if len(head) >= 6 and (version := int.from_bytes(head[4:6], "little")) != VERSION:
            return self._fail(
                Reason.VERSION, f"it speaks protocol version {version}, this program speaks version {VERSION}"
            )
        if self.wanted:
            return b""
        come, self._come, self.wanted = self._come, b"", RECORD_BYTES
        return self._take(*_RECORD.unpack(come)[2:])

    def _take(self, record: int, side: int, field: bytes, token: bytes, kind: bytes, rest: bytes) -> bytes:
        raise NotImplementedError

    def _fail(self, reason: Reason, why: str) -> bytes:
        """End the handshake; return the bytes of a refusal, or b"" if this side sends none."""
        self.fault, self.wanted, self._come = why, 0, b""
        return b""

    def _finish(self, own: bytes, other: bytes) -> None:
        self.wanted = 0
        if self._secret:
            self.keys = MessageKeys(self._mac(own), self._mac(other))

    def _mac(self, label: bytes) -> bytes:
        """Return the proof or key that has this label, for this connection; all inputs have fixed lengths."""
        raise NotImplementedError

    def _digest(self, label: bytes, client_nonce: bytes, server_nonce: bytes) -> bytes:
        facts = _LABEL.pack(MAGIC, VERSION, label) + client_nonce + server_nonce + self.name
        return hmac.new(self._secret.encode(), facts, hashlib.sha256).digest()


class ServerHandshake(Handshake):
    """The server's side. `name` is the connection's name after a successful handshake."""

    def _take(self, record: int, side: int, field: bytes, token: bytes, kind: bytes, rest: bytes) -> bytes:
        if not self._other:
            if (record, side, token, kind, rest) != (Record.GREETING, 0, bytes(16), bytes(1), bytes(7)):
                return self._fail(Reason.FORM, "it does not begin with a greeting")
            self._other = field
            return _pack(Record.GREETING, 1, self._nonce)
        if (record, side, rest) != (Record.PROOF, 0, bytes(7)) or kind not in KINDS:
            return self._fail(Reason.FORM, "it does not answer the challenge with a proof")
        self.name = token + kind
        if not hmac.compare_digest(field, self._mac(b"client")):
            return self._fail(
                Reason.PROOF, "it does not prove this job's secret; PADDLE_SECRET differs between the two programs"
            )
        self._finish(_FROM_SERVER, _FROM_CLIENT)
        return _pack(Record.PROOF, 1, self._mac(b"server"))

    def _fail(self, reason: Reason, why: str) -> bytes:
        super()._fail(reason, why)
        self.name = b""
        return _pack(Record.REFUSAL, 1, bytes([reason]))

    def _mac(self, label: bytes) -> bytes:
        return self._digest(label, self._other, self._nonce)


class ClientHandshake(Handshake):
    """The client's side.

    Args: secret: the secret of the job, or empty. name: name of the connection: a token of 16 bytes, and its kind.
        nonce: 32 bytes that were never used before.
    """

    def __init__(self, secret: str, name: bytes, nonce: bytes) -> None:
        super().__init__(secret, nonce)
        self.name = name

    @property
    def greeting(self) -> bytes:
        """The first record."""
        return _pack(Record.GREETING, 0, self._nonce)

    def _take(self, record: int, side: int, field: bytes, token: bytes, kind: bytes, rest: bytes) -> bytes:
        is_blank = token + kind + rest == _ZEROS[:24]
        # a refusal has no proof: who can forge one can also cut the connection
        if record == Record.REFUSAL and side:
            reason = field[0]
            return self._fail(
                Reason.FORM, _WORDS[Reason(reason)] if reason in _WORDS else f"it refuses, for reason {reason}"
            )
        wanted = Record.PROOF if self._other else Record.GREETING
        if not is_blank or record != wanted or not side:
            return self._fail(
                Reason.FORM,
                f"its answer to {'the proof' if self._other else 'the greeting'} is not a record of the handshake",
            )
        if not self._other:
            self._other = field
            return _RECORD.pack(
                MAGIC, VERSION, Record.PROOF, 0, self._mac(b"client"), self.name[:-1], self.name[-1:], b""
            )
        if not hmac.compare_digest(field, self._mac(b"server")):
            return self._fail(
                Reason.PROOF, "it does not prove this job's secret; PADDLE_SECRET differs between the two programs"
            )
        self._finish(_FROM_CLIENT, _FROM_SERVER)
        return b""

    def _mac(self, label: bytes) -> bytes:
        return self._digest(label, self._nonce, self._other)


def _pack(record: Record, side: int, field: bytes) -> bytes:
    return _RECORD.pack(MAGIC, VERSION, record, side, field, b"", b"", b"")
