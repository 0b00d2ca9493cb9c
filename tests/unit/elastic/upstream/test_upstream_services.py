"""Messages between programs: what Horovod's test/single/test_service.py does, without pickle and against strangers.

The names of modules are Horovod's (see conftest.py).
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from horovod.runner.common.util import secret
from horovod.runner.common.util.network import (
    MOST_MESSAGE_BYTES,
    AckResponse,
    AckStreamResponse,
    BasicClient,
    BasicService,
    NoValidAddressesFound,
    PingRequest,
    PingResponse,
    Wire,
)
from horovod.runner.util import network
from horovod.runner.util.streams import Pipe
from horovod.runner.util.threads import in_thread

from paddle_base.runtime.errors import ConfigError, DataError, UsageError
from paddle_base.runtime.network.front import FrontLimits
from paddle_cluster.elastic.process.objects import dump_object
from paddle_cluster.elastic.runner.common import network as network_module
from paddle_cluster.elastic.runner.common.wire import NONCE_BYTES, Session

LIMIT_S = 60.0
NAME = "a service of tests"


class WaitRequest:
    def __init__(self, number: int = 0) -> None:
        self.number = number


class TextRequest:
    pass


class UnknownRequest:
    pass


class HeldService(BasicService):
    """Answers a `WaitRequest` when a test lets it."""

    def __init__(self, key: bytes, nics: Any = None) -> None:
        self.begun, self.may_end, self.numbers = threading.Semaphore(0), threading.Event(), []
        super().__init__(NAME, key, nics)

    def _handle(self, req: Any, client_address: Any) -> Any:
        if isinstance(req, WaitRequest):
            self.numbers.append(req.number)
            self.begun.release()
            self.may_end.wait(LIMIT_S)
            return AckResponse()
        if isinstance(req, TextRequest):
            return AckStreamResponse(), io.StringIO("räksmörgås\n" * 20_000)
        return super()._handle(req, client_address)


class HeldClient(BasicClient):
    def __init__(self, service: BasicService, key: bytes, **options: Any) -> None:
        addresses = {"lo": [("127.0.0.1", service.get_port())]}
        super().__init__(NAME, addresses, key, verbose=2, probe_timeout=LIMIT_S, **options)

    def wait(self, number: int) -> Any:
        return self._send(WaitRequest(number))


class OneByte:
    """A socket from which one byte at a time arrives."""

    def __init__(self, stream: socket.socket) -> None:
        self.settimeout, self._recv = stream.settimeout, stream.recv

    def recv(self, length: int) -> bytes:
        return self._recv(min(length, 1))


@pytest.fixture
def key() -> bytes:
    return secret.make_secret_key()


@pytest.fixture
def service(key: bytes) -> Iterator[HeldService]:
    one = HeldService(key)
    yield one
    one.may_end.set()
    one.shutdown()


def test_requests_are_answered_at_the_same_time(service: HeldService, key: bytes) -> None:
    client = HeldClient(service, key, attempts=1)
    answers: list[object] = []
    threads = [in_thread(lambda number=number: answers.append(client.wait(number))) for number in range(5)]
    for _ in threads:
        assert service.begun.acquire(timeout=LIMIT_S)
    assert not answers
    service.may_end.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert [type(one) for one in answers] == [AckResponse] * 5
    assert sorted(service.numbers) == [0, 1, 2, 3, 4]


def test_a_shutdown_answers_what_has_arrived(key: bytes) -> None:
    service = HeldService(key)
    client = HeldClient(service, key, attempts=1)
    answers: list[object] = []
    waiting = in_thread(lambda: answers.append(client.wait(1)))
    assert service.begun.acquire(timeout=LIMIT_S)
    ending = in_thread(service.shutdown)
    service.may_end.set()
    ending.join(LIMIT_S)
    waiting.join(LIMIT_S)
    assert [type(one) for one in answers] == [AckResponse]
    with pytest.raises(OSError):
        client.wait(2)


def test_a_text_follows_an_answer(service: HeldService, key: bytes) -> None:
    found = io.StringIO()
    assert isinstance(HeldClient(service, key)._send(TextRequest(), found), AckStreamResponse)
    assert found.getvalue() == "räksmörgås\n" * 20_000


def test_a_text_comes_through_a_pipe_as_it_is_written(key: bytes) -> None:
    wire, pipe, written = Wire(key), Pipe(), io.BytesIO()
    writing = in_thread(lambda: (pipe.write("one\n"), pipe.write("two\n"), pipe.close()))
    wire.stream(pipe, written)
    writing.join(LIMIT_S)
    written.seek(0)
    found = io.StringIO()
    wire.copy_stream(written, found)
    assert found.getvalue() == "one\ntwo\n"


def test_a_client_takes_the_addresses_that_answer_with_the_name(service: HeldService, key: bytes) -> None:
    port = service.get_port()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = taken.getsockname()[:2]
    there = {"lo": [("127.0.0.1", port), dead], "other": [dead]}
    assert BasicClient(NAME, there, key, 0, attempts=1).addresses() == {"lo": [("127.0.0.1", port)]}
    assert service.addresses()["lo"] == [("127.0.0.1", port)]
    for name, wrong_key, match in ((NAME, secret.make_secret_key(), False), ("another", key, False)):
        with pytest.raises(NoValidAddressesFound, match="answers at none of its addresses"):
            BasicClient(name, {"lo": [("127.0.0.1", port)]}, wrong_key, 0, match, attempts=1)
    assert BasicClient(NAME, {"lo": [("127.0.0.1", port)]}, key, 2, match_intf=True).addresses()
    with pytest.raises(NoValidAddressesFound):
        BasicClient(NAME, {"eth9": [("127.0.0.1", port)]}, key, 2, match_intf=True)


def test_a_service_is_bound_to_interfaces_that_exist(key: bytes) -> None:
    with pytest.raises(NoValidAddressesFound, match="none of the interfaces absent has"):
        HeldService(key, ["absent"])
    service = HeldService(key, ["lo"])
    assert list(service.addresses()) == ["lo"]
    service.shutdown()


def test_a_request_that_a_service_does_not_know_is_logged(
    service: HeldService, key: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(EOFError):
        HeldClient(service, key, attempts=1)._send(UnknownRequest())
    assert f"{NAME} does not answer UnknownRequest" in capsys.readouterr().err
    assert HeldClient(service, key).addresses()


def test_messages_keep_class_and_attributes(key: bytes) -> None:
    wire = Wire(key, [__name__])
    sent: list[Any] = [PingResponse("name", "127.0.0.1"), WaitRequest(5), {"a": [1, 2.5, None]}, "text", b"bytes"]
    stream = io.BytesIO()
    for one in sent:
        wire.write(one, stream)
    request = PingRequest()
    request.values = np.arange(3, dtype=np.float32)  # type: ignore[attr-defined]
    wire.write(request, stream)
    stream.seek(0)
    found = [wire.read(stream) for _ in sent]
    assert [vars(one) for one in found[:2]] == [{"service_name": "name", "source_address": "127.0.0.1"}, {"number": 5}]
    assert isinstance(found[1], WaitRequest)
    assert found[2:] == sent[2:]
    assert wire.read(stream).values.tolist() == [0, 1, 2]
    with pytest.raises(EOFError):
        wire.read(stream)


def test_nothing_else_than_data_can_be_sent(key: bytes) -> None:
    class LocalRequest:
        pass

    wire = Wire(key, [__name__])
    for one in (LocalRequest(), WaitRequest(threading.Lock()), socket.socket, object(), b"-" * MOST_MESSAGE_BYTES):  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            wire.write(one, io.BytesIO())


def sign(key: bytes, body: bytes) -> io.BytesIO:
    return io.BytesIO(secret.compute_digest(key, body) + struct.pack("<I", len(body)) + body)


def test_a_message_of_another_key_or_with_pickle_makes_no_object(key: bytes) -> None:
    wire = Wire(key, [__name__])
    written = io.BytesIO()
    Wire(secret.make_secret_key()).write(PingRequest(), written)
    written.seek(0)
    with pytest.raises(ConfigError, match="Security error: the digest"):
        wire.read(written)
    for body in (pickle.dumps(PingRequest()), b"", b"\x02\x00\x00\x00[]", b"\xff\xff\xff\xffx"):
        with pytest.raises(DataError):
            wire.read(sign(key, body))
    with pytest.raises(DataError, match="at most"):
        wire.read(io.BytesIO(bytes(32) + struct.pack("<I", MOST_MESSAGE_BYTES + 1)))
    with pytest.raises(EOFError):
        wire.read(io.BytesIO(bytes(32) + struct.pack("<I", 5) + b"four"))


@pytest.mark.parametrize("name", ["os:environ", "subprocess:Popen", f"{__name__}:pickle", f"{__name__}:Absent", "x"])
def test_a_message_names_only_classes_of_its_modules(key: bytes, name: str) -> None:
    with pytest.raises(DataError, match="may not be sent here"):
        Wire(key, [__name__]).read(sign(key, dump_object([name, {}])))


@pytest.mark.parametrize("name", [np.arange(3), np.arange(1), 0, None, [], ["", ""]])
def test_a_message_whose_class_is_no_text_is_a_data_error(key: bytes, name: object) -> None:
    """An array instead of the name was a ValueError, which no caller of a service expects."""
    body = dump_object([name, 1])
    message = secret.compute_digest(key, body) + struct.pack("<I", len(body)) + body
    with pytest.raises(DataError, match="a class that may not be sent"):
        Wire(key).read(io.BytesIO(message))


def test_a_request_whose_bytes_keep_arriving_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte per millisecond kept a reader for as long as the announced length lasts: 70 minutes for 4 MiB."""
    clock = iter(range(10_000))
    monkeypatch.setattr(network_module.time, "monotonic", lambda: next(clock))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"x" * 100)
        reader = network_module._TimedReader(OneByte(ours), 10.0)  # type: ignore[arg-type]
        with pytest.raises(TimeoutError, match="of 100 bytes have arrived in time"):
            reader.read(100)


