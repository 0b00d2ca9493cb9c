"""What nobody let in can do to a control server: nothing. A real server in a process of its own is attacked."""

import concurrent.futures
import contextlib
import json
import os
import random
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from control_programs import AddingMember, client_core
from waiting import until

from paddle_base.messages.client import ControlClient
from paddle_base.messages.client_core import Caller
from paddle_base.messages.keys import derive_keys

SECRET = "0123456789abcdef"
SOON = 20.0  # seconds, for what takes milliseconds on a quiet machine
GROWTH = 24 << 20  # bytes of memory that an attack may cost; 20 MB of empty frames cost libzmq alone 650 MB
UNAUTHENTICATED = 128  # connections that the gate holds
NULL = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
CURVE = NULL.replace(b"NULL\0", b"CURVE")
READY = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x06DEALER"


class Served:
    """A server's process, and what can be seen of it from outside."""

    def __init__(self, secret: str, files: int = 0) -> None:
        self.secret = secret
        command = [sys.executable, "-m", "control_programs", secret, str(files)]
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ, text=True
        )
        self.port: int = self._read()["port"]

    def _read(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def ask(self) -> Any:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._read()

    def memory(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))

    def connect(self, address: str = "127.0.0.1") -> socket.socket:
        stream = socket.socket()
        stream.settimeout(SOON)
        stream.bind((address, 0))
        with contextlib.suppress(ConnectionResetError):  # the server may be faster
            stream.connect(("127.0.0.1", self.port))
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # thousands leave no TIME_WAIT
        return stream

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        assert self.process.wait(SOON) == 0
        self.process.stdout.close()

    @contextlib.contextmanager
    def attacked(self) -> Iterator[None]:
        """Let a member work before, during and after what is done to the server; look at what it costs."""
        keys = derive_keys(self.secret)
        quiet = self.ask()
        total = quiet["total"]
        core = client_core(f"member-{total}")
        with ControlClient("127.0.0.1", self.port, Caller(core, AddingMember(), print), keys) as client:
            client.caller.submit("add", {"number": 1}, SOON).result()
            before = self.memory()
            yield
            client.caller.submit("add", {"number": 1}, SOON).result()
        assert self.memory() - before < GROWTH
        core = client_core(f"new-{total}")
        with ControlClient("127.0.0.1", self.port, Caller(core, AddingMember(), print), keys) as newcomer:
            assert newcomer.caller.submit("add", {"number": 1}, SOON).result() == {"total": total + 3}
        until(lambda: self.ask()["files"] <= quiet["files"], "the file descriptors that the attack took")
        facts = self.ask()
        assert [one for one in facts["heard"] if "lost" in one and "left" not in one] == []


BOTH = ["", SECRET], ["NULL", "CURVE"]  # with and without a secret


@pytest.fixture(scope="module", params=BOTH[0], ids=BOTH[1])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    served = Served(request.param)
    try:
        yield served
        served.close()
    finally:
        served.process.kill()
        served.process.wait()


def mostly(secret: str) -> pytest.MarkDecorator:
    """A flood that the gate stops before it looks at the secret is tried with the other one in the night."""
    secrets = [one if one == secret else pytest.param(one, marks=pytest.mark.nightly) for one in BOTH[0]]
    return pytest.mark.parametrize("served", secrets, ids=BOTH[1], indirect=True, scope="module")


def blast(stream: socket.socket, data: bytes) -> int:
    """Send until the server has had enough; return how much it has taken."""
    sent = 0
    with contextlib.suppress(OSError):
        while sent < len(data):
            sent += stream.send(data[sent : sent + (1 << 16)])
    return sent


def is_closed(stream: socket.socket) -> bool:
    """Wait until the server has closed a connection."""
    stream.settimeout(SOON)
    try:
        while stream.recv(4096):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def test_noise(served: Served) -> None:
    chance = random.Random(1)
    with served.attacked():
        for _ in range(200):
            with served.connect() as stream:
                blast(stream, chance.randbytes(4096))
                assert is_closed(stream)
    assert served.ask()["counts"]["greeting"] >= 190


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", b"\n"]
)
def test_other_protocols(served: Served, said: bytes) -> None:
    with served.attacked(), served.connect() as stream:
        stream.sendall(said)
        assert is_closed(stream)


@mostly("")
def test_a_port_scan(served: Served) -> None:
    with served.attacked():
        for _ in range(2000):
            served.connect().close()


def test_part_of_a_greeting_is_waited_for_a_bounded_time(served: Served) -> None:
    greeting = CURVE if served.secret else NULL
    with served.attacked(), contextlib.ExitStack() as stack:
        streams = [stack.enter_context(served.connect()) for _ in range(65)]
        for part, stream in enumerate(streams):
            stream.sendall(greeting[:part])
        assert all(is_closed(stream) for stream in streams)


