"""Servers of task jobs as processes: they claim an index, are killed, frozen and stopped, and go on."""

import contextlib
import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import requests
from etcd_process import BINARY, EtcdProcess
from ports import free_ports
from waiting import until

from paddle_base.registry.choice import open_registry
from paddle_base.registry.records import JobEnd, find_checkpoint
from paddle_base.registry.servers import ServerRecord, describe_missing, find_servers
from paddle_base.runtime.errors import LostPeerError, PaddleError
from pserver.client.tasks.services import JoinedServices, ServiceAddress, TaskModel
from pserver.optim.settings import Optimization, ParameterSpec

DEADLINE = 60.0
TTL = 5.0  # a busy machine may keep a thread from renewing for seconds
DENSE = [ParameterSpec("w", 5000), ParameterSpec("b", 3)]
TABLES = [ParameterSpec("t", 60, sparse_update=True, row_width=6)]
SIZE = 5003
ASYNC = Optimization("adam", 0.01, algorithm="async_sgd")
SYNC = Optimization("adam", 0.01)


class ServerProcess:
    """`paddle pserver` with a store, with its log in a file."""

    def __init__(self, fork_server, folder, *flags):
        self.log = folder / f"server-{time.monotonic_ns()}.log"
        environ = os.environ | {"PADDLE_PEER_TIMEOUT": "15", "PADDLE_SECRET": "hush"}
        argv = ["pserver", "--nics=lo", f"--etcd_ttl={TTL:g}s", *flags]
        with self.log.open("wb") as log, Path(os.devnull).open("wb") as nothing:
            self.process = fork_server.start(argv, folder, environ, [nothing.fileno(), log.fileno()])

    def text(self):
        return self.log.read_text()

    def wait_for(self, text, seconds=DEADLINE):
        end = time.monotonic() + seconds
        while text not in self.text():
            assert time.monotonic() < end, f"no {text!r} in: {self.text()}"
            assert self.process.poll() is None or text in self.text(), f"it has ended: {self.text()}"
            time.sleep(0.01)
        return self

    def serving(self):
        return self.wait_for("serving as server")

    def signal(self, number):
        os.kill(self.process.pid, number)

    def kill(self):
        self.process.kill()
        assert self.process.wait(DEADLINE) == -signal.SIGKILL

    def end(self):
        status = self.process.wait(DEADLINE)
        assert status is not None, self.text()
        return status


class Job:
    """The servers and trainers of a job at one place: a directory, or an etcd."""

    def __init__(self, fork_server, folder, endpoint=""):
        self._fork_server, self.folder = fork_server, folder
        self.flag = f"--etcd_endpoints={endpoint}" if endpoint else f"--store_dir={folder / 'store'}"
        self.registry = open_registry(
            [endpoint] if endpoint else [], None if endpoint else folder / "store", "job", TTL
        )
        self.started, self.joined = [], []

    def server(self, *flags, count=1):
        flags = (self.flag, f"--num_pservers={count}", f"--checkpoint_path={self.folder / 'snapshots'}", *flags)
        self.started.append(ServerProcess(self._fork_server, self.folder, *flags))
        return self.started[-1]

    def find(self):
        """All servers, when they are there."""
        end = time.monotonic() + DEADLINE
        while missing := describe_missing(found := find_servers(self.registry)):
            assert time.monotonic() < end, missing
            time.sleep(0.02)
        return found

    def join(self, settings=ASYNC, tables=(), number=0, incarnation=1):
        """A trainer at all servers."""
        return self.join_at(self.find(), settings, tables, number, incarnation)

    def join_at(self, servers, settings=ASYNC, tables=(), number=0, incarnation=1, **more):
        made = JoinedServices(
            [ServiceAddress(one.host, port, one.attempt) for one in servers for port in one.ports],
            [ServiceAddress(one.host, port, one.attempt) for one in servers for port in one.sparse_ports],
            TaskModel(DENSE, tables, settings),
            trainer_id=number,
            job="job",
            secret="hush",
            uid=f"pod-{number}",
            incarnation=incarnation,
            **{"peer_timeout": 15.0, "connect_timeout": DEADLINE} | more,
        )
        self.joined.append(made)
        return made

    @property
    def files(self):
        return sorted(path.name for path in (self.folder / "snapshots" / "job").iterdir())

    def close(self):
        for one in self.joined:
            one.close()
        for one in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.process.pid, signal.SIGCONT)
            one.process.kill()
            one.process.wait(DEADLINE)


@pytest.fixture
def job(fork_server, tmp_path):
    made = Job(fork_server, tmp_path)
    yield made
    made.close()


@pytest.fixture
def etcd(tmp_path):
    if not BINARY.exists():
        pytest.skip("tests/etcd/build compiles the etcd that this needs")
    with EtcdProcess(tmp_path) as process:
        yield process


@pytest.fixture(params=["directory", "etcd"])
def any_job(request, fork_server, tmp_path):
    endpoint = request.getfixturevalue("etcd").endpoint if request.param == "etcd" else ""
    made = Job(fork_server, tmp_path, endpoint)
    yield made
    made.close()


