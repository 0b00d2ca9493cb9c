"""`python -m chaos.strangers COMMAND...` becomes the command, beside a process that disturbs the ports of its programs.

The strangers have no secret. They look for the ports on which the descendants of the command listen, and visit each of
them all the time: whole, cut and wrong greetings that end with a reset, HTTP, random bytes, connections that say
nothing and such that send a byte a second. Some hundred connections are open at any time. etcd is left alone, since it
is not ours. At their end the strangers write to stderr how many connections they have made.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

GREETING = b"\xff" + b"\0" * 8 + b"\x7f" + b"\x03\x01" + b"CURVE".ljust(20, b"\0") + b"\0" + b"\0" * 31  # of ZMTP 3.1
HELLO = b"\x04\xc8" + b"\x05HELLO\x01\0" + b"\0" * 192
HTTP = b"PUT /scope/key HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
STRANGERS = 4  # processes
MOST_OPEN = 100  # connections of each that say nothing, or little, at a time
PAUSE_S = 0.01  # between two visits
LOOK_S = 0.5  # between two looks for ports
PR_SET_PDEATHSIG = 1
LISTEN = "0A"  # in /proc/net/tcp


def descendants(root: int) -> Iterator[int]:
    """Return the ids of all processes that a process has started, and that these have started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = list(children.get(root, []))
    for process in found:  # the loop appends to `found`
        found += children.get(process, [])
    yield from found


def ports_of(process: int) -> Iterator[tuple[str, int]]:
    """Return the addresses and ports on which a process listens; for all addresses, that of its pod."""
    place = Path(f"/proc/{process}")
    environ = dict(pair.split(b"=", 1) for pair in (place / "environ").read_bytes().split(b"\0") if b"=" in pair)
    own = environ.get(b"POD_IP", b"127.0.0.1").decode()
    sockets = set()
    for descriptor in (place / "fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(descriptor.readlink().name)
    for line in (place / "net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == LISTEN and f"socket:[{fields[9]}]" in sockets:
            address, port = fields[1].split(":")
            host = socket.inet_ntoa(struct.pack("=I", int(address, 16)))
            yield (own if host == "0.0.0.0" else host), int(port, 16)


def find_ports(root: int) -> list[tuple[str, int]]:
    """Return the ports of all programs below a process, except etcd's."""
    found = set()
    for process in descendants(root):
        with contextlib.suppress(OSError):
            if process != os.getpid() and not Path(f"/proc/{process}/exe").readlink().name.startswith("etcd"):
                found.update(ports_of(process))
    return sorted(found)


class Strangers:
    """The connections of the strangers to the ports of the programs below a process."""

    def __init__(self, root: int, seed: int) -> None:
        self._root, self._random = root, random.Random(seed)
        self._open: list[socket.socket] = []
        self.made = 0

    def run(self) -> None:
        """Visit the ports until this process gets SIGTERM."""
        ports: list[tuple[str, int]] = []
        looked = dripped = 0.0
        while True:
            now = time.monotonic()
            if now - looked > LOOK_S:
                ports, looked = find_ports(self._root), now
            if now - dripped > 1:
                dripped = now
                self._open = [each for each in self._open if self._drip(each)]
            if ports:
                with contextlib.suppress(OSError):
                    self._visit(self._random.choice(ports))
            time.sleep(PAUSE_S)

    def _visit(self, port: tuple[str, int]) -> None:
        connection = socket.create_connection(port, 0.3)
        self.made += 1
        kind = self._random.randrange(6)
        if kind == 0:  # it stays, and says nothing or a byte a second
            self._open.append(connection)
            while len(self._open) > MOST_OPEN:
                self._open.pop(0).close()
            return
        said = GREETING + HELLO
        words = (said, said[: self._random.randrange(len(said))], HTTP, self._random.randbytes(200), GREETING)[kind - 1]
        connection.sendall(words)
        if self._random.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        connection.close()

    def _drip(self, connection: socket.socket) -> bool:
        """Send a byte to one of two connections; return whether the connection is still open."""
        try:
            connection.setblocking(False)
            if self._random.random() < 0.5:
                connection.send(GREETING[:1])
            return connection.recv(1 << 16) != b""
        except BlockingIOError:
            return True
        except OSError:
            connection.close()
            return False


def main() -> None:
    """Start the strangers, and become the command."""
    root = os.getpid()
    for seed in range(STRANGERS):
        if os.fork() == 0:
            disturb(root, seed)
            os._exit(0)
    os.execv(sys.argv[1], sys.argv[1:])


def disturb(root: int, seed: int) -> None:
    """Visit the ports of the programs below a process until it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    strangers = Strangers(root, seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    if os.getppid() != root:
        return
    try:
        strangers.run()
    finally:
        os.write(2, f"chaos.strangers: {strangers.made} connections\n".encode())


if __name__ == "__main__":
    main()
