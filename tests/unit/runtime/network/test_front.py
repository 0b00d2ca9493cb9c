"""The front of a server: what connections that prove nothing can do to those that do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from full_process import FullProcess
from waiting import until

from paddle_base.runtime.network.front import Admitted, Front, FrontHandlers, FrontLimits, Refused
from paddle_base.runtime.network.open_files import FREE_FILES

LIMIT_S = 60.0
QUICK = FrontLimits(unproven=8, of_address=4, proven=2, head_bytes=100, head_s=LIMIT_S, idle_s=LIMIT_S)


def judge(data: bytes, greeting: bytes) -> Admitted | Refused | None:
    """A line that begins with "ok" is a request, "bug" is a bug, and any other line is refused."""
    line, end, _ = data.partition(b"\n")
    if line == b"bug":
        raise RuntimeError("a bug")
    if not end:
        return None
    return Admitted(line) if line.startswith(b"ok") else Refused(b"no\n")


class Served:
    """A front on a port, and requests that wait until they are let go."""

    def __init__(self, limits: FrontLimits) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = listener.getsockname()[1]
        self.goes_on = threading.Event()
        self.front = Front([listener], FrontHandlers(judge, self.serve), limits)

    def serve(self, stream: socket.socket, address: str, data: bytes, line: Any) -> bool:
        if line == b"ok wait":
            self.goes_on.wait(LIMIT_S)
        stream.sendall(b"%b from %b\n" % (line, address.encode()))
        return not line.endswith(b"last")

    def connect(self, address: str = "127.0.0.1") -> socket.socket:
        stream = socket.socket()
        stream.settimeout(LIMIT_S)
        stream.bind((address, 0))
        stream.connect(("127.0.0.1", self.port))
        return stream


@pytest.fixture
def start() -> Iterator[Callable[..., Served]]:
    with contextlib.ExitStack() as stack:

        def start(limits: FrontLimits = QUICK) -> Served:
            served = Served(limits)
            stack.callback(served.front.close)
            stack.callback(served.goes_on.set)
            return served

        yield start


def ask(stream: socket.socket, line: bytes) -> bytes:
    stream.sendall(line + b"\n")
    return receive(stream)


def receive(stream: socket.socket) -> bytes:
    try:
        return stream.recv(1000)
    except ConnectionError:
        return b""


def test_a_connection_stays_open_for_the_next_request(start: Callable[..., Served]) -> None:
    served = start()
    with served.connect() as stream:
        assert ask(stream, b"ok 1") == b"ok 1 from 127.0.0.1\n"
        stream.sendall(b"ok")
        assert ask(stream, b" 2") == b"ok 2 from 127.0.0.1\n"
        assert ask(stream, b"ok last") == b"ok last from 127.0.0.1\n"
        assert receive(stream) == b""


def test_what_proves_nothing_is_refused_and_gets_no_thread(start: Callable[..., Served]) -> None:
    served = start()
    before = threading.active_count()
    for text, answer in ((b"who\n", b"no\n"), (b"bug\n", b""), (b"o" * 101, b"")):
        with served.connect() as stream:
            stream.sendall(text)
            assert receive(stream) == answer
            assert receive(stream) == b""
    assert threading.active_count() == before
    with served.connect() as stream:
        assert ask(stream, b"ok") == b"ok from 127.0.0.1\n"


def test_the_newest_connection_is_served_while_others_say_nothing(start: Callable[..., Served]) -> None:
    served = start()
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(served.connect())
        assert ask(kept, b"ok 1")
        silent = [stack.enter_context(served.connect(f"127.0.1.{number}")) for number in range(1, 40)]
        assert receive(silent[0]) == b""  # the oldest are closed
        assert ask(stack.enter_context(served.connect()), b"ok 2") == b"ok 2 from 127.0.0.1\n"
        assert ask(kept, b"ok 3") == b"ok 3 from 127.0.0.1\n"
        assert len(served.front._unproven.oldest) <= QUICK.unproven


def test_an_address_closes_only_its_own_connections(start: Callable[..., Served]) -> None:
    served = start()
    with contextlib.ExitStack() as stack:
        slow = stack.enter_context(served.connect("127.0.0.2"))
        slow.sendall(b"ok")
        silent = [stack.enter_context(served.connect("127.0.0.3")) for _ in range(60)]
        assert receive(silent[0]) == b""
        until(lambda: served.front._unproven._of_address["127.0.0.3"] == QUICK.of_address, "the last of them")
        assert ask(slow, b" at last") == b"ok at last from 127.0.0.2\n"


def test_a_head_that_comes_byte_by_byte_has_a_deadline(start: Callable[..., Served]) -> None:
    served = start(QUICK._replace(head_s=0.2, head_bytes=10_000))
    with served.connect() as stream, contextlib.suppress(ConnectionError):
        stream.settimeout(0.02)
        while True:
            with contextlib.suppress(TimeoutError):
                stream.sendall(b"o")
                assert stream.recv(10) == b""
                break


def test_a_connection_that_waits_too_long_for_its_next_request_is_closed(start: Callable[..., Served]) -> None:
    served = start(QUICK._replace(idle_s=0.1))
    with served.connect() as stream:
        assert ask(stream, b"ok 1")
        assert receive(stream) == b""


def test_requests_at_the_same_time_are_bounded(start: Callable[..., Served]) -> None:
    served = start()
    with contextlib.ExitStack() as stack:
        idle, first, second, third = (stack.enter_context(served.connect()) for _ in range(4))
        assert ask(idle, b"ok")
        until(lambda: len(served.front._idle) == 1, "the end of the request")  # which follows its answer
        first.sendall(b"ok wait\n")
        until(lambda: served.front._served.count == 1, "the first request")
        second.sendall(b"ok wait\n")
        assert receive(idle) == b""  # a connection that only waits makes room
        until(lambda: served.front._served.count == 2, "the second request")
        assert ask(third, b"ok") == b""
        served.goes_on.set()
        assert receive(first) == receive(second) == b"ok wait from 127.0.0.1\n"


def test_a_process_without_free_descriptors_closes_connections_that_prove_nothing(
    start: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    served = start()
    with served.connect() as old, served.connect("127.0.0.2") as silent:
        assert ask(old, b"ok 1")
        until(lambda: len(served.front._unproven.oldest) == 1, "the silent one")
        monkeypatch.setattr(FREE_FILES, "take", lambda *_: False)
        with served.connect() as new:
            assert ask(new, b"ok 2") == b"ok 2 from 127.0.0.1\n"
            assert receive(silent) == b""
        with served.connect() as another:
            assert receive(another) == b""
        assert ask(old, b"ok 3") == b"ok 3 from 127.0.0.1\n"


def test_silent_connections_that_hold_the_last_descriptors_make_room() -> None:
    """The front accepted nothing until their time was over, so the probes of a pod failed for as long."""
    listener = FullProcess(free=3)
    limits = QUICK._replace(may_use_spare=True)
    front = Front([listener], FrontHandlers(judge, lambda *_: False), limits)
    with contextlib.ExitStack() as stack:
        port = listener.getsockname()[1]
        stack.callback(front.close)
        for _ in range(3):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        until(lambda: len(front._unproven.oldest) == 3, "the silent connections")
        probe = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S / 4))
        assert ask(probe, b"who") == b"no\n"


def hold(served: Served) -> Callable[[], None]:
    """Make the front judge a request until the returned function is called."""
    holds, goes_on = threading.Event(), threading.Event()
    judge_as_before = served.front._handlers.judge

    def judge_slowly(data: bytes, greeting: bytes) -> Admitted | Refused | None:
        if data == b"hold\n":
            holds.set()
            goes_on.wait(LIMIT_S)
        return judge_as_before(data, greeting)

    served.front._handlers = served.front._handlers._replace(judge=judge_slowly)
    stream = served.connect()
    stream.sendall(b"hold\n")
    assert holds.wait(LIMIT_S)

    def release() -> None:
        goes_on.set()
        stream.close()

    return release


def test_a_request_that_is_there_is_answered_whatever_comes_after_it(start: Callable[..., Served]) -> None:
    """A turn accepted more connections than may be unproven, and closed those that no turn had read."""
    served = start()
    with contextlib.ExitStack() as stack:
        release = hold(served)
        request = stack.enter_context(served.connect())
        request.sendall(b"ok\n")
        for _ in range(40):
            stack.enter_context(served.connect())
        release()
        assert receive(request) == b"ok from 127.0.0.1\n"


def test_a_request_that_came_in_time_is_answered_however_long_another_was_judged(start: Callable[..., Served]) -> None:
    """The front asks a pod's programs for seconds; then it closed, unread, the connections whose time was over."""
    served = start()
    with served.connect() as stream:
        until(lambda: len(served.front._unproven.oldest) == 1, "the connection")
        [waiting] = served.front._unproven.oldest
        release = hold(served)
        stream.sendall(b"ok\n")
        waiting.deadline = time.monotonic()
        release()
        assert receive(stream) == b"ok from 127.0.0.1\n"


