"""/healthz, /readyz and /metrics over real sockets: of a server process, and under callers who mean no good."""

import contextlib
import http.client
import os
import re
import signal
import socket
import threading
import time

import numpy as np
import pytest

from paddle_base.runtime.network import pages
from paddle_base.runtime.network.pages import MOST_CALLERS, MOST_HEAD_BYTES, Pages, serve, watch


@pytest.fixture
def served(tools):
    """A front that answers on a free port; ask(path) -> (status, text)."""
    port = tools.find_ports(1)
    front = serve(["127.0.0.1"], port, Pages(lambda: "", lambda: "not yet"), is_vital=False)
    yield port
    front.close()
    assert not front._thread.is_alive()


def ask(port, path, method="GET", timeout=20):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def read_all(stream):
    found = b""
    try:
        while more := stream.recv(4096):
            found += more
    except ConnectionResetError:  # what we sent was not read
        pass
    return found


def test_a_request_may_come_in_pieces(served):
    with connect(served) as stream:
        for piece in (b"GET /heal", b"thz HTTP/1.1\r\nHo", b"st: x\r\n", b"\r\n"):
            stream.sendall(piece)
        assert read_all(stream).startswith(b"HTTP/1.1 200 OK")
    assert ask(served, "/readyz") == (503, "not yet\n")


def test_a_request_without_end_is_refused_at_its_limit(served):
    with connect(served) as stream:
        stream.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * (MOST_HEAD_BYTES - 26))
        assert read_all(stream).startswith(b"HTTP/1.1 431 ")
    assert ask(served, "/healthz")[0] == 200


@pytest.fixture
def patience(monkeypatch, request):
    monkeypatch.setattr(pages, "PATIENCE_S", request.param)


@pytest.mark.parametrize("patience", [600.0], indirect=True)
def test_callers_who_say_nothing_keep_nobody_out(patience, served):
    """The oldest go when there are too many."""
    silent = [connect(served) for _ in range(3 * MOST_CALLERS)]
    try:
        assert ask(served, "/healthz") == (200, "ok\n")
        assert [read_all(stream) for stream in silent[: 2 * MOST_CALLERS]] == [b""] * 2 * MOST_CALLERS
    finally:
        for stream in silent:
            stream.close()


@pytest.mark.parametrize("patience", [0.1], indirect=True)
def test_a_caller_whose_patience_is_over_goes(patience, served):
    with contextlib.closing(connect(served)) as silent:
        assert read_all(silent) == b""


def test_one_who_does_not_read_is_left(served):
    streams = [connect(served) for _ in range(MOST_CALLERS)]
    for stream in streams:
        stream.sendall(b"GET /healthz HTTP/1.1\r\n\r\n" * 100)
        stream.close()
    assert ask(served, "/healthz")[0] == 200


def test_a_flood_is_answered_at_a_bounded_rate(served, monkeypatch):
    """The thread must not take the interpreter from the program."""
    monkeypatch.setattr(pages, "ANSWERS_PER_SECOND", 5)
    began = time.monotonic()
    assert [ask(served, "/healthz")[0] for _ in range(12)] == [200] * 12
    assert time.monotonic() - began > 1


def test_a_port_in_use_is_a_warning(served, capfd):
    assert watch(["127.0.0.1"], served, Pages(lambda: "", lambda: "")) is None
    assert f"--metrics_port={served}: cannot listen on 127.0.0.1: Address already in use" in capfd.readouterr().err


def test_a_fault_of_ours_is_an_answer_and_a_line_and_ends_nothing(tools, capfd):
    """One page with a bug ended the answers of all pages, and the probes then ended the pod."""

    def broken():
        raise ZeroDivisionError("ours")

    port = tools.find_ports(1)
    front = watch(["127.0.0.1"], port, Pages(lambda: "", broken))
    assert ask(port, "/readyz") == (500, "ZeroDivisionError: ours\n")
    assert ask(port, "/healthz") == (200, "ok\n")
    front.close()
    assert "cannot be answered: ZeroDivisionError: ours" in capfd.readouterr().err