def first_values():
    return np.arange(SIZE, dtype=np.float32) % 7


def gradient(number):
    return np.random.default_rng(number).standard_normal(SIZE).astype(np.float32)


def push(services, number):
    """Push number of an asynchronous trainer; return the values."""
    values = np.zeros(SIZE, np.float32)
    services.begin_counted_push(gradient(number), values, 8, {"push": number, "pass": 0})
    services.finish_push()
    return values


def stored(job, step):
    """The registry's snapshot after so many steps, when it is there and the one before it is deleted."""

    def look():
        found = find_checkpoint(job.registry, 0)
        return found if found is not None and found.step >= step else None

    found = until(look, f"the snapshot after {step} steps")
    until(lambda: len(job.files) == 1, f"{job.folder} to hold one snapshot")
    return found


def run_without_loss(fork_server, folder, pushes):
    """The values after so many pushes to a server that nobody kills."""
    job = Job(fork_server, folder)
    try:
        job.server("--job=job")
        services = job.join()
        services.give(first_values(), np.zeros(0, np.float32))
        return [push(services, number) for number in range(1, pushes + 1)][-1]
    finally:
        job.close()


def test_a_server_that_is_killed_comes_back_with_values_optimiser_and_counters(any_job, fork_server, tmp_path):
    job = any_job
    first = job.server("--checkpoint_interval=0.1s").serving()
    services = job.join()
    services.give(first_values(), np.zeros(0, np.float32))
    for number in range(1, 6):
        push(services, number)
    stored(job, 5)
    first.kill()
    with pytest.raises(LostPeerError):
        push(services, 6)
    services.close()
    second = job.server("--checkpoint_interval=0.1s")
    second.wait_for("goes on after 5 steps").serving()
    again = job.join(incarnation=1)
    at_once = push(again, 5)  # it was applied before
    again.fetch(values := np.zeros(SIZE, np.float32), 0)
    assert (at_once == values).all()
    last = [push(again, number) for number in range(6, 9)][-1]
    (tmp_path / "quiet").mkdir()
    assert (last == run_without_loss(fork_server, tmp_path / "quiet", 8)).all()
    assert stored(job, 8).step == 8  # the period goes on after the recovery


def test_a_server_that_is_stopped_stores_its_state_and_gives_its_index_back(any_job):
    job = any_job
    first = job.server(count=1).serving()
    services = job.join()
    services.give(first_values(), np.zeros(0, np.float32))
    values = push(services, 1)
    first.signal(signal.SIGTERM)
    assert first.end() == 143 and "stopped by SIGTERM" in first.text()
    assert "to go on, start the server again: it resumes from its newest snapshot" in first.text()
    assert find_checkpoint(job.registry, 0).step == 1
    began = time.monotonic()
    job.server().serving()
    again = job.join()
    again.fetch(found := np.zeros(SIZE, np.float32), 0)
    assert (found == values).all()
    assert time.monotonic() - began < DEADLINE


def test_a_frozen_server_that_thaws_answers_nothing_and_ends(any_job):
    """Its trainer is still connected, and its index has another server."""
    job = any_job
    first = job.server("--checkpoint_interval=0.1s").serving()
    services = job.join()
    services.give(first_values(), np.zeros(0, np.float32))
    push(services, 1)
    old = stored(job, 1)
    at = job.find()
    second = job.server()
    second.wait_for("waiting until one of 1 indices of servers is free: index 0 is held by 127.0.0.1:")
    first.signal(signal.SIGSTOP)
    second.serving()
    again = job.join(number=1)
    pushed = push(again, 1)
    values = np.zeros(SIZE, np.float32)
    services.begin_counted_push(gradient(2), values, 8, {"push": 2, "pass": 0})
    services.push_from(0)
    first.signal(signal.SIGCONT)
    with pytest.raises(LostPeerError):
        services.finish_push()
    assert not values.any()
    assert first.end() == 75 and "has lost its claim of" in first.text()
    again.fetch(values, 0)
    assert (values == pushed).all() and find_checkpoint(job.registry, 0) == old
    found = job.find()
    assert found[0].incarnation > at[0].incarnation
    with pytest.raises(PaddleError, match=r"attempt 'ps0\.\d+'"):  # a request of the older incarnation
        job.join_at([ServerRecord(0, at[0].incarnation, found[0].host, found[0].ports)], number=2, connect_timeout=1.0)


def test_servers_of_one_machine_take_the_smallest_free_indices(job):
    servers = [job.server(count=2).serving(), job.server(count=2).serving()]
    assert [f"this is server {index} of 2" in one.text() for index, one in enumerate(servers)] == [True, True]
    third = job.server(count=3)
    third.wait_for("the job began with 2 servers").wait_for("waiting until one of 2 indices of servers is free")
    found = job.find()
    assert len({one.ports for one in found}) == 2
    servers[0].kill()
    third.wait_for("this is server 0 of 2").serving()
    assert [one.incarnation for one in job.find()][1] == found[1].incarnation


