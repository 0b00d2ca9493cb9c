"""An agent in this process, and its client: who may say what, and what becomes of workers."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from waiting import until

from paddle_base.runtime.errors import ConfigError, LostPeerError, PeerUnreachableError, PortInUseError, UsageError
from paddle_cluster.elastic.agent.client import AgentClient
from paddle_cluster.elastic.agent.protocol import OutputAnswer, StreamMark, WorkerLaunch
from paddle_cluster.elastic.agent.remote import LOST, RemoteWorker, describe_launch
from paddle_cluster.elastic.agent.service import AgentOptions, WorkerAgent, parse_agent_options
from paddle_cluster.elastic.agent.workers import AgentBusyError, AgentWorkers
from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.keyvalue.exchange import SignedExchange, UnprovenAnswerError
from paddle_cluster.elastic.launching.output import OutputWriter
from paddle_cluster.elastic.membership.results import WorkerEvents

SECRET, HOST = "a secret", "127.0.0.1"
WAIT_S = 60.0
MARKS = {"stdout": StreamMark(), "stderr": StreamMark()}


@pytest.fixture
def agent() -> Iterator[WorkerAgent]:
    environ = {"PATH": os.environ["PATH"], "PADDLE_SECRET": SECRET, "OWN": "1"}
    with closing(WorkerAgent(AgentOptions(0, HOST, 60.0, 0.1), environ)) as found:
        yield found


@pytest.fixture
def client(agent: WorkerAgent) -> AgentClient:
    return AgentClient(HOST, agent.port, SECRET)


def launch(script: str) -> WorkerLaunch:
    return WorkerLaunch(("sh", "-c", script), {"GIVEN": "2"}, 0)


def wait_for_exit(client: AgentClient, agent: WorkerAgent, name: str) -> OutputAnswer:
    deadline, marks = time.monotonic() + WAIT_S, dict(MARKS)
    while time.monotonic() < deadline:
        news = client.read_output(agent.name, name, marks, wait=1.0)
        if news.exit_code is not None:
            return news
        marks = {kind: StreamMark(0, part.total) for kind, part in news.parts.items()}
    raise AssertionError(name)


def test_a_worker_is_started_once_and_has_the_variables_of_agent_and_driver(
    agent: WorkerAgent, client: AgentClient, tmp_path: Path
) -> None:
    worker = launch(f"echo $OWN $GIVEN; echo >> {tmp_path}/starts")
    for _ in range(2):
        client.start(agent.name, "w1", worker)
    news = wait_for_exit(client, agent, "w1")
    client.start(agent.name, "w1", worker)
    assert (news.exit_code, news.parts["stdout"].data) == (0, b"1 2\n")
    assert (tmp_path / "starts").read_text() == "\n"


def test_a_worker_is_ended(agent: WorkerAgent, client: AgentClient) -> None:
    client.start(agent.name, "w1", launch("sleep 600"))
    assert client.read_state().workers == 1
    client.end(agent.name, "w1")
    assert wait_for_exit(client, agent, "w1").exit_code == -15
    with pytest.raises(LostPeerError, match="no worker with this name"):
        client.end(agent.name, "w2")


def test_a_request_to_another_agent_does_nothing(agent: WorkerAgent, client: AgentClient) -> None:
    with pytest.raises(LostPeerError, match="409: this is another agent"):
        client.start("earlier", "w1", launch("true"))
    assert client.read_state() == (agent.name, 0, False)


def ask(agent: WorkerAgent, method: str, path: str, body: bytes = b"", secret: str = SECRET) -> tuple[int, bool]:
    """The status of an answer, and whether it proves the secret."""
    exchange = SignedExchange(HOST, agent.port, secret, most=1 << 20, most_kept=0)
    try:
        return exchange.ask(method, path, body, WAIT_S, WAIT_S).status, True
    except UnprovenAnswerError as exc:
        return exc.status, False


def test_without_the_secret_nothing_is_answered_or_done(agent: WorkerAgent) -> None:
    path = f"/workers/w1?agent={agent.name}"
    for method, where, body in [("GET", "/agent/state", b""), ("PUT", path, launch("true").encode())]:
        assert ask(agent, method, where, body, "another") == (403, False)
    with pytest.raises(ConfigError, match="refuses the secret"):
        AgentClient(HOST, agent.port, "another").read_state()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/agent", b"", 400),
        ("GET", "/agent/other?agent=NAME", b"", 404),
        ("GET", "/output/w1?agent=NAME", b"", 404),
        ("GET", "/output/w1?agent=NAME&stdout=x", b"", 400),
        ("PUT", "/workers/w1?agent=NAME", b"{}", 400),
        ("PUT", "/workers/w%201?agent=NAME", b"{}", 400),
        ("PUT", "/workers/w1", b"{}", 409),
        ("PUT", "/other/w1?agent=NAME", b"{}", 404),
        ("PUT", "/workers/w1?agent=NAME", b"x" * (257 << 10), 413),
    ],
)
def test_a_faulty_request_is_refused(agent: WorkerAgent, method: str, path: str, body: bytes, status: int) -> None:
    path = path.replace("NAME", agent.name)
    assert ask(agent, method, path, body) == (status, path != "/agent")


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.0 200 OK\r\n\r\n{}", b"HTTP/1.0 403 No\r\n\r\n", b"\0" * 100])
def test_what_an_impostor_answers_is_not_read(reply: bytes) -> None:
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            stream = listener.accept()[0]
            with stream:
                stream.recv(1 << 16)
                stream.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        error = ConfigError if b"403" in reply else PeerUnreachableError
        with pytest.raises(error):
            AgentClient(HOST, listener.getsockname()[1], SECRET).read_state()


def test_a_recorded_request_starts_nothing(agent: WorkerAgent, client: AgentClient, tmp_path: Path) -> None:
    """Neither again at this agent, when it has forgotten the worker, nor at a later one with the same secret."""
    recorded = []
    worker = launch(f"echo >> {tmp_path}/starts")
    body = worker.encode()
    with socket.create_server((HOST, 0)) as listener:

        def record() -> None:
            for _ in range(2):  # the request without the epoch, and the right one
                stream = listener.accept()[0]
                with stream, socket.create_connection((HOST, agent.port), WAIT_S) as inner:
                    request = b""
                    while not request.endswith(body):
                        request += stream.recv(1 << 16)
                    recorded.append(request)
                    inner.sendall(request)
                    stream.sendall(inner.recv(1 << 16))

        recorder = threading.Thread(target=record, daemon=True)
        recorder.start()
        between = AgentClient(HOST, listener.getsockname()[1], SECRET)
        between.start(agent.name, "w1", worker)
        recorder.join(WAIT_S)
    wait_for_exit(client, agent, "w1")
    agent._workers._workers.clear()
    environ = {"PATH": os.environ["PATH"], "PADDLE_SECRET": SECRET}
    with closing(WorkerAgent(AgentOptions(0, HOST, 60.0, 0.1), environ)) as later:
        later.name = agent.name
        for one in (agent, later):
            for request in recorded:
                with socket.create_connection((HOST, one.port), WAIT_S) as stream:
                    stream.sendall(request)
                    assert b" 428 " in stream.recv(1 << 16)
            assert one._workers.count() == 0
    assert (tmp_path / "starts").read_text() == "\n"


def test_an_agent_that_leaves_starts_no_worker_and_ends_those_that_stay(
    agent: WorkerAgent, client: AgentClient
) -> None:
    client.start(agent.name, "w1", launch("sleep 600"))
    is_stopped = threading.Event()
    is_stopped.set()
    runner = threading.Thread(target=agent.run, args=(is_stopped,), daemon=True)
    runner.start()
    until(lambda: client.read_state().is_leaving, "the agent to leave")
    with pytest.raises(LostPeerError, match="about to end"):
        client.start(agent.name, "w2", launch("true"))
    assert wait_for_exit(client, agent, "w1").exit_code == -15
    runner.join(WAIT_S)
    assert not runner.is_alive()


def test_a_worker_that_no_driver_asks_after_is_ended_and_its_output_forgotten() -> None:
    workers = AgentWorkers(os.environ, 5.0)
    workers.start("w1", WorkerLaunch(("sh", "-c", "echo begun; sleep 600"), {}, 0))
    assert workers.read("w1", MARKS, 100, WAIT_S).parts["stdout"].data == b"begun\n"
    workers.check(time.monotonic())
    assert workers.count() == 1
    workers.check(time.monotonic() + 6.0)
    assert workers.wait_for_none(WAIT_S)
    assert workers.is_all_shown()
    news = workers.read("w1", MARKS, 100, WAIT_S)
    assert (news.exit_code, news.parts["stdout"]) == (-15, (6, b"", 6))


def test_an_agent_has_a_bound_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_cluster.elastic.agent.workers.MOST_LIVE", 1)
    monkeypatch.setattr("paddle_cluster.elastic.agent.workers.MOST_ENDED", 1)
    workers = AgentWorkers(os.environ, 60.0)
    for name in ("w1", "w2", "w3"):
        workers.start(name, WorkerLaunch(("true",), {}, 0))
        assert workers.wait_for_none(WAIT_S)
    workers.start("w4", WorkerLaunch(("sleep", "600"), {}, 0))
    with pytest.raises(LostPeerError):
        workers.read("w1", MARKS, 1, 0.0)
    with pytest.raises(AgentBusyError, match="has 1 workers"):
        workers.start("w5", WorkerLaunch(("true",), {}, 0))
    workers.end_all()
    assert workers.wait_for_none(WAIT_S)


def test_a_driver_loses_a_worker_whose_agent_is_silent_and_waits_for_one_that_is_late(
    agent: WorkerAgent, client: AgentClient
) -> None:
    writer = OutputWriter(None, 1, False)
    with socket.create_server((HOST, 0)) as nobody:
        port = nobody.getsockname()[1]
    end = RemoteWorker(AgentClient(HOST, port, SECRET), "a", "w1", launch("true"), 0.5).run(writer, [])
    assert (end.exit_code, end.was_stopped) == (LOST, False)
    end = RemoteWorker(client, "earlier", "w1", launch("true"), WAIT_S).run(writer, [])
    assert end.exit_code == LOST
    stop = threading.Event()
    stop.set()
    end = RemoteWorker(AgentClient(HOST, port, SECRET), "a", "w1", launch("true"), WAIT_S).run(writer, [stop])
    assert end.was_stopped
    end = RemoteWorker(client, agent.name, "w2", launch("exit 3"), WAIT_S).run(writer, [])
    assert (end.exit_code, end.was_stopped) == (3, False)


def test_the_secret_does_not_travel() -> None:
    variables = {"PADDLE_SECRET": SECRET, "HOROVOD_ELASTIC": "1"}
    found = describe_launch(["a"], SlotInfo("h", 1, 0, 0, 2, 1, 2), WorkerEvents([], "i", 3, "u"), variables)
    assert SECRET.encode() not in found.encode()
    assert (found.argv, found.rank, found.environ["HOROVOD_ELASTIC"]) == (("a",), 1, "1")


def test_a_port_that_is_taken_and_a_secret_that_is_missing_are_named(agent: WorkerAgent) -> None:
    with pytest.raises(PortInUseError, match="another process holds this port"):
        WorkerAgent(AgentOptions(agent.port, HOST), {"PADDLE_SECRET": SECRET})
    with pytest.raises(ConfigError, match="set PADDLE_SECRET"):
        WorkerAgent(AgentOptions(0), {})


def test_flags_of_an_agent() -> None:
    assert parse_agent_options([]) == AgentOptions(7171, "", 60.0, 20.0)
    assert parse_agent_options(["--port", "1", "--address", "h", "--driver-timeout=2", "--leave-timeout=3"]) == (
        1,
        "h",
        2,
        3,
    )
    for flags in ("--port x", "--port 65536", "--driver-timeout nan", "--leave-timeout -1", "more"):
        with pytest.raises(UsageError):
            parse_agent_options(flags.split())
