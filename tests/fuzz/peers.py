"""Hostile peers of a server that runs: each function connects, does harm for a moment, and leaves.

They speak TCP as it comes, and know of the protocol what one knows who reads its source or the network, but no secret.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from random import Random

from fuzz import frames
from pserver import protocol
from pserver.membership import DATA, HEARTBEAT
from pserver.protocol import Message, Op

DEADLINE = 20.0
Address = tuple[str, int]

OTHER_PROTOCOLS = [
    b"",
    b"\n",
    b"GET / HTTP/1.1\r\nHost: pserver\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),  # TLS
    b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL" + bytes(48) + b"\x04\x19\x05READY",  # ZMTP
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"PDLP",
    b"PDLP\x01\0",
    b"PDLP\xff\xff" + bytes(58),
]


def header(op: int = Op.PUSH, note: int = 0, payload: int = 0, trainer: int = 0, sequence: int = 1) -> bytes:
    """A header that claims lengths which need not be true."""
    whole = bytearray(bytes(protocol.encode(Message(Op.PUSH, bytes(8), trainer, sequence))[0]))
    whole[6] = op
    whole[20:24] = note.to_bytes(4, "little")
    whole[40:48] = payload.to_bytes(8, "little")
    return bytes(whole)


def message(one: Message, key: bytes = b"") -> bytes:
    """The bytes of a message."""
    return b"".join(bytes(frame) for frame in protocol.encode(one, key))


def hail(name: bytes) -> bytes:
    """The first message of a connection, which names it."""
    return message(Message(Op.CONNECT, bytes(8), -1, 0, note={"connection": name.hex()}))


def listen(stream: socket.socket) -> bytes:
    """What the server says until it closes, or has nothing more to say for a moment."""
    stream.settimeout(0.05)
    heard = b""
    with contextlib.suppress(OSError):
        while chunk := stream.recv(1 << 16):
            heard += chunk
    return heard


def say(server: Address, *parts: bytes, hears: bool = True) -> bytes:
    """Connect, send, and return what the server answers."""
    with socket.create_connection(server, DEADLINE) as stream, contextlib.suppress(OSError):
        stream.settimeout(DEADLINE)
        for part in parts:
            stream.sendall(part)
        if hears:
            return listen(stream)
    return b""


# ----- What strangers do -----


def speak_other_protocols(server: Address, random: Random) -> None:
    for text in OTHER_PROTOCOLS:
        say(server, text)
        say(server, text + random.randbytes(random.randrange(2000)), hears=False)
        say(server, hail(random.randbytes(17)) + text + random.randbytes(100), hears=False)


def claim_sizes(server: Address, random: Random) -> None:
    """Lengths up to the largest that the header can hold, with more than nothing behind them."""
    for note, payload in [
        (2**32 - 1, 0),
        (0, 2**64 - 1),
        (0, 2**63),
        (2**24, 2**22),
        (65 << 10, 0),
        (0, 1),
        (2**31, 1),
    ]:
        for op in (Op.HELLO, Op.PUSH, Op.INITIALISE, Op.CONNECT):
            say(server, hail(random.randbytes(17)), header(op, note, payload) + bytes(1 << 16), hears=False)


def send_fuzz(server: Address, random: Random, seeds: list[list[bytes]]) -> None:
    """Made and changed messages, some to a connection until the server has enough of it."""
    for _ in range(100):
        parts = [b"".join(frames.frames(random, seeds)) for _ in range(random.randrange(1, 20))]
        say(server, hail(random.randbytes(random.choice([1, 17, 64]))), *parts, hears=random.random() < 0.1)


def open_many(server: Address, random: Random, count: int = 600) -> None:
    """Connections that say nothing, or the beginning of something; more of them than the server keeps."""
    with contextlib.ExitStack() as stack:
        for number in range(count):
            with contextlib.suppress(OSError):
                stream = stack.enter_context(socket.create_connection(server, DEADLINE))
                stream.send([b"", b"P", header(note=1000), hail(random.randbytes(17))][number % 4])


def name_oneself(server: Address, random: Random) -> None:
    """Names that are none, that are another's, that are the server's own for strangers, and one after the other."""
    for name in ("", "zz", "00" * 5000, "3f", "3f" + "00" * 7 + "01", 7, None, ["00"], "é", "\n"):
        say(server, message(Message(Op.CONNECT, bytes(8), -1, 0, note={"connection": name})), hears=False)
    say(server, hail(b"a" * 17), hail(b"b" * 17))
    say(server, *(hail(random.randbytes(17)) for _ in range(50)))


def send_bombs(server: Address, random: Random) -> None:
    """JSON that is small and parses to much, or deep."""
    for text in (
        b"[" * 60_000,
        b'{"a":' * 12_000,
        b'{"job":[' + b"[]," * 20_000 + b"0]}",
        b'{"nonce":' + b"9" * 60_000 + b"}",
    ):
        head = bytearray(header(Op.HELLO, len(text)))
        say(server, hail(random.randbytes(17)), bytes(head) + text, hears=False)


def initialise(server: Address, random: Random) -> None:
    """Parameters of gigantic sizes, from who has not joined."""
    setup = {
        "fields": ["name", "size"],
        "parameters": [["w", 2**62]] * 100,
        "optimization": {"learning_method": "adam"},
    }
    for op in (Op.INITIALISE, Op.RESTORE, Op.CAPTURE, Op.FETCH, Op.GOODBYE, Op.ABORT):
        for trainer in (0, 1):
            say(
                server,
                hail(random.randbytes(17)),
                message(Message(op, bytes(8), trainer, 3, note=setup)),
                hears=trainer == 0,
            )


def never_read(server: Address, random: Random, count: int = 20_000) -> None:
    """Ask for ever, and leave what is answered to the server."""
    with socket.create_connection(server, DEADLINE) as stream, contextlib.suppress(OSError):
        stream.settimeout(0.5)
        for _ in range(count // 100):
            stream.sendall(message(Message(Op.PING, bytes(8), 0, 1)) * 100)


def join_without_secret(server: Address, random: Random, job: str, attempt: str) -> None:
    """Hellos with a guessed secret, and with words for the log."""
    session = protocol.session_of(job, attempt)
    for number in range(100):
        name = random.randbytes(16) + DATA
        words = job if number % 2 else f"\n\x1b[2JI1120 10:00:00.000000     1 forged.cpp:{number}] " + "x" * 9000
        note = protocol.describe_hello(words, attempt, "guess", "n", number % 3, name, role="join", num_trainers=2)
        say(server, hail(name), message(Message(Op.HELLO, session, number % 3, 1, note=note)), hears=number % 20 == 0)


# ----- What those do who read the network -----


def steal_names(server: Address, random: Random, names: Iterable[bytes], session: bytes) -> None:
    """Take the connections of trainers by their names, and push, abort and say goodbye for them."""
    for name in names:
        number = random.randrange(2)
        parts = [
            message(
                Message(op, session, number, sequence, note={"reason": "\n"}, payload=[bytes(4000)], samples=1), key
            )
            for op in (Op.PUSH, Op.GOODBYE, Op.ABORT, Op.PING, Op.FINISH_PASS)
            for sequence in range(1, 12)
            for key in (b"", b"guess")
        ]
        say(server, hail(name), *parts)


def replay(server: Address, random: Random, recorded: list[bytes]) -> None:
    """Send what trainers sent over a connection again: whole, a part of it, and under another name."""
    for whole in recorded:
        say(server, whole, hears=False)
        say(server, hail(random.randbytes(17)), whole)
        say(server, whole[: random.randrange(1, len(whole) + 1)], hears=False)


class Tap:
    """A relay to a server that keeps what the callers send, connection by connection; as a switch could.

    It belongs to a test and not to the attack: an honest trainer is told its address.
    """

    def __init__(self, server: Address) -> None:
        self.server = server
        self.sent: list[bytearray] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listener.getsockname()
        self._streams: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def names(self) -> list[bytes]:
        """The names of the connections that were made, as their first messages gave them."""
        found = []
        for sent in map(bytes, self.sent):
            with contextlib.suppress(protocol.ProtocolError, ValueError):
                length = int.from_bytes(sent[20:24], "little")
                head = [sent[: protocol.HEADER_BYTES], sent[protocol.HEADER_BYTES :][:length]]
                found.append(bytes.fromhex(protocol.decode(head).note["connection"]))
        assert {name[-1:] for name in found} == {DATA, HEARTBEAT}
        return found

    def cut(self) -> None:
        """Cut all connections; others may be made."""
        for stream in self._streams:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut all connections and wait until they are closed."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(DEADLINE)

    def _start(self, task: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=task, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        with self._listener, contextlib.suppress(OSError):
            while True:
                self._start(self._relay, self._listener.accept()[0])

    def _relay(self, caller: socket.socket) -> None:
        kept = bytearray()
        self.sent.append(kept)
        with caller, contextlib.suppress(OSError), socket.create_connection(self.server, DEADLINE) as server:
            server.settimeout(None)
            self._streams += [caller, server]
            back = self._start(self._copy, server, caller, None)
            self._copy(caller, server, kept)
            back.join()

    def _copy(self, source: socket.socket, target: socket.socket, kept: bytearray | None) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(1 << 16):
                if kept is not None:
                    kept += chunk
                target.sendall(chunk)
        for stream in (source, target):  # a connection that ends on one side ends on both
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