def test_a_page_that_names_a_file_which_is_no_utf8_is_an_answer(tools):
    """The connection was closed without an answer and without a line in the log."""
    port = tools.find_ports(1)
    front = watch(["127.0.0.1"], port, Pages(lambda: os.fsdecode(b"cannot write f\xff"), lambda: ""))
    with contextlib.closing(front):
        assert ask(port, "/healthz") == (503, "cannot write f\\udcff\n")
        assert ask(port, "/healthz", "HEAD") == (503, "")


# ----- Of a server process -----


def metric(text, name, *labels):
    values = re.findall(rf"^{name}\{{([^}}]*)\}} (\S+)$", text, re.MULTILINE)
    return sum(float(value) for given, value in values if all(label in given for label in labels))


def ask_until(port, is_there, limit_s=30.0):
    """The page of metrics on which the end of a pass stands, which a server counts after it has answered."""
    deadline = time.monotonic() + limit_s
    while True:
        status, text = ask(port, "/metrics")
        assert status == 200
        if is_there(text):
            return text
        assert time.monotonic() < deadline, text
        time.sleep(0.1)


def test_a_server_is_ready_with_its_values_and_counts_its_rounds_and_bytes(pserver, client, tools):
    port = tools.find_ports(1)
    server = pserver(f"--metrics_port={port}", ports=2)
    assert ask(port, "/healthz") == (200, "ok\n")
    status, text = ask(port, "/readyz")
    assert (status, text) == (503, "no trainer has joined yet\n")
    one = client(server.services, own_addresses=())
    values = np.zeros(tools.size, np.float32)
    one.join(tools.parameters, tools.settings)
    one.initialise(values)
    assert ask(port, "/readyz") == (200, "ok\n")
    one.start_pass()
    for _ in range(3):
        one.push_pull(np.ones(tools.size, np.float32), values, 10)
    one.finish_pass(values)
    size = 4 * tools.size

    def is_counted(text):  # what has been sent is counted after the trainer may have received it
        return (
            metric(text, "paddle_pserver_passes_total") == 2
            and metric(text, "paddle_pserver_sent_bytes_total") > 4 * size
        )

    text = ask_until(port, is_counted)
    for host, number in server.services:
        name = f'pserver="{host}:{number}"'
        assert metric(text, "paddle_pserver_rounds_total", name) == 3
        assert metric(text, "paddle_pserver_passes_total", name) == 1
        assert metric(text, "paddle_pserver_joined_trainers", name) == 1
    received, sent = (metric(text, f"paddle_pserver_{way}_bytes_total") for way in ("received", "sent"))
    assert 4 * size < received < 4 * size + 20000  # first values and three gradients
    assert 4 * size < sent < 4 * size + 20000  # three times values, and those after the pass
    one.goodbye()
    assert server.wait() == 0, server.text()


def test_a_server_that_is_stopped_does_not_answer_and_does_again_when_it_goes_on(pserver, tools):
    port = tools.find_ports(1)
    server = pserver(f"--metrics_port={port}", environ={"PADDLE_STUCK_TIMEOUT": "0.5"})
    os.kill(server.process.pid, signal.SIGSTOP)

    def is_silent():
        try:
            ask(port, "/healthz", timeout=1)
        except TimeoutError:
            return True
        return False

    tools.until(is_silent, "the system to stop all threads")
    os.kill(server.process.pid, signal.SIGCONT)
    tools.until(lambda: ask(port, "/healthz")[0] == 200, "the server to be live again")


def test_a_metrics_port_in_use_does_not_keep_a_server_from_serving(pserver, train, tools):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = pserver(f"--metrics_port={taken.getsockname()[1]}")
        train(server.services, 0, 1, [[np.ones(tools.size, np.float32)]])
        assert server.wait() == 0
    assert "going on without /healthz, /readyz and /metrics" in server.text()


def test_callers_of_metrics_while_a_server_works_change_nothing(pserver, train, tools):
    port = tools.find_ports(1)
    servers = [pserver(f"--metrics_port={port}"), pserver()]
    ends, found = threading.Event(), []

    def call():
        while not ends.is_set():
            with contextlib.suppress(OSError):  # the server has ended
                found.append(ask(port, "/metrics")[0])

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    gradients = tools.gradients(1, 20)[0]
    watched = train(servers[0].services, 0, 1, [gradients])
    ends.set()
    for caller in callers:
        caller.join()
    assert found and set(found) == {200}
    assert watched.tobytes() == train(servers[1].services, 0, 1, [gradients]).tobytes()