def test_strangers_neither_end_a_service_nor_hold_it(service: HeldService, key: bytes) -> None:
    service._front._limits = FrontLimits(head_s=0.1)
    for noise in (b"GET / HTTP/1.0\r\n\r\n", bytes(36), b"\xff" * 200, b""):
        with socket.create_connection(("127.0.0.1", service.get_port()), LIMIT_S) as stream:
            stream.sendall(noise)
            assert len(stream.recv(100)) == NONCE_BYTES
            assert stream.recv(1) == b""  # also the silent one is sent away
    assert HeldClient(service, key).addresses()


def test_a_recorded_request_is_not_answered_again(service: HeldService, key: bytes) -> None:
    """A command that was recorded could be run again by anybody who reached the port of a task service."""
    service.may_end.set()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        recorded: list[bytes] = []

        def pass_on() -> None:
            stream = listener.accept()[0]
            with stream, socket.create_connection(("127.0.0.1", service.get_port()), LIMIT_S) as inner:
                stream.sendall(inner.recv(NONCE_BYTES))
                recorded.append(stream.recv(1 << 16))
                inner.sendall(recorded[-1])
                stream.sendall(inner.recv(1 << 16))

        passing = in_thread(pass_on)
        client = HeldClient(service, key, attempts=1)
        client._send_one(listener.getsockname(), WaitRequest(7))
        passing.join(LIMIT_S)
    with socket.create_connection(("127.0.0.1", service.get_port()), LIMIT_S) as stream:
        assert len(stream.recv(100)) == NONCE_BYTES
        stream.sendall(recorded[0])
        assert stream.recv(1) == b""
    assert service.numbers == [7]


