"""The rendezvous server and its client: verbs and status codes of ../shared/spec/elastic.md, 1.5."""

from __future__ import annotations

import http.client
import os
import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from paddle_base.runtime.errors import BugError, ConfigError, PeerUnreachableError
from paddle_base.runtime.network import bodies, front
from paddle_base.runtime.network.front import FrontLimits
from paddle_cluster.elastic.hosts import INVALID_SLOT_INFO, SlotInfo, get_host_assignments, parse_hosts
from paddle_cluster.elastic.http_server import KVStoreServer, RendezvousServer
from paddle_cluster.elastic.keyvalue.exchange import Exchanged
from paddle_cluster.elastic.keyvalue.store import FullStoreError, KeyValueStore
from paddle_cluster.elastic.rendezvous import create_rendezvous_handler
from paddle_cluster.elastic.rendezvous_client import RendezvousClient

SECRET = "a secret"
WAIT_S = 60.0


class FakeDriver:
    """Answers what a test has put in, and keeps what workers have said."""

    def __init__(self) -> None:
        self.is_open = True
        self.said: list[tuple[object, ...]] = []
        self.ranks: dict[str, tuple[SlotInfo, int] | None] = {}
        self.asked = threading.Event()
        self.decided = threading.Event()

    def query_rank(self, *question: object) -> tuple[SlotInfo, int] | None:
        self.said.append(("rank", *question[:4]))
        self.asked.set()
        if str(question[2]) == "broken":
            raise RuntimeError("a bug")
        return self.ranks[str(question[2])] if self.decided.wait(WAIT_S) else None

    def register_worker_addresses(self, *said: object) -> None:
        self.said.append(("addresses", *said))

    def claim_place(self, *said: object) -> str:
        self.said.append(("claim", *said))
        return "7.70"

    def is_newcomer(self, *said: object) -> bool:
        return said[-1] == "new"

    def record_leaving(self, *said: object) -> bool:
        self.said.append(("leaving", *said))
        return True

    def record_heartbeat(self, *said: object) -> None:
        self.said.append(("heartbeat", *said))

    def record_joined(self, *said: object) -> None:
        self.said.append(("joined", *said))

    def record_done(self, *said: object) -> None:
        self.said.append(("done", *said))


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def server(driver: FakeDriver) -> Iterator[tuple[RendezvousServer, int]]:
    one = RendezvousServer(secret=SECRET)
    port = one.start(create_rendezvous_handler(driver), address="127.0.0.1")
    yield one, port
    driver.decided.set()
    one.stop()


@pytest.fixture
def client(server: tuple[RendezvousServer, int]) -> RendezvousClient:
    return RendezvousClient("127.0.0.1", server[1], SECRET, WAIT_S)


