"""A job of a master on this machine: master, parameter servers and trainers as processes, and tasks that can be held.

Every entry of the list is a task of LINES samples. A test can hold an entry: a trainer that reads it trains the first
batches, and then waits in the middle of the entry until the test releases it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
from pathlib import Path
from typing import NamedTuple

from waiting import DEADLINE_S, until

from paddle_base.recordio.index import name_chunks
from paddle_base.recordio.layout import Compression
from paddle_base.recordio.writing import RecordIOWriter

LINES, BATCH = 24, 4
RECORD = 40  # bytes of a record
CONFIG = """
from paddle.trainer_config_helpers import *
define_py_data_sources2('train.list', 'test.list', module='held_provider', obj='process')
settings(batch_size=get_config_arg('batch', int, 4), learning_rate=get_config_arg('rate', float, 0.02),
         is_async=get_config_arg('is_async', bool, False), learning_method=MomentumOptimizer(0.5))
x = data_layer('x', 3)
y = data_layer('y', 2)
outputs(classification_cost(input=fc_layer(x, 2, act=SoftmaxActivation()), label=y))
"""
PROVIDER = """
import os, time
from paddle.trainer.PyDataProvider2 import *
from paddle.trainer.recordio import reader

def read(path):
    is_text = path.startswith('part-') or path == 'test.txt'
    lines = open(path) if is_text else (record.decode() for record in reader(path))
    for number, line in enumerate(lines):
        if number == (20 if is_text else 10) and os.path.exists(path + '.held'):
            os.write(1, f'holds {path}\\n'.encode())  # at once: the trainer prints dots into the same file
            while os.path.exists(path + '.held'):
                time.sleep(0.01)
        yield line

@provider(input_types={'x': dense_vector(3), 'y': integer_value(2)}, should_shuffle=False)
def process(settings, path):
    for line in read(path):
        a, b, c, label = line.split()
        yield {'x': [float(a), float(b), float(c)], 'y': int(label)}