def test_an_answer_of_the_front_may_be_longer_than_the_buffers_of_a_connection(start: Callable[..., Served]) -> None:
    """The front sent what fitted, and closed the connection; the rest of a page of metrics was lost."""
    served = start()
    page = bytes(range(256)) * (1 << 16)
    served.front._handlers = served.front._handlers._replace(judge=lambda *_: Refused(page))
    with served.connect() as slow:
        slow.sendall(b"page\n")
        until(lambda: any(one.unsent for one in served.front._unproven.oldest), "the first part of the answer")
        with served.connect() as another, another.makefile("rb") as file:
            another.sendall(b"page\n")
            assert file.read() == page
        with slow.makefile("rb") as file:
            assert file.read() == page


def test_a_client_that_does_not_read_its_answer_is_closed_at_the_deadline(start: Callable[..., Served]) -> None:
    served = start(QUICK._replace(head_s=0.1))
    served.front._handlers = served.front._handlers._replace(judge=lambda *_: Refused(bytes(1 << 24)))
    with served.connect() as silent:
        silent.sendall(b"page\n")
        until(lambda: any(one.unsent for one in served.front._unproven.oldest), "the first part of the answer")
        until(lambda: not served.front._unproven.oldest, "the deadline")


def test_one_front_serves_several_ports_and_takes_spare_descriptors_if_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood that takes all but the spare descriptors must not fail the probes of the pod."""
    monkeypatch.setattr(FREE_FILES, "take", lambda *_: False)
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [one.getsockname()[1] for one in listeners]
    handlers = FrontHandlers(judge, lambda *_: False)
    front = Front(listeners, handlers, QUICK._replace(may_use_spare=True), is_vital=False)
    for port in ports:
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as stream:
            assert ask(stream, b"who") == b"no\n"
    front.close()
    assert [one.fileno() for one in listeners] == [-1, -1]
