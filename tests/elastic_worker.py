"""A worker for tests of `paddle elastic run`: it executes the commands of its command line.

python elastic_worker.py COMMAND...

say TEXT      prints a line            env           prints the variables of the slot
fail-once F   if the file F does not exist: makes it, and ends with status 3
exit-once F   if the file F does not exist: makes it, and ends with status 0
pid-once F    if the file F does not exist: writes the process id to it, and waits to be killed
init          takes its place, and prints the rank if it had to ask for it, as a newcomer has to
ready         asks the driver for the next rank, and prints it     wait          waits for a notice of the driver
exit N        ends with status N, without notice to the driver     hang          waits without end
touch F       makes a file                                         see F         waits until a file exists
A command "N:COMMAND" is only for the worker that began with rank N. After the last command the worker reports that its
work is done.
"""

from __future__ import annotations

import os
import queue
import sys
import time
from pathlib import Path

from paddle_base.runtime.environment import read_environment
from paddle_cluster.elastic.rendezvous_client import RendezvousClient
from paddle_cluster.elastic.worker import WorkerNotificationManager

LIMIT_S = 60.0


class Worker:
    """The worker of one slot."""

    def __init__(self) -> None:
        environ = os.environ
        self.slot = environ["HOROVOD_HOSTNAME"], int(environ["HOROVOD_LOCAL_RANK"])
        self.incarnation = environ["PADDLE_ELASTIC_INCARNATION"]
        self.generation = int(environ["PADDLE_ELASTIC_GENERATION"])
        address, port = environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
        self.client = RendezvousClient(address, port, read_environment(environ).secret, LIMIT_S)
        self.changes: queue.Queue[int] = queue.Queue()
        self.notices = WorkerNotificationManager()
        self.notices.register_listener(self)

    def say(self, text: str) -> None:
        print(text)

    def env(self) -> None:
        print(",".join(os.environ[f"HOROVOD_{each}"] for each in ("HOSTNAME", "RANK", "SIZE", "LOCAL_RANK")))

    def fail_once(self, path: str) -> None:
        if not Path(path).exists():
            Path(path).touch()
            sys.exit(3)

    def exit_once(self, path: str) -> None:
        if not Path(path).exists():
            Path(path).touch()
            os._exit(0)

    def pid_once(self, path: str) -> None:
        """Writes the process id once, and waits to be killed."""
        if not Path(path).exists():
            Path(f"{path}.new").write_text(str(os.getpid()))
            Path(f"{path}.new").replace(path)
            time.sleep(10 * LIMIT_S)

    def init(self) -> None:
        if self.client.claim(*self.slot, self.incarnation, str(os.getpid()))[1]:
            self.generation = 0
            self.ready()

    def ready(self) -> None:
        found, self.generation = self.client.query_rank(*self.slot, self.incarnation, self.generation, LIMIT_S)
        print(f"generation {self.generation}: {found.rank} of {found.size}")
        if found.rank < 0:
            sys.exit(4)

    def wait(self) -> None:
        self.notices.init()
        print(f"hosts have changed: {self.changes.get(timeout=LIMIT_S)}")
        self.notices.shutdown()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        self.changes.put(update_res)

    def exit(self, status: str) -> None:
        os._exit(int(status))

    def hang(self) -> None:
        time.sleep(10 * LIMIT_S)

    def pid(self, path: str) -> None:
        file = Path(f"{path}.{os.environ['HOROVOD_RANK']}")
        Path(f"{file}.new").write_text(str(os.getpid()))
        Path(f"{file}.new").replace(file)

    def touch(self, path: str) -> None:
        Path(path).touch()

    def see(self, path: str) -> None:
        until = time.monotonic() + LIMIT_S
        while not Path(path).exists():
            assert time.monotonic() < until
            time.sleep(0.02)


def main(words: list[str]) -> None:
    worker = Worker()
    while words:
        rank, _, name = words.pop(0).rpartition(":")
        arguments = (
            [words.pop(0)]
            if name in ("say", "fail-once", "exit-once", "pid-once", "exit", "touch", "see", "pid")
            else []
        )
        if rank in ("", os.environ["HOROVOD_RANK"]):
            getattr(worker, name.replace("-", "_"))(*arguments)
    worker.client.done(*worker.slot, worker.incarnation)


if __name__ == "__main__":
    main(sys.argv[1:])
