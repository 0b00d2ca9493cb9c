"""Real servers as processes, real clients as threads, on free loopback ports."""

import contextlib
import os
import random
import signal
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from waiting import until

from pserver.client.client import Client
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition

DEADLINE = 60.0
PARAMETERS = [
    ParameterSpec("w", 5000, momentum=0.5),
    ParameterSpec("b", 3, learning_rate=2.0),
    ParameterSpec("v", 3000, gradient_clipping_threshold=1.0),
]
WEIGHT, PLAIN = [ParameterSpec("w", 4)], Optimization()
SIZE = 8003
SETTINGS = Optimization("momentum", 0.01)


def find_ports(count, host="127.0.0.1"):
    """The first of `count` consecutive ports that are free at this moment, below those of outgoing connections."""
    for _ in range(100):
        port = random.SystemRandom().randrange(20000, 32000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for number in range(count):
                stack.enter_context(socket.socket()).bind((host, port + number))
            return port
    raise AssertionError(f"no {count} consecutive free ports on {host}")


class Pserver:
    """A `paddle pserver` process with its log in a file."""

    def __init__(self, fork_server, folder, *flags, host="127.0.0.1", ports=1, trainers=1, port=None, environ=None):
        self.host, self.port = host, port or find_ports(ports, host)
        self.services = [(host, self.port + number) for number in range(ports)]
        self.log = folder / f"pserver-{host}-{self.port}-{time.monotonic_ns()}.log"
        argv = [
            "pserver",
            f"--nics={host}",
            f"--port={self.port}",
            f"--ports_num={ports}",
            f"--num_gradient_servers={trainers}",
            *flags,
        ]
        environ = os.environ | {"PADDLE_PEER_TIMEOUT": "15"} | (environ or {})
        with self.log.open("wb") as log, Path(os.devnull).open("wb") as nothing:
            self.process = fork_server.start(argv, folder, environ, [nothing.fileno(), log.fileno()])

    def text(self):
        return self.log.read_text()

    def wait(self):
        return self.process.wait(DEADLINE)

    def listening(self):
        until(
            lambda: "Waiting parameterServer[0]" in self.text() or self.process.poll() is not None,
            "the server",
            log=self.log,
        )
        return self


@pytest.fixture
def pserver(tmp_path, fork_server):
    """Start servers; whatever is left of them is killed by handle."""
    started = []

    def start(*flags, **options):
        started.append(Pserver(fork_server, tmp_path, *flags, **options))
        return started[-1].listening()

    def start_many(hosts, *flags, ports=1, **options):
        """Start a server with the same ports on each of so many addresses; return the servers and all services."""
        port = find_ports(ports)
        names = [f"127.0.0.{number + 1}" for number in range(hosts)]
        servers = [start(*flags, host=host, ports=ports, port=port, **options) for host in names]
        return servers, [service for server in servers for service in server.services]

    start.many = start_many
    yield start
    for one in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.process.pid, signal.SIGCONT)
        one.process.kill()
        one.process.wait(DEADLINE)


@pytest.fixture
def client():
    """Make clients; they are closed in the end."""
    made = []

    def build(services, trainer_id=0, num_trainers=1, **options):
        made.append(
            Client(
                services,
                trainer_id=trainer_id,
                num_trainers=num_trainers,
                **{"peer_timeout": 15.0, "connect_timeout": DEADLINE, "wait_timeout": DEADLINE} | options,
            )
        )
        return made[-1]

    yield build
    for one in made:
        one.close()


@pytest.fixture
def begin(client):
    """A trainer in its first pass; returns it with its values."""

    def run(services, number=0, total=1, parameters=WEIGHT, settings=PLAIN, values=None, state=None, **options):
        one = client(services, number, total, **options)
        values = np.zeros(partition.count_elements(parameters), np.float32) if values is None else values
        one.join(parameters, settings)
        one.initialise(values, state)
        one.start_pass()
        return one, values

    return run


class Crowd:
    """Functions run side by side, each as one trainer; the first exception of each is kept."""

    def __init__(self):
        self.threads, self.errors, self.results = [], {}, {}

    def start(self, name, function, *arguments):
        def run():
            try:
                self.results[name] = function(*arguments)
            except Exception as exc:
                self.errors[name] = exc

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.threads.append(thread)

    def run(self, count, function, *arguments):
        """Run function(number, ...) for so many numbers, which must not fail; return the results in their order."""
        for number in range(count):
            self.start(number, function, number, *arguments)
        self.end()
        return [self.results[number] for number in range(count)]

    def end(self):
        self.join()
        assert self.errors == {}

    def join(self):
        for thread in self.threads:
            thread.join(DEADLINE)
            assert not thread.is_alive(), f"a trainer did not end; errors of others: {self.errors}"
        return self


@pytest.fixture
def crowd():
    return Crowd()


def make_gradients(trainers, batches, seed=0):
    """Gradients whose float32 sum depends on the order."""
    random = np.random.default_rng(seed)
    return (
        random.standard_normal((trainers, batches, SIZE)) * 10.0 ** random.integers(-3, 3, (trainers, batches, 1))
    ).astype(np.float32)


@pytest.fixture
def train(client):
    """One trainer's whole job: `batches[pass]` gradients in each pass; returns its values and says goodbye."""

    def run(services, trainer_id, num_trainers, passes, delay=None, settings=SETTINGS, **options):
        one = client(services, trainer_id, num_trainers, **options)
        values = np.arange(SIZE, dtype=np.float32) % 7 if trainer_id == 0 else np.full(SIZE, np.nan, np.float32)
        one.join(PARAMETERS, settings)
        one.initialise(values)
        for batches in passes:
            one.start_pass()
            for gradient in batches:
                if delay:
                    delay()
                one.push_pull(gradient, values, 10)
            one.finish_pass(values)
        one.goodbye()
        return values

    return run


@pytest.fixture
def tools():
    """What tests need besides fixtures, without importing a conftest by name."""

    class Tools:
        parameters, size, settings, deadline = PARAMETERS, SIZE, SETTINGS, DEADLINE

    Tools.until, Tools.find_ports, Tools.gradients = (
        staticmethod(until),
        staticmethod(find_ports),
        staticmethod(make_gradients),
    )
    return Tools
