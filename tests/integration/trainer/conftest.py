"""A small job in a directory of its own, and `paddle` commands that end with the test."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked import Forked, ForkServer
from ports import free_ports
from waiting import DEADLINE_S, until

CONFIG = """
from paddle.trainer_config_helpers import *
average = get_config_arg('average', float, 0)
test_list = 'test.list' if get_config_arg('test_list', bool, False) else None
define_py_data_sources2('train.list', test_list, module='small_provider', obj=get_config_arg('obj', str, 'process'))
settings(batch_size=get_config_arg('batch', int, 4), learning_rate=get_config_arg('rate', float, 0.05),
         model_average=ModelAverage(average) if average else None,
         learning_method=AdamOptimizer() if get_config_arg('adam', bool, False) else MomentumOptimizer(0.5))
x = data_layer('x', 3)
if get_config_arg('cut', bool, False):
    # a layer whose record has `is_coupled`, so batches are cut however small they are
    x = resize_layer(x, 3)
y = data_layer('y', 2)
outputs(classification_cost(input=fc_layer(x, 2, act=SoftmaxActivation()), label=y))
"""
PROVIDER = """
from paddle.trainer.PyDataProvider2 import *
TYPES = {'x': dense_vector(3), 'y': integer_value(2)}

def samples(path):
    for line in open(path):
        a, b, c, label = line.split()
        yield {'x': [float(a), float(b), float(c)], 'y': int(label)}

@provider(input_types=TYPES, should_shuffle=False)
def process(settings, path):
    for sample in samples(path):
        yield sample

@provider(input_types=TYPES, cache=CacheType.CACHE_PASS_IN_MEM)
def shuffled(settings, path):
    for sample in samples(path):
        yield sample

@provider(input_types=TYPES, should_shuffle=False)
def raising(settings, path):
    for number, sample in enumerate(samples(path)):
        if number == 9:
            raise ValueError('the tenth line is odd')
        yield sample

@provider(input_types=TYPES, should_shuffle=False)
def stuck(settings, path):
    import threading
    print('the provider is stuck', flush=True)
    threading.Event().wait(60)
    yield next(samples(path))

@provider(input_types=TYPES, should_shuffle=False)
def endless(settings, path):
    while True:
        for sample in samples(path):
            yield sample
"""


def make_lines(count, seed=1):
    import numpy as np

    rows = np.random.default_rng(seed).normal(size=(count, 3)).round(3)
    return [f"{a} {b} {c} {int(a + b > c)}" for a, b, c in rows.tolist()]


def lay_out(folder, lines, test_lines=()):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.py").write_text(CONFIG)
    (folder / "small_provider.py").write_text(PROVIDER)
    for name, content in (("train", lines), ("test", test_lines)):
        (folder / f"{name}.list").write_text(f"{name}.txt\n")
        (folder / f"{name}.txt").write_text("".join(line + "\n" for line in content))
    return folder


class Paddle:
    """Runs `paddle` commands; whatever still runs when the test ends is killed by its handle."""

    def __init__(self, server: ForkServer):
        self.server = server
        self.processes: list[Forked | subprocess.Popen] = []

    def command(self):
        return [sys.executable, "-m", "paddle"]

    def start(self, folder, *arguments, log="log"):
        with (folder / log).open("wb") as output:
            environ = dict(os.environ, OPENBLAS_NUM_THREADS="1")
            process = self.server.start(["paddle", *arguments], folder, environ, [output.fileno()] * 2)
        self.processes.append(process)
        return process

    def run(self, folder, command, log="log"):
        """Starts a command line, in which a whole Python begins."""
        with (folder / log).open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(os.environ, OPENBLAS_NUM_THREADS="1"),
            )
        self.processes.append(process)
        return process

    def train(self, folder, *arguments, timeout=60):
        """Returns (exit status, the text of stderr and stdout)."""
        process = self.start(folder, "train", *arguments)
        status = process.wait(timeout)
        return status, (folder / "log").read_text()

    def trained(self, folder, *arguments):
        """Returns the log of a training that has ended well."""
        status, log = self.train(folder, *arguments)
        assert status == 0, log
        return log

    def close(self):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait(60)


@pytest.fixture
def paddle(fork_server):
    with contextlib.closing(Paddle(fork_server)) as runner:
        yield runner


@pytest.fixture(scope="module")
def paddle_of_module(fork_server):
    """The same for runs that several tests look at."""
    with contextlib.closing(Paddle(fork_server)) as runner:
        yield runner


@pytest.fixture
def job(tmp_path):
    """A folder with config, provider, 20 training lines and 8 test lines."""
    return lay_out(tmp_path / "job", make_lines(20), make_lines(8, seed=2))


def wait_for(condition, timeout=DEADLINE_S):
    """Wait until the condition holds; the error at the deadline shows the condition's line."""
    until(condition, seconds=timeout)


def free_port(count=1):
    """The first of `count` consecutive ports that are free at this moment."""
    return free_ports(count)[0]


@pytest.fixture(scope="session")
def tools():
    """The helpers above, for test modules (which cannot import a conftest)."""
    return type(
        "Tools",
        (),
        {
            "lay_out": staticmethod(lay_out),
            "make_lines": staticmethod(make_lines),
            "wait_for": staticmethod(wait_for),
            "free_port": staticmethod(free_port),
            "repository": Path(__file__).parents[3],
        },
    )
