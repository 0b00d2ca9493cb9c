"""Hostile peers of a running server: each function connects, attacks for a moment, and leaves.

The peers use plain TCP. They know the protocol's source and can read the network, but they do not know the secret.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from random import Random

from fuzz import frames
from pserver.wire import protocol
from pserver.wire.authentication import DATA, HEARTBEAT, RECORD_BYTES, ClientHandshake
from pserver.wire.protocol import Message, Op

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
    b"PDLP\x03\0\x0c\0" + bytes(56) + b'{"connection":"00"}',  # version 3
    b"PDLP\x06\0\x0c",
    b"PDLP\x06\0\x0c\0" + bytes(4096),
    b"PDLP\xff\xff" + bytes(58),
]


def header(op: int = Op.PUSH, note: int = 0, payload: int = 0, trainer: int = 0, sequence: int = 1) -> bytes:
    """A header whose lengths may be wrong."""
    whole = bytearray(bytes(protocol.encode(Message(Op.PUSH, bytes(8), trainer, sequence))[0]))
    whole[6] = op
    whole[20:24] = note.to_bytes(4, "little")
    whole[40:48] = payload.to_bytes(8, "little")
    return bytes(whole)


def message(one: Message, key: bytes = b"") -> bytes:
    """The bytes of a message."""
    return b"".join(bytes(frame) for frame in protocol.encode(one, key))


def hail(name: bytes, guess: str = "guess") -> bytes:
    """The greeting and the proof of a peer that does not wait for the challenge, or does not know the secret."""
    caller = ClientHandshake(guess, (name + bytes(17))[:17], b"n" * 32)
    challenge = ClientHandshake("", bytes(17), bytes(32)).greeting
    return caller.greeting + caller.feed(challenge[:7] + b"\x01" + challenge[8:])


@contextlib.contextmanager
def enter(server: Address, name: bytes, secret: str = "") -> Iterator[tuple[socket.socket, bytes]]:
    """Return a connection after a valid handshake, and the key of its messages."""
    with socket.create_connection(server, DEADLINE) as stream:
        stream.settimeout(DEADLINE)
        caller = ClientHandshake(secret, name, os.urandom(32))
        stream.sendall(caller.greeting)
        while caller.wanted:
            come = stream.recv(caller.wanted)
            if not come:
                break
            stream.sendall(caller.feed(come))
        yield stream, caller.keys.sending


def listen(stream: socket.socket) -> bytes:
    """Return the bytes from the server until it closes the connection or pauses."""
    stream.settimeout(0.05)
    heard = b""
    with contextlib.suppress(OSError):
        while chunk := stream.recv(1 << 16):
            heard += chunk
    return heard


def say(server: Address, *parts: bytes, hears: bool = True) -> bytes:
    """Connect, send, and return the server's answer."""
    with socket.create_connection(server, DEADLINE) as stream, contextlib.suppress(OSError):
        stream.settimeout(DEADLINE)
        for part in parts:
            stream.sendall(part)
        if hears:
            return listen(stream)
    return b""


# ----- Attacks of unauthenticated peers -----


def speak_other_protocols(server: Address, random: Random) -> None:
    for text in OTHER_PROTOCOLS:
        say(server, text)
        say(server, text + random.randbytes(random.randrange(2000)), hears=False)
        say(server, hail(random.randbytes(17)) + text + random.randbytes(100), hears=False)


def claim_sizes(server: Address, random: Random) -> None:
    """Send headers with lengths up to the maximum of the field, and a few bytes after them."""
    for note, payload in [
        (2**32 - 1, 0),
        (0, 2**64 - 1),
        (0, 2**63),
        (2**24, 2**22),
        (65 << 10, 0),
        (0, 1),
        (2**31, 1),
    ]:
        for op in (Op.HELLO, Op.PUSH, Op.INITIALISE):
            say(server, hail(random.randbytes(17)), header(op, note, payload) + bytes(1 << 16), hears=False)


def send_fuzz(server: Address, random: Random, seeds: list[list[bytes]]) -> None:
    """Send made and changed messages over a connection until the server closes it."""
    for _ in range(100):
        parts = [b"".join(frames.frames(random, seeds)) for _ in range(random.randrange(1, 20))]
        say(server, hail(random.randbytes(random.choice([1, 17, 64]))), *parts, hears=random.random() < 0.1)


def open_many(server: Address, random: Random, count: int = 600) -> None:
    """Open more connections than the server keeps; they send nothing, or an incomplete message."""
    with contextlib.ExitStack() as stack:
        for number in range(count):
            with contextlib.suppress(OSError):
                stream = stack.enter_context(socket.create_connection(server, DEADLINE))
                stream.send([b"", b"P", hail(b"")[:RECORD_BYTES], hail(random.randbytes(17))][number % 4])