def test_servers_end_with_the_job(job):
    servers = [job.server(count=2).serving(), job.server(count=2).serving(), job.server(count=2)]
    servers[2].wait_for("waiting until one of 2 indices")
    job.registry.put("job/end", JobEnd().value)
    assert [one.end() for one in servers] == [0, 0, 0]
    assert "the job is over: all its passes are done" in servers[0].text()
    assert job.server(count=2).end() == 0
    assert not any("@" in name and json.loads(text)["is_over"] is False for name, text in read_all(job).items())


def read_all(job):
    return {path.name: path.read_text() for path in (job.folder / "store/job/registry").iterdir()}


def test_a_server_that_waits_for_an_index_can_be_stopped(any_job):
    any_job.server().serving()
    waiting = any_job.server().wait_for("waiting until one of 1 indices")
    waiting.signal(signal.SIGTERM)
    assert waiting.end() == 143 and "stopped by SIGTERM" in waiting.text()


def test_servers_say_that_the_job_has_failed(job):
    server = job.server().serving()
    job.registry.put("job/end", JobEnd("task 3 failed too often").value)
    assert server.end() == 65 and "the master reports that the job has failed: task 3 failed too often" in server.text()


def test_an_etcd_that_is_away_for_longer_than_a_lease_pauses_the_server(etcd, fork_server, tmp_path):
    """Nobody else can have had its index, because etcd keeps leases while it is down: nothing is lost."""
    job = Job(fork_server, tmp_path, etcd.endpoint)
    try:
        server = job.server().serving()
        before = job.find()
        services = job.join()
        services.give(first_values(), np.zeros(0, np.float32))
        values = push(services, 1)
        etcd.stop()
        server.wait_for("this server answers nothing until the claim is renewed")
        etcd.start()
        server.wait_for("this server answers again")
        services.fetch(found := np.zeros(SIZE, np.float32), 0)
        assert (found == values).all() and job.find() == before
    finally:
        job.close()


def test_the_health_pages_say_what_a_server_waits_for(job):
    ports = free_ports(2)
    first = job.server(f"--metrics_port={ports[0]}").serving()
    second = job.server(f"--metrics_port={ports[1]}")
    second.wait_for("waiting until one of 1 indices")

    def ask(port, page):
        answer = requests.get(f"http://127.0.0.1:{port}/{page}", timeout=10)
        return answer.status_code, answer.text

    assert ask(ports[0], "healthz") == ask(ports[0], "readyz") == (200, "ok\n")
    assert ask(ports[1], "healthz")[0] == 200
    status, text = ask(ports[1], "readyz")
    assert status == 503 and "waiting until one of 1 indices of servers is free" in text
    services = job.join()
    services.give(first_values(), np.zeros(0, np.float32))
    end = time.monotonic() + DEADLINE
    while "paddle_pserver_snapshots_total 1.0" not in (text := ask(ports[0], "metrics")[1]):
        assert time.monotonic() < end, text
        time.sleep(0.1)
    for line in ("paddle_pserver_index 0.0", "paddle_pserver_claimed 1.0", "paddle_pserver_failed_snapshots_total 0.0"):
        assert line in text
    assert 'paddle_pserver_joined_trainers{pserver="127.0.0.1:' in text
    assert "paddle_pserver_index -1.0" in ask(ports[1], "metrics")[1]
    first.kill()
    second.serving()
    assert ask(ports[1], "readyz") == (200, "ok\n")


@pytest.mark.parametrize(
    "flags, status, part",
    [
        (["--index=5"], 64, "--index is 5, and the job has 1 servers"),
        (["--job=a/b"], 64, "--job is 'a/b'"),
        (["--nics=nowhere"], 78, "--nics names 'nowhere'"),
        (["--checkpoint_path=/proc/nowhere"], 74, "cannot write its snapshot /proc/nowhere/job/server-0000-"),
    ],
)
def test_a_server_that_cannot_begin_says_why(job, flags, status, part):
    server = job.server(*flags)
    assert server.end() == status and part in server.text()


def test_a_registry_that_is_away_is_named(fork_server, tmp_path):
    port = free_ports(1)[0]
    server = ServerProcess(fork_server, tmp_path, f"--etcd_endpoints=http://127.0.0.1:{port}")
    assert server.end() == 69 and "no etcd answers" in server.text()
    (tmp_path / "file").write_text("")
    server = ServerProcess(fork_server, tmp_path, f"--store_dir={tmp_path / 'file'}")
    assert server.end() == 74 and "--store_dir: " in server.text()


def test_a_directory_of_snapshots_that_cannot_be_written_holds_the_first_values_back(job):
    server = job.server().serving()
    shutil.rmtree(job.folder / "snapshots")  # it was writable when the server began
    (job.folder / "snapshots").write_text("")
    services = job.join()
    with pytest.raises(PaddleError):
        job.join_at(job.find(), peer_timeout=15.0, wait_timeout=1.0, number=1).give(
            first_values(), np.zeros(0, np.float32)
        )
    server.wait_for("no snapshot is stored; the next attempt is in 10 s: a pserver cannot write its snapshot")
    (job.folder / "snapshots").unlink()
    services.fetch(values := np.zeros(SIZE, np.float32), 0)
    assert (values == first_values()).all() and len(job.files) == 1
