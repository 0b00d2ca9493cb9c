"""The pod's /healthz and /readyz: of programs that are well, stuck, silent or not there."""

from __future__ import annotations

import contextlib
import http.server
import math
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import pod_environment
from forked import server

from paddle_base.runtime.network import pages
from paddle_base.runtime.network.front import Front
from paddle_cluster.launcher.programs import probes
from paddle_cluster.launcher.programs.probes import PodHealth, watch_pod
from paddle_cluster.launcher.settings import LauncherConfig

DEADLINE_S = 60.0


class Clock:
    """Seconds that pass when a test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Stub:
    """A program that answers what a test says; status 0: it takes the question and never answers."""

    def __init__(self, name: str) -> None:
        self.answers = {"/healthz": (200, "ok"), "/readyz": (200, "ok")}
        self.is_over = threading.Event()
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, text = stub.answers[self.path]
                if not status:
                    stub.is_over.wait(DEADLINE_S)
                    return
                self.send_response(status)
                self.end_headers()
                self.wfile.write(f"{text}\n".encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.block_on_close = False
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.program = program(name, self.server.server_port, id(self))

    def close(self) -> None:
        self.is_over.set()
        self.server.shutdown()
        self.server.server_close()


class Asking:
    """The client of the API server, of which the health reads when it sent its last request."""

    asking_since = math.inf


def program(name: str, port: int, pid: int = 1, *, answers: bool = True) -> Any:
    process = SimpleNamespace(pid=pid, returncode=None)
    return SimpleNamespace(name=name, metrics_port=port, process=process, answers=answers)


@pytest.fixture
def stub() -> Iterator[Callable[[str], Stub]]:
    with contextlib.ExitStack() as stack:
        yield lambda name: stack.enter_context(contextlib.closing(Stub(name)))


@pytest.fixture
def health(monkeypatch: pytest.MonkeyPatch) -> PodHealth:
    """The health of a pod on 127.0.0.1 whose limit is a minute, by a clock of its own."""
    monkeypatch.setattr("paddle_cluster.launcher.programs.probes.ASK_TIMEOUT_S", 0.2)
    return PodHealth("127.0.0.1", 60.0, Asking(), Clock())


def judge(health: PodHealth, later_s: float = 2.0) -> tuple[str, str]:
    """What the pod says a while later."""
    health.clock.now += later_s
    return health.judge()


def test_between_attempts_a_pod_is_alive_and_not_ready(health: PodHealth) -> None:
    assert judge(health) == ("", "no trainer runs")


def test_a_pod_is_ready_when_all_its_programs_are(health: PodHealth, stub: Callable[[str], Stub]) -> None:
    pserver, trainer = stub("pserver"), stub("trainer")
    health.programs = [pserver.program]
    assert judge(health) == ("", "no trainer runs")
    health.programs = [pserver.program, trainer.program]
    assert judge(health) == ("", "")
    trainer.answers["/readyz"] = (503, "the trainer has not begun yet")
    assert judge(health) == ("", "trainer: the trainer has not begun yet")
    trainer.program.process.returncode = 75
    assert judge(health) == ("", "no trainer runs")


def test_a_program_that_calls_itself_stuck_makes_the_pod_stuck(health: PodHealth, stub: Callable[[str], Stub]) -> None:
    trainer = stub("trainer")
    health.programs = [trainer.program]
    trainer.answers["/healthz"] = (503, "the trainer has begun no batch for 61 s")
    why = "trainer: the trainer has begun no batch for 61 s"
    assert judge(health) == (why, why)
    trainer.answers["/healthz"] = (200, "ok")
    assert judge(health) == ("", "")


def test_a_silent_program_is_stuck_only_after_the_limit(health: PodHealth, stub: Callable[[str], Stub]) -> None:
    pserver, trainer = stub("pserver"), stub("trainer")
    health.programs = [pserver.program, trainer.program]
    pserver.answers["/healthz"] = (0, "")
    assert judge(health) == ("", "pserver has not answered for 0 s")
    assert judge(health, 60.0)[0] == ""
    assert judge(health)[0] == "pserver has not answered for 62 s"
    pserver.answers["/healthz"] = (200, "ok")
    assert judge(health) == ("", "")
    pserver.answers["/healthz"] = (0, "")
    assert judge(health, 1000.0)[0] == "", "its silence begins anew"


def test_a_program_that_could_not_have_its_port_is_not_judged(health: PodHealth) -> None:
    """A port in use must not end the training: nobody listens there, or a stranger does."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        health.programs = [program("trainer", unused.getsockname()[1])]
        for _ in range(3):
            assert judge(health, 1000.0) == ("", "trainer: nothing listens on its metrics port yet")