"""


class Missing(NamedTuple):
    """What a wait for a text has not found, with the logs of that moment."""

    job: TaskJob
    text: str
    names: tuple[str, ...]

    def __str__(self):
        return f"{self.text!r} in:\n" + "\n".join(map(self.job.log, self.names))


class TaskJob:
    """The programs of a job in one folder; `<name>.log` is the log of a program."""

    samples = LINES  # samples of a task
    server_flags = ()

    def __init__(self, folder: Path, paddle, make_lines, *, tasks=6, is_async=False, passes=2, master=()):
        self.folder, self.paddle, self.tasks, self.passes = folder, paddle, tasks, passes
        folder.mkdir()
        (folder / "config.py").write_text(CONFIG)
        (folder / "held_provider.py").write_text(PROVIDER)
        lines = make_lines(tasks * LINES)
        self.parts = [f"part-{number}" for number in range(tasks)]
        for number, part in enumerate(self.parts):
            self.write(part, lines[number * LINES : (number + 1) * LINES])
        self.write("train.list", self.parts)
        self.write("test.txt", make_lines(8, seed=2))
        self.write("test.list", ["test.txt"])
        self.config_args = f"--config_args=is_async={int(is_async)}"
        self.flags = ("--nics=lo", "--store_dir=store")
        self.master_flags = (f"--num_passes={passes}", "--member_ttl=2s", "--linger=10s", *master)
        self.programs = {}

    def write(self, name, lines):
        (self.folder / name).write_text("".join(line + "\n" for line in lines))

    # ----- Programs -----

    def start(self, name, *arguments):
        self.programs[name] = self.paddle.start(self.folder, *arguments, *self.flags, log=f"{name}.log")
        return self.programs[name]

    def start_master(self, name="master"):
        return self.start(name, "master", "--port=0", *self.master_flags)

    def start_server(self, name, *flags):
        return self.start(name, "pserver", "--num_pservers=2", "--etcd_ttl=2s", *self.server_flags, *flags)

    def start_trainer(self, name, *flags):
        options = ("--config=config.py", self.config_args, "--save_dir=out", "--log_period=4", "--wait=60s")
        return self.start(name, "train", *options, *flags)

    def start_all(self, *trainers, flags=()):
        self.start_master()
        for name in ("server-a", "server-b"):
            self.start_server(name)
        for name in trainers:
            self.start_trainer(name, *flags)

    def signal(self, name, number):
        self.programs[name].send_signal(number)

    def wait(self, *names):
        """Wait for programs (by default for all); return their exit statuses."""
        return [self.programs[name].wait(DEADLINE_S) for name in names or self.programs]

    def kill(self, name):
        self.signal(name, signal.SIGKILL)
        assert self.wait(name) == [-signal.SIGKILL]
        del self.programs[name]

    # ----- Tasks -----

    def hold(self, *parts):
        for part in parts:
            (self.folder / f"{part}.held").touch()

    def release(self, *parts):
        for part in parts:
            (self.folder / f"{part}.held").unlink()

    def await_holder(self, part, *names):
        """Wait until one of these trainers has a held task; return the trainer."""
        return self.await_any(f"holds {part}\n", *names)

    # ----- The logs of the programs -----

    def log(self, name="master"):
        return (self.folder / f"{name}.log").read_text()

    def await_text(self, text, name="master"):
        self.await_any(text, name)

    def await_any(self, text, *names):
        """Wait until the log of one of these programs has a text; return the program."""
        return until(lambda: next((name for name in names if text in self.log(name)), None), Missing(self, text, names))

    def await_all(self, text, count, *names):
        """Wait until the logs of programs have a text so many times, counted together."""
        until(
            lambda: sum(self.log(name).count(text) for name in names) >= count,
            Missing(self, f"{count} times {text}", names),
        )

    def accounts(self, master="master"):
        """Return (done, discarded, dispatched, samples) for each pass."""
        line = r"pass (\d+) is done: (\d+) tasks finished, (\d+) discarded, (\d+) dispatched, (\d+) samples"
        found = re.findall(line, self.log(master))
        assert [int(number) for number, *_ in found] == list(range(len(found)))
        return [tuple(map(int, rest)) for _, *rest in found]

    def whole_pass(self, *, more=0):
        """Return the account of a pass in which every task was finished once; `more` tasks were dispatched twice."""
        return (self.tasks, 0, self.tasks + more, self.tasks * self.samples)

    def trained(self, *names):
        """Return the number of samples of all finished tasks, from the trainers' logs."""
        return sum(int(samples) for name in names for samples in re.findall(r" (\d+) samples in ", self.log(name)))

    def tests(self, *names):
        """Return the costs of all tests, in the order of the trainers."""
        return [float(cost) for name in names for cost in re.findall(r"Test samples=8 cost=(\S+)", self.log(name))]

    def saved(self):
        return sorted(path.name for path in (self.folder / "out").glob("pass-*") if (path / "done").exists())

    def all_saved(self):
        return [f"pass-{number:05d}" for number in range(self.passes)]

    # ----- RecordIO -----

    def to_records(self):
        """Replace the texts of the list by RecordIO files with two chunks each; each chunk is a task."""
        for number, part in enumerate(self.parts):
            with RecordIOWriter(self.folder / f"records-{number}", Compression.NONE, LINES // 2 * RECORD) as file:
                for line in (self.folder / part).read_text().splitlines():
                    file.write(line.encode().ljust(RECORD))
        files = [f"records-{number}" for number in range(len(self.parts))]
        self.write("train.list", files)
        with contextlib.chdir(self.folder):
            self.parts = list(name_chunks(files))
        self.tasks, self.samples = len(self.parts), LINES // 2
        return self

    def forget_store(self):
        shutil.rmtree(self.folder / "store")
