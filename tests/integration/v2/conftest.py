"""Programs of paddle.v2 as processes, beside servers and masters."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from forked import ForkServer

# the network of tests/integration/trainer/conftest.py
NETWORK = """
import os, random, sys
import paddle.v2 as paddle

def network(optimizer=None, sgd=paddle.trainer.SGD, **more):
    x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(3))
    y = paddle.layer.data(name="y", type=paddle.data_type.integer_value(2))
    output = paddle.layer.fc(input=x, size=2, act=paddle.activation.Softmax())
    cost = paddle.layer.classification_cost(input=output, label=y)
    parameters = paddle.parameters.create(cost)
    optimizer = optimizer or paddle.optimizer.Momentum(momentum=0.5, learning_rate=0.05)
    return parameters, sgd(cost, parameters, optimizer, **more)

def lines(path):
    def reader():
        for line in open(path):
            a, b, c, label = line.split()
            yield [float(a), float(b), float(c)], int(label)
    return reader

def save(parameters, name):
    with open(name, "wb") as file:
        parameters.to_tar(file)
"""


class Programs:
    """Starts `paddle` commands; whatever still runs when the test ends is killed."""

    def __init__(self, server: ForkServer, folder: Path) -> None:
        self._server, self.folder = server, folder
        self._running: list = []

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(NETWORK + text)

    def start(self, name: str, *arguments: object, module: str = "paddle", **environ: str):
        """Start a command, or `python -m` a module; its log is `<name>.log`."""
        with (self.folder / f"{name}.log").open("wb") as output:
            process = self._server.start(
                [module, *map(str, arguments)],
                self.folder,
                os.environ | {"OPENBLAS_NUM_THREADS": "1"} | environ,
                [output.fileno()] * 2,
            )
        self._running.append(process)
        return process

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def close(self) -> None:
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait(60)


@pytest.fixture
def programs(fork_server: ForkServer, tmp_path: Path):
    with contextlib.closing(Programs(fork_server, tmp_path)) as runner:
        yield runner