def break_handshakes(server: Address, random: Random) -> None:
    """Send handshakes that are cut, repeated, in another order, with additional bytes, or with random fields."""
    for _ in range(60):
        whole = hail(
            random.randbytes(16) + random.choice([b"d", b"h", b"p", b"x", b"\0"]), random.choice(["", "guess"])
        )
        greeting, proof = whole[:RECORD_BYTES], whole[RECORD_BYTES:]
        bent = bytearray(whole)
        for _ in range(random.randrange(1, 4)):
            bent[random.randrange(len(bent))] ^= 1 << random.randrange(8)
        text = random.choice(
            [
                whole[: random.randrange(len(whole))],
                greeting * random.randrange(2, 2000),
                proof + greeting,
                proof * 3,
                whole + random.randbytes(random.randrange(1 << 18)),
                greeting + random.randbytes(RECORD_BYTES),
                bytes(bent),
            ]
        )
        say(server, text, hears=random.random() < 0.2)


def say_slowly(server: Address, random: Random) -> None:
    """Send a message byte by byte, but never the last byte."""
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(socket.create_connection(server, DEADLINE)) for _ in range(50)]
        for byte in hail(random.randbytes(17), "")[:-1]:
            for stream in streams:
                with contextlib.suppress(OSError):
                    stream.send(bytes([byte]))


def send_bombs(server: Address, random: Random) -> None:
    """Send small JSON that becomes large or deeply nested objects."""
    for text in (
        b"[" * 60_000,
        b'{"a":' * 12_000,
        b'{"job":[' + b"[]," * 20_000 + b"0]}",
        b'{"nonce":' + b"9" * 60_000 + b"}",
    ):
        head = bytearray(header(Op.HELLO, len(text)))
        say(server, hail(random.randbytes(17)), bytes(head) + text, hears=False)


def initialise(server: Address, random: Random) -> None:
    """Initialise parameters of gigantic sizes without having joined."""
    setup = {
        "fields": ["name", "size"],
        "parameters": [["w", 2**62]] * 100,
        "optimization": {"learning_method": "adam"},
    }
    for op in (Op.INITIALISE, Op.RESTORE, Op.CHECKPOINT, Op.FETCH, Op.GOODBYE, Op.ABORT):
        for trainer in (0, 1):
            say(
                server,
                hail(random.randbytes(17)),
                message(Message(op, bytes(8), trainer, 3, note=setup)),
                hears=trainer == 0,
            )


def never_read(server: Address, random: Random, count: int = 20_000) -> None:
    """Send requests without end, and never read the answers."""
    with socket.create_connection(server, DEADLINE) as stream, contextlib.suppress(OSError):
        stream.settimeout(0.5)
        for _ in range(count // 100):
            stream.sendall(message(Message(Op.PING, bytes(8), 0, 1)) * 100)


def join_without_secret(server: Address, random: Random, job: str, attempt: str) -> None:
    """Send hellos after a proof by a guessed secret, with texts that could forge lines of the log."""
    session = protocol.session_of(job, attempt)
    for number in range(30):
        name = random.randbytes(16) + DATA
        words = job if number % 2 else f"\n\x1b[2JI1120 10:00:00.000000     1 forged.cpp:{number}] " + "x" * 9000
        with contextlib.suppress(OSError), enter(server, name, "guess") as (stream, key):
            assert key == b""
            note = {"job": words, "attempt": attempt, "num_trainers": 2}
            stream.sendall(message(Message(Op.HELLO, session, number % 3, 1, note=note), b"key"))
            if number % 10 == 0:
                listen(stream)


# ----- Attacks of peers that can read the network -----


def steal_names(server: Address, random: Random, names: Iterable[bytes], session: bytes) -> None:
    """Use the names of trainers' connections to push, abort and say goodbye in their place."""
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
        with contextlib.suppress(OSError), enter(server, name, "guess") as (stream, _):
            stream.sendall(b"".join(parts))


def replay(server: Address, random: Random, recorded: list[bytes]) -> None:
    """Replay the messages of trainers: all of them, a part of them, and under another name."""
    for whole in recorded:
        say(server, whole, hears=False)
        say(server, hail(random.randbytes(17)), whole)
        say(server, whole[: random.randrange(1, len(whole) + 1)], hears=False)


class Tap:
    """A relay to a server that records the messages of each connection, as a network switch could.

    It is a part of the test and not of the attack: an honest trainer connects to its address.
    """

    def __init__(self, server: Address) -> None:
        self.server = server
        self.sent: list[bytearray] = []
        self.is_deaf = False  # whether what the server sends is lost
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listener.getsockname()
        self._streams: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def names(self) -> list[bytes]:
        """The names of the connections, from their proofs."""
        found = [bytes(sent[RECORD_BYTES + 40 :][:17]) for sent in self.sent if len(sent) >= 2 * RECORD_BYTES]
        assert {name[-1:] for name in found} == {DATA, HEARTBEAT}
        return found

    def cut(self) -> None:
        """Cut all connections; new connections are possible."""
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
                if kept is not None or not self.is_deaf:
                    target.sendall(chunk)
        for stream in (source, target):  # a connection that ends on one side is closed on both sides
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
