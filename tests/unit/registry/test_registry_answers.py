"""What answers at etcd's address may be slow, false or broken: a request ends in time, and the next endpoint serves."""

from __future__ import annotations

import gzip
import json
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import responses
from each import each

import paddle_base.registry.endpoints as endpoints
import paddle_base.registry.etcd_access as etcd_access
from paddle_base.registry.endpoints import EtcdEndpoints, encode, watch_once
from paddle_base.registry.etcd import EtcdClaim, EtcdRegistry
from paddle_base.registry.etcd_access import PASSWORD_FILE, USER, EtcdAccess
from paddle_base.registry.interface import LEADER
from paddle_base.runtime.errors import PeerUnreachableError
from paddle_cluster.master.store.etcd import PAGE, EtcdLeadership

GOOD = b'{"header": {"revision": "7"}}'
Behaviour = Callable[[BaseHTTPRequestHandler], None]
Start = Callable[[Behaviour], str]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a server which answers as told, and returns its address."""
    servers: list[ThreadingHTTPServer] = []

    def begin(behave: Behaviour) -> str:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                behave(self)

            def log_message(self, *_: Any) -> None:
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        servers[-1].daemon_threads = True
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield begin
    for one in servers:
        one.shutdown()
        one.server_close()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "FIRST_S", 0.0)


def send(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def drip(
    handler: BaseHTTPRequestHandler, beginning: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
) -> None:
    handler.close_connection = True
    try:
        handler.wfile.write(beginning)
        for _ in range(100):
            handler.wfile.write(b" ")
            time.sleep(0.05)
    except OSError:
        pass


def good(handler: BaseHTTPRequestHandler) -> None:
    send(handler, GOOD)


def ask(*places: str) -> Any:
    return EtcdEndpoints(places, EtcdAccess()).call(lambda client: client.status())


CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SLOW: dict[str, Behaviour] = {
    "body": drip,
    "status": lambda handler: drip(handler, b"HTTP/1.1"),
    "headers": lambda handler: drip(handler, b"HTTP/1.1 200 OK\r\nX:"),
    "size of a chunk": lambda handler: drip(handler, CHUNKS),
    "silence": lambda handler: drip(handler, b""),
}


@pytest.mark.parametrize("behave", SLOW.values(), ids=SLOW)
def test_an_endpoint_that_drips_is_left_after_the_time_of_a_request(
    start: Start, monkeypatch: pytest.MonkeyPatch, behave: Behaviour
) -> None:
    """It blocked for as long as bytes came."""
    monkeypatch.setattr(endpoints, "REQUEST_S", 0.5)
    begun = time.monotonic()
    assert ask(start(behave), start(good)) == json.loads(GOOD)
    assert time.monotonic() - begun < 3


BOMB = gzip.compress(bytes(100_000_000))
BAD: dict[str, tuple[Behaviour, str]] = {
    "redirect": (
        lambda handler: send(handler, b"", 307, Location="http://127.0.0.1:1/"),
        "it answers with a redirect, 307, which is not followed",
    ),
    "deep": (lambda handler: send(handler, b'{"a":' + b"[" * 200_000), "its answer"),
    "deep and long": (lambda handler: send(handler, b'{"a":' + b"[" * 900_000), "its answer"),
    "list": (lambda handler: send(handler, b"[]"), "its answer is no JSON object"),
    "other encoding": (lambda handler: send(handler, GOOD, Content_Encoding="br"), "expected gzip"),
    "too long": (lambda handler: send(handler, b" " * 2_000_000), "it has more than 1 MiB"),
    "bomb": (
        lambda handler: send(handler, BOMB, Content_Encoding="gzip"),
        "it has more than 1 MiB",
    ),
}


@pytest.mark.parametrize(("behave", "why"), BAD.values(), ids=BAD)
def test_an_answer_that_etcd_never_writes_is_that_of_an_endpoint_that_does_not_answer(
    start: Start, monkeypatch: pytest.MonkeyPatch, behave: Behaviour, why: str
) -> None:
    """A redirect took the password to another server; a gzip of 1 GiB was unpacked; deep lists ended the program."""
    monkeypatch.setattr(etcd_access, "ANSWER_LIMIT", 1 << 20)
    monkeypatch.setattr(etcd_access, "VALUES", 500_000)
    place = start(behave)
    tracemalloc.start()
    try:
        with pytest.raises(PeerUnreachableError) as caught:
            ask(place)
        assert tracemalloc.get_traced_memory()[1] < 60_000_000  # the server's own answer is here too
    finally:
        tracemalloc.stop()
    assert why in str(caught.value) or "recursion" in str(caught.value)
    assert ask(place, start(good)) == json.loads(GOOD)


def test_a_redirect_takes_no_password_anywhere(start: Start) -> None:
    taken: list[str] = []

    def keep(handler: BaseHTTPRequestHandler) -> None:
        taken.append(handler.path)
        send(handler, b'{"token": "abc"}')

    other = start(keep)
    place = start(lambda handler: send(handler, b"", 308, Location=f"{other}{handler.path}"))
    access = EtcdAccess(user="root", password="secret-of-the-test")
    found = EtcdEndpoints(["https://etcd.test"], access)
    found._places = [("http", "127.0.0.1", int(place.rpartition(":")[2]))]
    with pytest.raises(PeerUnreachableError, match="redirect, 308"):
        found.call(lambda client: client.status())
    assert taken == []


def test_requests_share_one_connection(start: Start) -> None:
    peers = set()

    def note(handler: BaseHTTPRequestHandler) -> None:
        peers.add(handler.client_address)
        send(handler, GOOD)

    etcd = EtcdEndpoints([start(note)], EtcdAccess())
    for _ in range(3):
        etcd.call(lambda client: client.status())
    assert len(peers) == 1


# ----- The token and the files of `EtcdAccess`


@each("said", ["etcdserver: invalid auth token", "etcdserver: revision of auth store is old"])
@responses.activate
def test_a_token_that_etcd_refuses_is_replaced(said: str) -> None:
    """A JWT token was not, after a change of the users, until the program ended."""
    tokens = iter(["one", "two"])
    login = "https://etcd.test:2379/v3/auth/authenticate"
    responses.add_callback(responses.POST, login, lambda request: (200, {}, json.dumps({"token": next(tokens)})))

    def serve(request: Any) -> tuple[int, dict[str, str], str]:
        if request.headers["Authorization"] == "one":
            return 400, {}, json.dumps({"message": said})
        return 200, {}, GOOD.decode()

    responses.add_callback(responses.POST, "https://etcd.test:2379/v3/maintenance/status", serve)
    etcd = EtcdEndpoints(["https://etcd.test"], EtcdAccess(user="root", password="hush"))
    assert etcd.call(lambda client: client.status()) == json.loads(GOOD)


@each("access", [EtcdAccess(ca="/gone/ca.crt"), EtcdAccess(certificate="/gone/tls.crt", key="/gone/tls.key")])
def test_a_file_that_vanishes_is_an_etcd_that_does_not_answer(access: EtcdAccess) -> None:
    """A leading master ended with a traceback."""
    with pytest.raises(PeerUnreachableError, match="/gone/"):
        EtcdEndpoints(["https://127.0.0.1:1"], access).call(lambda client: client.status())


@each(
    ("content", "password"),
    [("hush\n", "hush"), ("hush\r\n", "hush"), (" hush \n\n", " hush "), ("\thush", "\thush"), (" ", " ")],
)
def test_only_the_line_end_of_a_password_is_removed(tmp_path: Path, content: str, password: str) -> None:
    (tmp_path / "password").write_bytes(content.encode())
    given = {USER: "root", PASSWORD_FILE: str(tmp_path / "password")}
    assert EtcdAccess.of(given).password == password


# ----- Watches


def stream(*lines: bytes, seconds: float = 0.0) -> Behaviour:
    """Return what a watch answers: lines, and then silence."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.wfile.write(CHUNKS)
        for line in lines:
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        time.sleep(seconds)
        handler.wfile.write(b"0\r\n\r\n")

    return behave


