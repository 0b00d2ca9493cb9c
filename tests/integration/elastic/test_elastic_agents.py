"""Workers on other hosts: real agents at loopback addresses, a driver, and a loop that runs until it is told."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import elastic_hold
import elastic_worker
import pytest
from elastic_agents import LIMIT_S, SECRET, Agents, started_agents
from ports import free_ports
from test_elastic_run import run, started, wait_for_end
from waiting import until

from paddle_cluster.elastic.launch import main

A, B = "127.0.0.2", "127.0.0.3"


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    with started_agents(tmp_path, free_ports(1)[0], A, B) as found:
        yield found


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_SECRET", SECRET)


def list_flags(agents: Agents, *more: str) -> list[str]:
    flags = ["-np", "3", "--min-np", "2", "-H", f"{A}:2,{B}:1", "--agents", "--agent-port", str(agents.port)]
    return [*flags, "--agent-timeout", "2", *more]


def hold(directory: Path) -> list[str]:
    return [sys.executable, str(Path(elastic_hold.__file__)), str(directory)]


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def wait_for_size(directory: Path, size: int) -> None:
    until(lambda: read(directory / "size") == str(size), f"{size} workers")


def read_pids(directory: Path, names: str = "127.0.0.?.?") -> dict[str, str]:
    return {path.name: path.read_text() for path in (directory / "pids").glob(names)}


def test_a_host_whose_agent_is_killed_is_left_out_and_comes_back_with_a_new_agent(
    tmp_path: Path, agents: Agents
) -> None:
    with started(tmp_path, *list_flags(agents), worker=hold(tmp_path)) as process:
        wait_for_size(tmp_path, 3)
        first = read_pids(tmp_path)
        agents.kill(B)
        wait_for_end(int(first[f"{B}.0"]))
        wait_for_size(tmp_path, 2)
        agents.start(B)
        wait_for_size(tmp_path, 3)
        second = read_pids(tmp_path)
        (tmp_path / "stop").touch()
        output, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, log
    assert {slot for slot in first if first[slot] == second[slot]} == {f"{A}.0", f"{A}.1"}
    shown = sorted(line.split(" steps ")[-1] for line in output.splitlines())
    assert shown == [f"on {A}", f"on {A}", f"on {B}"], output
    assert all(line[:11] in ("[0]<stdout>", "[1]<stdout>", "[2]<stdout>") for line in output.splitlines())


def test_an_agent_that_is_stopped_lets_its_workers_leave_at_their_next_commit(tmp_path: Path, agents: Agents) -> None:
    with started(tmp_path, *list_flags(agents), worker=hold(tmp_path)) as process:
        wait_for_size(tmp_path, 3)
        assert agents.stop(B) == 143
        wait_for_size(tmp_path, 2)
        (tmp_path / "stop").touch()
        _, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, log
    assert "reports FAILURE" not in log
    assert "1 worker has" in agents.log(B)


def test_a_driver_that_was_killed_goes_on_with_the_workers_of_agents(tmp_path: Path, agents: Agents) -> None:
    flags = list_flags(agents, "--store-dir", "store")
    with started(tmp_path, *flags, worker=hold(tmp_path)) as process:
        wait_for_size(tmp_path, 3)
        pids = read_pids(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_S)
    (tmp_path / "stop").touch()
    status, lines, log = run(tmp_path, *flags, worker=hold(tmp_path))
    assert status == 0, log
    assert "generation 1 continues with 3 workers of a driver that has ended" in log
    assert read_pids(tmp_path) == pids
    assert sorted(line[:11] for line in lines) == ["[0]<stdout>", "[1]<stdout>", "[2]<stdout>"]


def test_sigterm_of_a_driver_that_hands_over_leaves_the_workers(tmp_path: Path, agents: Agents) -> None:
    flags = list_flags(agents, "--store-dir", "store", "--hand-over")
    worker = [sys.executable, elastic_worker.__file__, "pid", "pid", "see", "stop"]
    with started(tmp_path, *flags, worker=worker) as process:
        until(lambda: len(list(tmp_path.glob("pid.?"))) == 3, "the workers")
        pids = [read(tmp_path / f"pid.{rank}") for rank in range(3)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 143
    (tmp_path / "stop").touch()
    status, _, log = run(tmp_path, *flags, worker=worker)
    assert status == 0, log
    assert "continues with 3 workers" in log
    assert [read(tmp_path / f"pid.{rank}") for rank in range(3)] == pids


def test_workers_of_an_agent_end_when_there_is_no_driver(tmp_path: Path) -> None:
    with started_agents(tmp_path, free_ports(1)[0]) as agents:
        agents.start(A, "--driver-timeout", "1")
        flags = ["-np", "1", "-H", f"{A}:1", "--min-np", "1", "--agents", "--agent-port", str(agents.port)]
        with started(
            tmp_path, *flags, worker=[sys.executable, elastic_worker.__file__, "pid", "pid", "hang"]
        ) as process:
            until(lambda: read(tmp_path / "pid.0") != "", "the worker")
            process.kill()
            process.wait(LIMIT_S)
        wait_for_end(int(read(tmp_path / "pid.0")))
        until(lambda: "no driver has sent a request about it" in agents.log(A), "the line")


def test_sigterm_of_a_driver_ends_the_workers_of_agents(tmp_path: Path, agents: Agents) -> None:
    worker = ["sh", "-c", "echo $$ > new.$HOROVOD_RANK; mv new.$HOROVOD_RANK pid.$HOROVOD_RANK; exec sleep 600"]
    with started(tmp_path, *list_flags(agents), worker=worker) as process:
        until(lambda: len(list(tmp_path.glob("pid.?"))) == 3, "the workers")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 143
    for rank in range(3):
        wait_for_end(int(read(tmp_path / f"pid.{rank}")))


def test_the_status_of_a_worker_is_that_of_the_job(tmp_path: Path, agents: Agents) -> None:
    flags = ["-np", "1", "-H", f"{A}:1", "--agents", "--agent-port", str(agents.port)]
    status, lines, log = run(tmp_path, *flags, worker=["sh", "-c", "printf 'no end of line'; echo bad >&2; exit 7"])
    assert status == 7, log
    assert lines == ["[0]<stdout>:no end of line"]
    assert "[0]<stderr>:bad" in log
    assert run(tmp_path, *flags, worker=["no-such-program"])[0] == 127


def test_much_output_comes_out_whole(tmp_path: Path, agents: Agents) -> None:
    """More than an agent keeps: the worker waits for the driver."""
    flags = ["-np", "1", "-H", f"{A}:1", "--agents", "--agent-port", str(agents.port)]
    status, lines, log = run(tmp_path, *flags, worker=["seq", "300000"])
    assert status == 0, log[-2000:]
    assert sorted(lines, key=lambda line: int(line[12:])) == [f"[0]<stdout>:{number}" for number in range(1, 300001)]


def test_a_host_without_agent_is_named_once(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    flags = ["-np", "1", "-H", "127.0.0.4:1", "--agents", "--agent-port", str(port), "--elastic-timeout", "2"]
    status, _, log = run(tmp_path, *flags, worker=["true"])
    assert status == 69
    line = f"no worker can start on 127.0.0.4 now: no agent answers at 127.0.0.4:{port}"
    assert log.count(line) == 1
    assert "run `paddle elastic agent` there" in log


def test_an_agent_refuses_a_driver_with_another_secret(
    tmp_path: Path, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLE_SECRET", "another secret")
    flags = ["-np", "1", "-H", f"{A}:1", "--agents", "--agent-port", str(agents.port), "--elastic-timeout", "2"]
    status, _, log = run(tmp_path, *flags, worker=["touch", "ran"])
    assert status == 69
    assert "refuses the secret" in log
    assert not (tmp_path / "ran").exists()


def test_an_agent_without_secret_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDLE_SECRET")
    assert main(["agent", "--port", "0"]) == 78
