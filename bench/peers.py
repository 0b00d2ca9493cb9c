"""Servers and trainers that only exchange as many bytes as parameter servers do, by pyzmq or by plain sockets.

usage: bench/peers.py zmq|sockets server|trainer NUMBER COUNT PORT BYTES

bench/pserver.py compares parameter servers with these programs. COUNT servers and COUNT trainers run on the loopback
interface. In a round every trainer sends BYTES bytes to each server. When a server has the bytes of all trainers, it
sends BYTES bytes to each trainer; it takes no optimiser step. Both sides use the fastest way: they send whole messages
without a copy, and receive them into reused memory if the library allows it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time
from collections.abc import Callable

import numpy as np
from interleave import serve_rounds

CONNECT_S = 30.0


class Pushed:
    """The bytes that a trainer sends to each server, and the memory for the bytes from each server."""

    def __init__(self, count: int, size: int) -> None:
        gradient, values = np.ones(count * size, np.uint8), np.zeros(count * size, np.uint8)
        self.gradients = [gradient[server * size : (server + 1) * size].data for server in range(count)]
        self.values = [values[server * size : (server + 1) * size].data for server in range(count)]


# ----- pyzmq -----


def serve_zmq(number: int, count: int, port: int, size: int) -> None:
    """Answer rounds until a trainer leaves."""
    import zmq

    router = zmq.Context().socket(zmq.ROUTER)
    router.sndhwm = router.rcvhwm = 0
    router.bind(f"tcp://127.0.0.1:{port + number}")
    values = memoryview(bytearray(size))
    while True:
        senders = []
        for _ in range(count):
            sender, gradient = router.recv_multipart(copy=False)
            if len(gradient) < size:
                return
            senders.append(sender.bytes)
        for sender in senders:
            router.send_multipart([sender, values], copy=False)


def train_zmq(number: int, count: int, port: int, size: int) -> None:
    """Run rounds when the benchmark asks for them."""
    import zmq

    context = zmq.Context()

    dealers = [context.socket(zmq.DEALER) for _ in range(count)]
    poller = zmq.Poller()
    for server, dealer in enumerate(dealers):
        dealer.sndhwm = dealer.rcvhwm = 0
        dealer.connect(f"tcp://127.0.0.1:{port + server}")
        poller.register(dealer, zmq.POLLIN)
    memory = Pushed(count, size)
    target = dict(zip(dealers, memory.values, strict=True))

    def one_round() -> None:
        for turn in range(count):
            server = (number + turn) % count
            dealers[server].send(memory.gradients[server], copy=False)
        left = count
        while left:
            for dealer, _ in poller.poll():
                target[dealer][:] = dealer.recv(copy=False).buffer
                left -= 1

    serve_rounds(one_round)
    for dealer in dealers:
        dealer.send(b"")
    context.destroy(linger=2000)


# ----- Plain sockets -----


def serve_sockets(number: int, count: int, port: int, size: int) -> None:
    """Answer rounds until a trainer leaves."""
    with socket.create_server(("127.0.0.1", port + number)) as listener:
        streams = [listener.accept()[0] for _ in range(count)]
    values = memoryview(bytearray(size))
    gradients = [memoryview(bytearray(size)) for _ in streams]
    poller = select.epoll()
    of_file = {stream.fileno(): index for index, stream in enumerate(streams)}
    for stream in streams:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setblocking(False)
        poller.register(stream, select.EPOLLIN)
    while True:
        read, left = [0] * count, count
        while left:
            for file, _ in poller.poll():
                index = of_file[file]
                more = streams[index].recv_into(gradients[index][read[index] :])
                if not more:
                    return
                read[index] += more
                left -= read[index] == size
        send_all(streams, [values] * count, poller)


def send_all(streams: list[socket.socket], data: list[memoryview], poller: select.epoll) -> None:
    """Send data to all connections at the same time."""
    left = {stream.fileno(): (stream, part) for stream, part in zip(streams, data, strict=True)}
    waiting = list(left)
    while left:
        for file in waiting:
            stream, part = left[file]
            with contextlib.suppress(BlockingIOError):
                part = part[stream.send(part) :]
            left[file] = stream, part
            poller.modify(file, select.EPOLLOUT if part else select.EPOLLIN)
            if not part:
                del left[file]
        waiting = [file for file, _ in poller.poll() if file in left] if left else []


def train_sockets(number: int, count: int, port: int, size: int) -> None:
    """Run rounds when the benchmark asks for them."""
    streams = [connect(port + server) for server in range(count)]
    memory = Pushed(count, size)
    poller = select.epoll()
    of_file = {stream.fileno(): server for server, stream in enumerate(streams)}
    for stream in streams:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setblocking(False)
        poller.register(stream, 0)

    def one_round() -> None:
        sent, read, left = [0] * count, [0] * count, count
        for file in of_file:
            poller.modify(file, select.EPOLLIN | select.EPOLLOUT)
        while left:
            for file, events in poller.poll():
                server = of_file[file]
                if events & select.EPOLLIN and read[server] < size:
                    read[server] += streams[server].recv_into(memory.values[server][read[server] :])
                    left -= read[server] == size
                if events & select.EPOLLOUT:
                    sent[server] += streams[server].send(memory.gradients[server][sent[server] :])
                    if sent[server] == size:
                        poller.modify(file, select.EPOLLIN)

    serve_rounds(one_round)


def connect(port: int) -> socket.socket:
    """Connect to a server; retry if the server does not listen yet."""
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


ROLES: dict[tuple[str, str], Callable[[int, int, int, int], None]] = {
    ("zmq", "server"): serve_zmq,
    ("zmq", "trainer"): train_zmq,
    ("sockets", "server"): serve_sockets,
    ("sockets", "trainer"): train_sockets,
}

if __name__ == "__main__":
    ROLES[sys.argv[1], sys.argv[2]](*map(int, sys.argv[3:]))