def test_a_slow_loris(served: Served) -> None:
    with served.attacked(), served.connect() as stream:
        stream.settimeout(0.05)
        greeting = CURVE if served.secret else NULL
        with contextlib.suppress(ConnectionError):
            for byte in greeting + bytes(1000):
                stream.sendall(bytes([byte]))
                with contextlib.suppress(TimeoutError):
                    assert stream.recv(100)
    counts = served.ask()["counts"]
    assert counts.get("late") or counts.get("handshake")


@mostly(SECRET)
def test_two_thousand_connections_that_say_nothing(served: Served) -> None:
    with served.attacked(), contextlib.ExitStack() as stack:
        for number in range(2000):
            stream = stack.enter_context(served.connect())
            with contextlib.suppress(OSError):  # it may be closed already
                stream.send((CURVE if served.secret else NULL)[: number % 64])
        assert served.ask()["files"] < 3 * UNAUTHENTICATED + 64
    assert served.ask()["counts"]["crowd"] > 500


@mostly("")
def test_one_mebibyte_of_each_of_three_hundred_strangers(served: Served) -> None:
    with served.attacked(), contextlib.ExitStack() as stack:
        for _ in range(300):
            stream = stack.enter_context(served.connect())
            greeting = CURVE if served.secret else NULL
            blast(stream, greeting + b"\x06" + (1 << 20).to_bytes(8, "big") + b"\x05READY" + bytes(1 << 20))
    assert served.ask()["counts"]["bytes"] >= 250


@pytest.mark.parametrize("prefix", [b"", READY], ids=["before the handshake", "after it"])
@pytest.mark.parametrize("frame", [b"\x00\x00", b"\x01\x00", b"\x04\x00"], ids=["messages", "frames", "commands"])
def test_20_mb_of_empty_frames(served: Served, prefix: bytes, frame: bytes) -> None:
    with served.attacked(), served.connect() as stream:
        greeting = CURVE if served.secret else NULL
        stream.sendall(greeting[:10])
        assert stream.recv(10)
        stream.sendall(greeting[10:])
        blast(stream, prefix + frame * 10_000_000)
        assert is_closed(stream) or not served.secret


HELLO = b"\x04\xc8\x05HELLO\x01\0" + bytes(192)


def visit(served: Served, seed: int, visits: int = 100) -> None:
    """Begin handshakes, and reset the connections at random moments."""
    chance = random.Random(seed)
    greeting = CURVE if served.secret else NULL
    for _ in range(visits):
        with contextlib.suppress(OSError), served.connect() as stream:
            kind = chance.randrange(4)
            if kind == 0:
                stream.sendall(greeting)
                stream.recv(64)
                stream.sendall(HELLO)
            else:
                stream.sendall(
                    (greeting + HELLO)[: (300, chance.randrange(1, 64), chance.randrange(64, 264))[kind - 1]]
                )
            select.select([stream], [], [], chance.random() * 0.02)


@pytest.mark.parametrize("files", [0, 256], ids=["many descriptors", "few descriptors"])
@pytest.mark.parametrize("secret", BOTH[0], ids=BOTH[1])
def test_resets_in_the_middle_of_handshakes(secret: str, files: int) -> None:
    """A reset after a HELLO of zeros ended the gate of a master for good; with 256 descriptors libzmq aborted it."""
    served = Served(secret, files)
    try:
        with served.attacked(), concurrent.futures.ThreadPoolExecutor(8) as strangers:
            list(strangers.map(visit, [served] * 8, range(8)))
        served.close()
    finally:
        served.process.kill()
        served.process.wait()


def test_a_forged_curve_handshake() -> None:
    served = Served(SECRET)
    try:
        with served.attacked():
            for _ in range(50):
                with served.connect() as stream:
                    blast(stream, CURVE + b"\x04\xc8\x05HELLO\x01\x00" + random.Random(1).randbytes(192))
                    assert is_closed(stream)
        served.close()
    finally:
        served.process.kill()
        served.process.wait()


def test_an_address_that_is_not_admitted_is_not_read(served: Served) -> None:
    with served.attacked():
        for _ in range(100):
            with served.connect("127.0.0.9") as stream:
                blast(stream, NULL + READY)
                assert is_closed(stream)
    assert served.ask()["counts"]["address"] >= 100


def test_a_server_with_few_file_descriptors_outlives_a_flood() -> None:
    """The member that is connected stays: of the 24 connections that fit, six may be unauthenticated."""
    served = Served("", files=96)
    try:
        with served.attacked(), contextlib.ExitStack() as stack:
            for _ in range(300):
                stream = stack.enter_context(served.connect())
                with contextlib.suppress(OSError):
                    stream.send(NULL[:20])
        facts = served.ask()
        assert facts["counts"]["crowd"] + facts["counts"].get("descriptors", 0) >= 200 and facts["files"] < 96 - 24
        served.close()
    finally:
        served.process.kill()
        served.process.wait()
