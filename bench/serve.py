"""Measure how many requests `paddle serve` answers per second, and how long the slowest percent waits.

usage: bench/serve.py [--seconds S] [--rounds N] [--clients N ...]

The network reads an image of 784 numbers: fully connected layers of 2048, 2048 and 10. Each client is a thread of this
process that sends a request with one image when it has the answer to the last one, over a connection that stays open.
The contestants are services in their own processes, and run in alternation:

    batches  as by default: a batch has what arrived while the last one was computed
    waits    --batch_wait_ms=2
    single   --batch_size=1: every request alone

The ratio compares with `single` in the same round. The last column has the samples of a batch.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # comes before bench/, which also has a module `pserver`

import argparse
import contextlib
import http.client
import itertools
import json
import os
import re
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from machine import describe_machine, spread
from processes import find_port, thread_environment
from timing import HERE, PADDLE

import paddle.v2 as paddle
from paddle_base.runtime.network.pages import PAGE_S

CONTESTANTS = {"batches": (), "waits": ("--batch_wait_ms=2",), "single": ("--batch_size=1",)}
HEADER = """
| clients | service | requests/s | ratio | median | p99 | samples of a batch |
|---|---|---|---|---|---|---|"""
DEADLINE_S = 60.0
PIXELS = 784


class Figures(NamedTuple):
    """The figures of a measurement; the times are milliseconds."""

    rate: float
    median: float
    p99: float
    batch: float


def write_model(directory: Path) -> None:
    """Writes the tar file and the topology of a network with random parameters."""
    layer = paddle.layer.data(name="img", type=paddle.data_type.dense_vector(PIXELS))
    for size in (2048, 2048):
        layer = paddle.layer.fc(input=layer, size=size, act=paddle.activation.Relu())
    layer = paddle.layer.fc(input=layer, size=10, act=paddle.activation.Softmax())
    parameters = paddle.parameters.create(layer)
    draw = np.random.default_rng(1)
    for name in parameters.names():
        parameters.set(name, draw.normal(0, 0.05, parameters.get_shape(name)))
    with (directory / "model.tar").open("wb") as file:
        parameters.to_tar(file)
    with (directory / "topology").open("wb") as file:
        paddle.topology.Topology(layer).serialize_for_inference(file)


@contextlib.contextmanager
def serve(directory: Path, *flags: str) -> Iterator[int]:
    """Runs a service, and yields its port.

    Raises: SystemExit: it does not start, or does not end with status 0.
    """
    port = find_port(["127.0.0.1"])
    command = [*PADDLE, "serve", "--model=model.tar", "--topology=topology", f"--port={port}", *flags]
    environ = thread_environment(1, PYTHONPATH=str(HERE.parent))
    with (directory / f"{port}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, env=environ, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not is_ready(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(
                    f"bench/serve.py: the service does not start:\n{(directory / f'{port}.log').read_text()}"
                )
            time.sleep(0.05)
        yield port
        process.terminate()
        if process.wait(DEADLINE_S):
            raise SystemExit(f"bench/serve.py: the service ended with status {process.returncode}")
    finally:
        process.kill()
        process.wait()


def is_ready(port: int) -> bool:
    try:
        return ask(port, "/readyz") == "ok\n"
    except OSError:
        return False


def ask(port: int, path: str) -> str:
    """Returns a page of a service."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)) as client:
        client.request("GET", path)
        return client.getresponse().read().decode()


def read_page(port: int) -> str:
    """Returns the page of metrics, which the service makes anew once a second."""
    time.sleep(PAGE_S + 0.1)
    return ask(port, "/metrics")


def read_counter(page: str, name: str) -> float:
    """Returns the value of a metric without labels; 0 without the library of metrics."""
    found = re.search(rf"^{name} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else 0.0


def send(port: int, body: bytes, until: float, times: list[float]) -> None:
    """Sends requests one after another, and appends the seconds of each."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)) as client:
        while time.monotonic() < until:
            began = time.perf_counter()
            client.request("POST", "/", body, {"Content-Type": "application/json"})
            answer = client.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise SystemExit(f"bench/serve.py: status {answer.status}: {text.decode()}")
            times.append(time.perf_counter() - began)


def measure(port: int, clients: int, seconds: float) -> Figures:
    """Returns the figures of some clients, after a request of each that does not count."""
    image = [round(float(one), 3) for one in np.random.default_rng(2).random(PIXELS)]
    body = json.dumps({"img": image}).encode()
    for _ in range(clients):
        send(port, body, time.monotonic() + 0.001, [])
    before = read_page(port)
    times: list[list[float]] = [[] for _ in range(clients)]
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=send, args=(port, body, until, one)) for one in times]
    began = time.perf_counter()
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    spent = time.perf_counter() - began
    after = read_page(port)
    samples, batches = (
        read_counter(after, name) - read_counter(before, name)
        for name in ("paddle_serve_samples_total", "paddle_serve_batches_total")
    )
    found = np.sort(np.concatenate(times)) * 1e3
    return Figures(
        len(found) / spent, float(np.median(found)), float(np.quantile(found, 0.99)), samples / max(batches, 1)
    )


def bench(directory: Path, clients: int, rounds: int, seconds: float) -> list[str]:
    """Returns a row for each contestant."""
    found: dict[str, list[Figures]] = {name: [] for name in CONTESTANTS}
    with contextlib.ExitStack() as running:
        ports = {name: running.enter_context(serve(directory, *flags)) for name, flags in CONTESTANTS.items()}
        for _, (name, port) in itertools.product(range(rounds), ports.items()):
            found[name].append(measure(port, clients, seconds))
    rows = []
    for name, figures in found.items():
        ratios = [one.rate / other.rate for one, other in zip(figures, found["single"], strict=True)]
        rates = spread([one.rate for one in figures])
        times = [
            f"{statistics.median(column):.1f} ms" for column in zip(*((f.median, f.p99) for f in figures), strict=True)
        ]
        batch = f"{statistics.median(one.batch for one in figures):.1f}"
        rows.append(f"| {' | '.join([str(clients), name, rates, spread(ratios), *times, batch])} |")
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Prints a row for each number of clients and each contestant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    options = parser.parse_args(arguments)
    print(describe_machine())
    with tempfile.TemporaryDirectory() as scratch:
        write_model(Path(scratch))
        print(HEADER)
        for clients in options.clients:
            print(*bench(Path(scratch), clients, options.rounds, options.seconds), sep="\n", flush=True)
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