def ask(port: int, method: str, path: str, body: bytes | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def send(port: int, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as stream, stream.makefile("rb") as answer:
        stream.sendall(text)
        return answer.read()


def test_values_are_stored_read_and_deleted(client: RendezvousClient) -> None:
    assert client.get("global", "0") is None
    client.put("global", "0", b"\x00\xff value")
    assert client.get("global", "0") == b"\x00\xff value"
    client.delete("global", "0")
    client.delete("global", "0")
    assert client.get("global", "0") is None


def test_a_large_first_value_is_stored(server: tuple[RendezvousServer, int]) -> None:
    """The server refused the body unread, for the client did not know the epoch; so it failed again and again."""
    for size in (100 << 10, 12 << 20):
        client = RendezvousClient("127.0.0.1", server[1], SECRET, WAIT_S)
        client.put("a", "b", bytes(size))
        assert client.get("a", "b") == bytes(size)


def test_a_large_value_with_another_secret_is_refused_with_the_reason(server: tuple[RendezvousServer, int]) -> None:
    with pytest.raises(ConfigError, match="refuses the secret"):
        RendezvousClient("127.0.0.1", server[1], "another", WAIT_S).put("a", "b", bytes(4 << 20))


def test_connections_of_a_server_that_has_ended_are_replaced_at_once(driver: FakeDriver) -> None:
    """Two of them used up the attempts, and the epoch of the new server then was a refusal for good."""
    first = RendezvousServer(secret=SECRET)
    port = first.start(create_rendezvous_handler(driver), address="127.0.0.1")
    client = RendezvousClient("127.0.0.1", port, SECRET, WAIT_S)
    readers = [threading.Thread(target=client.get, args=("a", "b", 0.2)) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(WAIT_S)
    assert len(client._exchange._kept) >= 2
    first.stop()
    second = RendezvousServer(secret=SECRET)
    second.start(create_rendezvous_handler(driver), port, "127.0.0.1")
    try:
        client.put("a", "b", b"value")
        assert client.get("a", "b") == b"value"
    finally:
        client.close()
        second.stop()


def test_a_forked_client_has_numbers_of_its_own(client: RendezvousClient, monkeypatch: pytest.MonkeyPatch) -> None:
    client.put("a", "b", b"1")
    sender = client._exchange._signer
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with client._exchange._lock:  # another thread of the parent has held it
        client.put("a", "b", b"2")
    assert client._exchange._signer is not sender


def test_a_reader_waits_for_a_value(client: RendezvousClient) -> None:
    found: list[bytes | None] = []
    reader = threading.Thread(target=lambda: found.append(client.get("group_1", "3", wait=WAIT_S)))
    reader.start()
    client.put("group_1", "2", b"another")
    client.put("group_1", "3", b"this")
    reader.join(WAIT_S)
    assert found == [b"this"]


@pytest.mark.parametrize(
    "path", ["/", "/a", "/a/", "//b", "a/b/c", "/a/b/c", "/a/b/c/d", "/a/ü", "/" + "a" * 2000 + "/b"]
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_n16_a_path_of_more_or_fewer_than_two_parts_is_400(
    server: tuple[RendezvousServer, int], method: str, path: str
) -> None:
    text = f"{method} {path} HTTP/1.0\r\nContent-Length: 0\r\n\r\n".encode()
    assert send(server[1], text).startswith(b"HTTP/1.1 400 ")


def test_a_request_without_the_signature_is_403(server: tuple[RendezvousServer, int], client: RendezvousClient) -> None:
    assert [ask(server[1], method, "/a/b", b"") for method in ("GET", "PUT", "DELETE")] == [403] * 3
    with pytest.raises(ConfigError, match="need the same PADDLE_SECRET"):
        RendezvousClient("127.0.0.1", server[1], "another", WAIT_S).put("a", "b", b"c")
    assert client.get("a", "b") is None


def test_verbs_that_there_are_not_are_501(server: tuple[RendezvousServer, int]) -> None:
    assert [ask(server[1], method, "/a/b") for method in ("POST", "HEAD", "PATCH")] == [501] * 3


def put_in_parts(port: int, head: str, secret: str = SECRET) -> bytes:
    """The head of a PUT of b"0123456789" that proves the secret, without its body."""
    checker = RendezvousClient("127.0.0.1", port, secret, WAIT_S)
    checker.get("a", "b")  # now its signer has the epoch
    signer = checker._exchange._signer
    proof = signer.sign("PUT", "/a/b", b"0123456789")
    lines = "".join(f"{name}: {value}\r\n" for name, value in signer.header(proof).items())
    return f"PUT /a/b HTTP/1.0\r\n{lines}{head}\r\n".encode()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("", 411),
        ("Content-Length: x\r\n", 411),
        ("Content-Length: -1\r\n", 411),
        ("Content-Length: 99999999999\r\n", 413),
    ],
)
def test_a_body_without_a_right_length_is_refused(server: tuple[RendezvousServer, int], head: str, status: int) -> None:
    answer = send(server[1], put_in_parts(server[1], head))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize(
    ("method", "framing", "status"),
    [
        ("GET", "Content-Length: 41", 404),
        ("DELETE", "Content-Length: 41", 200),
        ("GET", "Transfer-Encoding: chunked", 411),
        ("PUT", "Transfer-Encoding: chunked\r\nContent-Length: 0", 411),
        ("PUT", "Content-Length: 0\r\nContent-Length: 41", 411),
    ],
)
def test_no_body_is_taken_for_the_next_request(method: str, framing: str, status: int) -> None:
    """What the server did not read of a body stayed in the connection, and a PUT in it was stored."""
    server = RendezvousServer()
    port = server.start(address="127.0.0.1")
    head = f"{method} /a/b HTTP/1.1\r\n{framing}\r\nPadding: "
    head += "x" * (front.READ_BYTES - len(head) - 4) + "\r\n\r\n"  # the front reads the head and nothing more
    body = b"PUT /a/b HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"
    try:
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as stream, stream.makefile("rb") as answer:
            stream.sendall(head.encode() + body)
            stream.shutdown(socket.SHUT_WR)
            assert re.findall(rb"HTTP/1.1 (\d+)", answer.read()) == [b"%d" % status]
    finally:
        server.stop()


@pytest.mark.parametrize(("sent", "is_kept"), [("", True), ("Connection: close\r\n", False), ("x", False)])
def test_an_answer_says_whether_its_connection_is_closed(sent: str, is_kept: bool) -> None:
    """The client kept a connection that the server had closed after a refused body."""
    server = RendezvousServer()
    port = server.start(address="127.0.0.1")
    more, headers = (sent, "") if sent == "x" else ("", sent)
    try:
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as stream:
            stream.sendall(f"GET /a/b HTTP/1.1\r\n{headers}\r\n{more}".encode())
            with http.client.HTTPResponse(stream) as answer:
                answer.begin()
                assert answer.will_close is not is_kept
    finally:
        server.stop()


def test_a_body_that_does_not_come_is_408(
    server: tuple[RendezvousServer, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.05)
    text = put_in_parts(server[1], "Content-Length: 10\r\n") + b"short"
    assert send(server[1], text).startswith(b"HTTP/1.1 408 ")


def test_another_body_than_the_one_of_the_head_is_403(
    server: tuple[RendezvousServer, int], client: RendezvousClient
) -> None:
    text = put_in_parts(server[1], "Content-Length: 10\r\n")
    assert send(server[1], text + b"0123456788").startswith(b"HTTP/1.1 403 ")
    assert client.get("a", "b") is None


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_client_that_sends_a_byte_now_and_then_keeps_no_thread(
    server: tuple[RendezvousServer, int], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Each byte came before the limit of silence, so a thread served the client for ever."""
    monkeypatch.setattr(bodies, "REQUEST_S", 0.2)
    text = b"GET /a/b HTTP/1.0\r\n" + b"X: y\r\n" * 99
    if part == "head":
        server[0]._httpd._front._limits = FrontLimits(head_s=0.2)  # type: ignore[union-attr]
    else:
        text = put_in_parts(server[1], "Content-Length: 999\r\n")
    with socket.create_connection(("127.0.0.1", server[1]), WAIT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(0.02)
        connection.sendall(text)
        deadline = time.monotonic() + WAIT_S
        received = None
        while received is None and time.monotonic() < deadline:
            try:
                connection.sendall(b"x")
                received = connection.recv(100)
            except TimeoutError:
                continue
            except ConnectionError:
                received = b""
    assert received is not None and (not received or b" 408 " in received), received


def test_noise_ends_no_server(server: tuple[RendezvousServer, int], client: RendezvousClient) -> None:
    assert b"400" in send(server[1], b"\x00\xff\x16\x03\r\n\r\n")
    send(server[1], b"GET / HTTP/9.9\r\n\r\n")
    client.put("a", "b", b"c")
    assert client.get("a", "b") == b"c"


def test_a_planned_scope_goes_with_its_last_member(
    server: tuple[RendezvousServer, int], client: RendezvousClient
) -> None:
    server[0].init(get_host_assignments(parse_hosts("h:2"), 2))
    client.put("global", "0", b"a")
    client.put("local_h", "0", b"b")
    client.delete("global", "0")
    assert client.get("global", "0") == b"a"
    client.delete("global", "1")
    assert client.get("global", "0") is None
    assert client.get("local_h", "0") == b"b"
    server[0].init([])
    assert client.get("local_h", "0") is None


def test_a_rank_is_answered_when_the_driver_has_decided(driver: FakeDriver, client: RendezvousClient) -> None:
    driver.ranks = {"i/1 &=?": (SlotInfo("h", 1, 0, 1, 2, 1, 2), 7), "gone": (INVALID_SLOT_INFO, 7)}
    found: list[object] = []
    asking = threading.Thread(target=lambda: found.append(client.query_rank("h", 0, "i/1 &=?", 6, WAIT_S)))
    asking.start()
    assert driver.asked.wait(WAIT_S)
    assert not found
    driver.decided.set()
    asking.join(WAIT_S)
    assert found == [(SlotInfo("h", 1, 0, 1, 2, 1, 2), 7)]
    assert driver.said == [("rank", "h", 0, "i/1 &=?", 6)]
    assert client.query_rank("h", 1, "gone", 6)[0].rank == -1


def test_workers_that_are_not_ready_in_time_are_named_with_the_time(
    server: tuple[RendezvousServer, int], client: RendezvousClient, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeDriver, "query_rank", lambda *_: None)
    with pytest.raises(PeerUnreachableError, match="the other workers of generation 3 were not ready within 0 s"):
        client.query_rank("h", 0, "i", 3, wait=0)


def test_what_workers_say_comes_to_the_driver(driver: FakeDriver, client: RendezvousClient) -> None:
    client.heartbeat("h", 1, "i", 4)
    client.heartbeat("h", 1, "i", 5, [("10.0.0.2", 80)], "7.70")
    assert client.claim("h", 1, "i", "8.80") == ("7.70", False)
    assert client.claim("h", 1, "new", "8.80") == ("7.70", True)
    assert client.leave("h", 1, "i")
    client.done("h", 1, "i")
    client.register_addresses("h", 1, "i", [("10.0.0.2", 80)])
    assert driver.said == [
        ("heartbeat", "h", 1, "i", 4, [], ""),
        ("heartbeat", "h", 1, "i", 5, [("10.0.0.2", 80)], "7.70"),
        ("claim", "h", 1, "i", "8.80"),
        ("claim", "h", 1, "new", "8.80"),
        ("leaving", "h", 1, "i"),
        ("done", "h", 1, "i"),
        ("addresses", "h", 1, "i", [("10.0.0.2", 80)]),
    ]


@pytest.mark.parametrize(
    ("scope", "key", "body"),
    [
        ("done", "h", b"{}"),
        ("done", "h:x", b"{}"),
        ("done", "h:1", b"["),
        ("done", "h:1", b'{"incarnation":1}'),
        ("heartbeat", "h:1", b'{"generation":-1}'),
        ("places", "h:1", b'{"incarnation":"i","holder":5}'),
        ("leaving", "h", b"{}"),
        ("leaving", "h:1", b'{"incarnation":1}'),
        ("heartbeat", "h:1", b'{"addresses":[["h",0]]}'),
        ("worker_addresses", "h:1", b"{}"),
        ("worker_addresses", "h:1", b'{"addresses":[["h",0]]}'),
        ("worker_addresses", "h:1", b'{"addresses":[["h",1,2]]}'),
        ("done", "h:1", b" " * 20000),
    ],
)
def test_what_no_worker_says_is_refused(
    driver: FakeDriver, client: RendezvousClient, scope: str, key: str, body: bytes
) -> None:
    with pytest.raises(BugError, match="400"):
        client.put(scope, key, body)
    assert driver.said == []


def test_a_bug_of_the_driver_is_500_and_tried_again(driver: FakeDriver, server: tuple[RendezvousServer, int]) -> None:
    with pytest.raises(PeerUnreachableError, match="it answers 500"):
        RendezvousClient("127.0.0.1", server[1], SECRET, 0.0).query_rank("h", 0, "broken", 0)


def test_a_request_whose_body_was_late_is_sent_again(client: RendezvousClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """408 is the only refusal that another attempt can mend."""
    answers = [Exchanged(408, {}, b""), Exchanged(200, {}, b"")]
    monkeypatch.setattr(client._exchange, "ask", lambda *_: answers.pop(0))
    client.put("a", "b", b"value")
    assert answers == []


def test_a_driver_that_is_away_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(PeerUnreachableError, match=f"the driver at 127.0.0.1:{port} did not answer within 0 s"):
            RendezvousClient("127.0.0.1", port, "", 0.0).get("a", "b")


def test_a_client_sends_no_path_that_the_server_would_refuse(client: RendezvousClient) -> None:
    for key in ("", "a/b", "a b", "ü", "a?b"):
        with pytest.raises(BugError, match="cannot be a part of a path"):
            client.put("a", key, b"")


def test_a_store_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_cluster.elastic.keyvalue.store.MOST_BYTES", 10)
    monkeypatch.setattr("paddle_cluster.elastic.keyvalue.store.MOST_KEYS", 2)
    store = KeyValueStore()
    store.put("a", "0", b"12345678")
    with pytest.raises(FullStoreError):
        store.put("a", "1", b"123")
    store.put("a", "0", b"1")
    store.put("a", "1", b"123")
    with pytest.raises(FullStoreError):
        store.put("b", "0", b"")
    store.delete("a", "1")
    store.put("b", "0", b"123456789")


def test_a_store_of_the_function_mode_has_no_delete() -> None:
    server = KVStoreServer()
    port = server.start_server()
    try:
        assert [ask(port, method, "/runfunc/func", b"f") for method in ("PUT", "GET", "DELETE")] == [200, 200, 501]
    finally:
        server.shutdown_server()


def test_a_driver_that_does_not_know_its_workers_yet_takes_nothing_and_they_ask_again(
    driver: FakeDriver, server: tuple[RendezvousServer, int], client: RendezvousClient
) -> None:
    """A worker that had its answer before the driver had read its record was removed from the job, and so it failed."""
    driver.is_open = False
    hasty = RendezvousClient("127.0.0.1", server[1], SECRET, 0.3)
    for ask_driver in (
        lambda: hasty.query_rank("h", 0, "i", 1, 0.0),
        lambda: hasty.done("h", 0, "i"),
        lambda: hasty.put("scope", "key", b"value"),
    ):
        with pytest.raises(PeerUnreachableError, match="answers 503"):
            ask_driver()
    late = threading.Thread(target=client.put, args=("scope", "key", b"value"), daemon=True)
    late.start()
    driver.is_open = True
    late.join(WAIT_S)
    assert client.get("scope", "key") == b"value"


@pytest.mark.parametrize(
    "reply", [b"HTTP/1.0 200 OK\r\n\r\n9,9,9,9,9,9", b"HTTP/1.0 200 OK\r\nX-Paddle-Signature: 00\r\n\r\n", b""]
)
def test_what_an_impostor_of_the_driver_answers_is_not_read(reply: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    stream = listener.accept()[0]
                except OSError:
                    return
                with stream:
                    stream.recv(1 << 16)
                    stream.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        impostor = RendezvousClient("127.0.0.1", listener.getsockname()[1], SECRET, 0.05)
        with pytest.raises(PeerUnreachableError, match=r"prove this job's secret|RemoteDisconnected"):
            impostor.query_rank("h", 0, "i", 1, 0.0)
        listener.shutdown(socket.SHUT_RDWR)