def test_a_program_that_knows_nothing_of_our_pages_is_ready(health: PodHealth) -> None:
    """A pod with a program of ENTRY was never READY."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        health.programs = [program("trainer", unused.getsockname()[1], answers=False)]
        assert judge(health, 1000.0) == ("", "")


def test_a_stranger_on_a_programs_port_is_not_judged(health: PodHealth, stub: Callable[[str], Stub]) -> None:
    stranger = stub("trainer")
    stranger.answers["/healthz"] = (404, "who is that")
    health.programs = [stranger.program]
    assert judge(health, 1000.0) == ("", "trainer: who is that")


def test_a_request_to_the_api_server_that_never_ends_makes_the_pod_stuck(health: PodHealth) -> None:
    """requests' timeout is between two bytes: an answer that drips has no end."""
    health.api.asking_since = health.clock.now
    assert judge(health, 59.0)[0] == ""
    assert judge(health)[0] == "the API server has been answering one request for 61 s"


def test_a_program_that_answers_byte_by_byte_is_silent(health: PodHealth) -> None:
    """Each byte began a new second, and as long as the answer lasted, no probe of the pod was answered."""
    listener = socket.create_server(("127.0.0.1", 0))
    is_over = threading.Event()

    def trickle() -> None:
        with listener.accept()[0] as stream, contextlib.suppress(OSError):
            stream.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            end = time.monotonic() + DEADLINE_S / 4
            while not is_over.wait(0.02) and time.monotonic() < end:
                stream.sendall(b"x")

    with listener:
        slow = threading.Thread(target=trickle, daemon=True)
        slow.start()
        health.programs = [program("trainer", listener.getsockname()[1])]
        assert judge(health) == ("", "trainer has not answered for 0 s")
        assert slow.is_alive()
        is_over.set()
        slow.join()


def test_programs_are_asked_once_however_many_probes_come(health: PodHealth, stub: Callable[[str], Stub]) -> None:
    trainer = stub("trainer")
    health.programs = [trainer.program]
    assert judge(health) == ("", "")
    trainer.answers["/healthz"] = (503, "stuck")
    assert health.judge() == ("", "")
    assert judge(health)[0] == "trainer: stuck"


def test_a_stopped_pserver_is_silent_and_well_again_when_it_goes_on(health: PodHealth) -> None:
    """A real one: SIGSTOP, as a debugger or a frozen container does it."""
    ports = []
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            ports.append(stack.enter_context(socket.socket()))
            ports[-1].bind(("127.0.0.1", 0))
        first, second = (one.getsockname()[1] for one in ports)
    argv = ["pserver", "--nics=127.0.0.1", f"--port={first}", f"--metrics_port={second}"]
    with Path(os.devnull).open("wb") as nothing:
        process = server().start(argv, Path.cwd(), os.environ, [nothing.fileno()] * 2)
    try:
        health.programs = [SimpleNamespace(name="pserver", metrics_port=second, process=process, answers=True)]
        wait_for(lambda: "no trainer has joined yet" in judge(health)[1])
        assert judge(health)[0] == ""
        os.kill(process.pid, signal.SIGSTOP)
        wait_for(lambda: "has not answered" in judge(health)[1])  # it may have been in the middle of an answer
        assert judge(health, 61.0)[0].startswith("pserver has not answered for ")
        os.kill(process.pid, signal.SIGCONT)
        wait_for(lambda: judge(health)[0] == "")
    finally:
        process.kill()
        process.wait()


# ----- Over HTTP


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def served(health: PodHealth, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of the pod's pages, in a thread that can be stopped."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fronts: list[Front] = []
    monkeypatch.setattr(probes, "serve", lambda *args, **options: fronts.append(pages.serve(*args, **options)))
    environ = pod_environment(CONF_PADDLE_METRICS_PORT=str(port), POD_IP="127.0.0.1")
    watch_pod(LauncherConfig.from_env(environ), health)
    yield port
    fronts[0].close()


def test_probes_get_the_judgement(health: PodHealth, served: int) -> None:
    assert ask(served, "/healthz") == (200, "ok\n")
    assert ask(served, "/readyz") == (503, "no trainer runs\n")
    assert ask(served, "/metrics")[0] == 404
    health.limit_s = -1.0
    health.api.asking_since = health.clock.now
    health.clock.now += 2
    assert ask(served, "/healthz")[0] == ask(served, "/readyz")[0] == 503


def test_without_its_port_the_launch_goes_on(
    health: PodHealth, served: int, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = pod_environment(CONF_PADDLE_METRICS_PORT=str(served), POD_IP="127.0.0.1")
    watch_pod(LauncherConfig.from_env(environ), health)
    assert f"WARNING: cannot listen on 127.0.0.1:{served} (CONF_PADDLE_METRICS_PORT)" in capsys.readouterr().out


def test_nobody_listens_where_no_port_is_asked_for(health: PodHealth) -> None:
    before = threading.active_count()
    watch_pod(LauncherConfig.from_env(pod_environment()), health)
    assert threading.active_count() == before