CREATED = b'{"result": {"created": true}}\n'


def watch(place: str, seconds: float = 1.0) -> float:
    """Return how long a watch lasts."""
    begun = time.monotonic()
    watch_once(EtcdEndpoints([place], EtcdAccess()), "key", seconds)
    return time.monotonic() - begun


def test_a_watch_ends_at_an_event_or_after_its_time(start: Start) -> None:
    assert watch(start(stream(CREATED, b'{"result": {"events": [{}]}}\n', seconds=2))) < 0.8
    assert 0.4 < watch(start(stream(CREATED, seconds=2)), 0.4) < 1.5
    assert 0.4 < watch(start(stream(seconds=2)), 0.4) < 1.5
    assert 0.4 < watch(start(drip), 0.4) < 1.5


def test_a_watch_that_etcd_ends_is_not_repeated_without_a_pause(start: Start) -> None:
    assert 0.4 < watch(start(stream(CREATED, b'{"result": {"canceled": true}}\n')), 0.4) < 1.5


@each("line", [b"x" * 3_000_000 + b"\n", b"{" * 3_000_000, b'{"result":' + b"[" * 200_000 + b"\n", b"[]\n"])
def test_an_event_is_bounded(start: Start, monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    monkeypatch.setattr(endpoints, "EVENT_LIMIT", 1 << 20)
    with pytest.raises(PeerUnreachableError):
        watch(start(stream(CREATED, line, seconds=0.2)))


def test_a_watch_that_is_refused_says_so(start: Start) -> None:
    with pytest.raises(PeerUnreachableError, match="no leader"):
        watch(start(lambda handler: send(handler, b'{"message": "etcdserver: no leader"}', 503)))


# ----- What callers make of an answer


@each("answer", [{}, {"header": {}}, {"header": 5}, {"header": {"revision": "x"}}, {"header": {"revision": []}}])
def test_a_page_without_a_revision_is_that_of_an_endpoint_that_does_not_answer(start: Start, answer: Any) -> None:
    place = start(lambda handler: send(handler, json.dumps(answer).encode()))
    with pytest.raises(PeerUnreachableError):
        EtcdRegistry([place], "job").read("")


def test_a_state_whose_page_is_too_large_is_read_in_smaller_pages(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_access, "ANSWER_LIMIT", 1 << 20)
    limits = []

    def page(handler: BaseHTTPRequestHandler) -> None:
        limits.append(handler.path)
        is_first = len(limits) == 1
        pairs = [{"key": encode("/job/master/task/1"), "value": encode("x" * (1 << 20) if is_first else "x")}]
        send(handler, json.dumps({"kvs": pairs}).encode())

    etcd = EtcdEndpoints([start(page)], EtcdAccess())
    claim = EtcdClaim(etcd, "/job/", LEADER, None, 1, time.monotonic() + 10)  # type: ignore[arg-type]
    leadership = EtcdLeadership(claim)
    assert list(leadership.load()) == [("task/1", "x")]
    assert leadership._page == PAGE // 10
