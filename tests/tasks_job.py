"""A job of real `paddle pserver` processes and a directory as store; trainers are threads, the test is the master."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import NamedTuple

from waiting import DEADLINE_S as DEADLINE
from waiting import until

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.registry.choice import open_registry
from paddle_base.registry.records import find_checkpoint
from paddle_base.registry.servers import find_servers
from pserver.optim.settings import Optimization
from trainer.arrays.parameters import ParameterTable
from trainer.updaters.tasks.servers import TaskMembership, TaskServers
from trainer.updaters.tasks.updater import TaskUpdater

SIZE = 4000  # number of elements; every service holds some of them
SYNC = Optimization("momentum", 0.5)
ASYNC = Optimization("momentum", 0.5, algorithm="async_sgd")
PLAIN = (ParameterConfig(name="w", size=SIZE, dims=[1, SIZE]),)


class GivenView(NamedTuple):
    epoch: int = 0
    members: tuple[int, ...] = ()


class Master:
    """The master of all trainers; a test chooses their numbers and views."""

    def __init__(self):
        self.view, self.callbacks = GivenView(), []

    def tell(self, epoch, *members):
        self.view = GivenView(epoch, members)
        for callback in self.callbacks:
            callback(self.view)

    def client(self, number):
        return MasterOfOne(self, number)


class MasterOfOne:
    """The master from the view of one trainer."""

    def __init__(self, master, number):
        self._master, self.number = master, number
        self.on_view = master.callbacks.append

    @property
    def view(self):
        return self._master.view


class ElasticJob:
    """The servers of a job and its trainers. `start` starts the servers; it accepts further flags."""

    def __init__(self, fork_server, folder, count, *flags):
        self.folder, self.count, self._fork_server, self._flags = folder, count, fork_server, flags
        self.registry = self.open_registry()
        self.master = Master()
        # addresses that count as the trainers' own; they share memory with servers at these addresses
        self.own_addresses = ()
        self.processes, self.updaters = {}, []

    def open_registry(self):
        return open_registry((), self.folder / "store", "job", 2.0)

    # ----- Servers

    def start(self, *indices):
        """Start servers, and wait until all of them are registered."""
        for index in indices or range(self.count):
            log = self.folder / f"pserver-{index}-{time.monotonic_ns()}.log"
            argv = [
                "pserver",
                f"--store_dir={self.folder / 'store'}",
                "--job=job",
                "--nics=127.0.0.1",
                "--port=0",
                f"--index={index}",
                f"--num_pservers={self.count}",
                "--etcd_ttl=1s",
                *self._flags,
            ]
            environ = os.environ | {"PADDLE_PEER_TIMEOUT": "15"}
            with log.open("wb") as stream, Path(os.devnull).open("wb") as nothing:
                process = self._fork_server.start(argv, self.folder, environ, [nothing.fileno(), stream.fileno()])
            self.processes[index] = process
            until(lambda i=index: self._is_there(i) or self.processes[i].poll() is not None, f"server {index}")
            assert process.poll() is None, log.read_text()
        return self

    def _is_there(self, index):
        found = find_servers(self.registry)
        return len(found) > index and found[index] is not None

    def freeze(self, index):
        os.kill(self.processes[index].pid, signal.SIGSTOP)

    def thaw(self, index):
        os.kill(self.processes[index].pid, signal.SIGCONT)

    def kill(self, index):
        """Kill a server, and wait until its index is free, so that the next server gets another incarnation."""
        self.processes[index].kill()
        self.processes[index].wait(DEADLINE)
        until(lambda: not self._is_there(index), f"the end of the lease of server {index}")

    def steps_stored(self, index):
        """The number of steps in a server's newest snapshot."""
        found = find_checkpoint(self.registry, index)
        return -1 if found is None else found.step

    def end(self):
        for one in self.updaters:
            one.abort("the end of the test")
        for index, process in self.processes.items():
            with contextlib.suppress(ProcessLookupError):
                self.thaw(index)
            process.kill()
            process.wait(DEADLINE)

    # ----- Trainers

    def trainer(self, number=0, optimization=ASYNC, configs=PLAIN, first=0.0, model=None):
        """Return a connected trainer; if it has to give the initial values, all of them are `first`."""
        return Trainer(self, number, optimization, configs, model or ModelConfig(), first)


class Trainer:
    """A trainer with an updater; the test gives its gradients."""

    def __init__(self, job, number, optimization, configs, model, first):
        self.number = number
        self.table = ParameterTable(configs, tables_first=True)
        self.table.values[:] = first
        membership = TaskMembership(
            job.master.client(number),
            f"pod-{number}",
            1,
            "job",
            own_addresses=job.own_addresses,
            peer_timeout=15.0,
            patience=DEADLINE,
        )
        self.servers = TaskServers(job.open_registry(), membership)
        self.updater = TaskUpdater(model, self.table, optimization, self.servers)
        job.updaters.append(self.updater)

    @property
    def values(self):
        return self.table.values

    def connect(self):
        self.updater.connect()
        return self

    def give(self, gradient, samples=1, slots=None):
        """Train one batch with this gradient, which is a number or an array."""
        self.updater.prefetch(slots or {})
        push = self.updater.begin_step(samples)
        self.table.clear_gradients()
        for parameter in self.table.trained():
            parameter.gradient[:] = 0
        self.table.gradients[:] = gradient
        if push is not None:
            push(0)
        self.updater.step(samples)
        return self


class Background(threading.Thread):
    """Runs a function in a thread; `end` waits for it, returns its result, or raises its exception."""

    def __init__(self, function, *arguments):
        super().__init__(daemon=True)
        self._call, self._result, self._error = (function, arguments), None, None
        self.start()

    def run(self):
        function, arguments = self._call
        try:
            self._result = function(*arguments)
        except Exception as exc:
            self._error = exc

    def end(self):
        self.join(DEADLINE)
        assert not self.is_alive()
        if self._error:
            raise self._error
        return self._result