def test_messages_of_a_connection_are_bound_to_their_place_and_direction(key: bytes) -> None:
    def bound(own: bytes, other: bytes, nonces: bytes = b"n" * 64) -> Wire:
        return Wire(key).bind(Session(nonces, own, other))

    written = io.BytesIO()
    writer = bound(b"client", b"service")
    writer.write("first", written)
    first = written.getvalue()
    writer.write("second", written)
    second = written.getvalue()[len(first) :]
    assert bound(b"service", b"client").read(io.BytesIO(first)) == "first"
    for reader, data in (
        (bound(b"client", b"service"), first),  # it comes back to its sender
        (bound(b"service", b"client", b"m" * 64), first),  # of another connection
        (bound(b"service", b"client"), second),  # the one before it was taken away
    ):
        with pytest.raises(ConfigError, match="Security error"):
            reader.read(io.BytesIO(data))
    changed = first[:-1] + bytes([first[-1] ^ 1])
    with pytest.raises(DataError, match="not the one that its head names"):
        bound(b"service", b"client").read(io.BytesIO(changed))


def test_a_free_port_is_found_and_addresses_of_this_machine() -> None:
    server, port = network.find_port(lambda address: socket.create_server(address))
    with server:
        assert server.getsockname()[1] == port
    with pytest.raises(OSError, match="no server could be made"):
        network.find_port(lambda address: socket.create_server(("192.0.2.1", 0)))
    assert "127.0.0.1" in network.get_local_host_addresses()
    assert "lo" in network.get_local_intfs()
    assert network.get_local_intfs("absent") == set()
    assert network.get_driver_ip(["lo", "absent"]) == "127.0.0.1"
    with pytest.raises(RuntimeError, match="'absent' has no IPv4 address"):
        network.get_driver_ip(["absent"])


def test_hosts_that_are_not_this_machine_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"localhost": "127.0.0.1", "far": "192.0.2.1", "unknown": None}
    monkeypatch.setattr(network, "resolve_host_address", addresses.get)
    assert network.filter_local_addresses(["localhost", "far", "unknown"]) == ["far", "unknown"]
