"""A trainer process of bench/pserver.py and bench/scale.py: it uses the client of this project, and trains no network.

usage: bench/client_process.py dense|dense-shared|async NUMBERS TRAINERS SERVERS PORT PARAMETERS
       bench/client_process.py rows|rows-shared NUMBERS TRAINERS SERVERS PORT ROWS

NUMBERS is the number of this trainer, or the numbers of several trainers, such as 0-63. Several trainers are children
of this process, which has imported everything once: they start faster and share more memory than 64 programs, and what
a trainer does in a round is the same. They are no threads, because threads of one Python wait for each other.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # comes before bench/, which also has a module `pserver`

import contextlib
import functools
import itertools
import os
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt
from interleave import Rounds, serve_rounds

from pserver.client.client import Client
from pserver.client.sparse_client import SparseClient
from pserver.client.sparse_rows import WantedRows
from pserver.optim.settings import Optimization, ParameterSpec

WIDTH = 16  # number of elements of a row
ROWS_OF_A_BATCH = 20_000
SGD = Optimization("momentum", 1e-6)
# no gradient is so old that a server discards it, which would cost less than a step
ASYNCHRONOUS = Optimization("momentum", 1e-6, algorithm="async_sgd", async_lagged_grad_discard_ratio=1e6)
# seconds; long, because hundreds of trainers may share few processors, and a profiler makes programs slow
PEER_TIMEOUT = CONNECT_TIMEOUT = 600.0


def list_hosts(servers: int) -> list[str]:
    """Return the hosts of the servers; every server has a separate address, as servers in separate pods have."""
    return [f"127.0.0.{server + 1}" for server in range(servers)]


class Job(NamedTuple):
    """A job of the benchmark. `size`: number of parameters or of rows."""

    trainers: int
    servers: int
    port: int
    size: int

    def services(self) -> list[tuple[str, int]]:
        """Return the services in the order of the servers."""
        return [(host, self.port) for host in list_hosts(self.servers)]

    def describe(self, number: int, *, is_shared: bool) -> dict[str, Any]:
        """Return the options of a trainer's client; if `is_shared`, it has the address of one of the servers."""
        own = {self.services()[number][0]} if is_shared and number < self.servers else set()
        return {
            "trainer_id": number,
            "num_trainers": self.trainers,
            "own_addresses": own,
            "peer_timeout": PEER_TIMEOUT,
            "connect_timeout": CONNECT_TIMEOUT,
        }


def train_dense(number: int, job: Job, *, is_shared: bool, optimization: Optimization = SGD) -> None:
    """Push a gradient and receive the values in every round; if `is_shared`, share memory with one of the servers."""
    client = Client(job.services(), **job.describe(number, is_shared=is_shared))
    client.join([ParameterSpec("w", job.size)], optimization)
    values, gradient = np.zeros(job.size, np.float32), np.ones(job.size, np.float32)
    client.initialise(values)
    client.start_pass()
    serve_rounds(lambda: client.push_pull(gradient, values, 1))
    client.finish_pass(values)
    client.goodbye()


def train_rows(number: int, job: Job, *, is_shared: bool) -> None:
    """Push the gradients of the rows of a batch in every round, and pull the rows of the next batch with the answer.

    `is_shared`: see `train_dense`.
    """
    rows = job.size
    client = SparseClient(job.services(), **job.describe(number, is_shared=is_shared))
    client.join([ParameterSpec("w", rows * WIDTH, sparse_update=True, row_width=WIDTH)], SGD)
    client.initialise(np.zeros(rows * WIDTH if number == 0 else 0, np.float32))
    client.start_pass()
    rng = np.random.default_rng(number)
    count = min(ROWS_OF_A_BATCH, rows // 2)
    batches = itertools.cycle([draw(rng, rows, count) for _ in range(8)])
    batch = next(batches)
    values = np.zeros((count, WIDTH), np.float32)
    gradients = np.full((count, WIDTH), 1e-3, np.float32)

    def one_round() -> None:
        nonlocal batch
        pushed, batch = batch, next(batches)
        wanted = WantedRows([batch], [values[: len(batch)]], in_place=False)
        client.begin_push_rows([pushed], [gradients[: len(pushed)]], 1, in_place=False, wanted=wanted)
        client.collect()

    client.pull([batch], [values[: len(batch)]], in_place=False)
    serve_rounds(one_round)
    client.begin_end_of_pass()
    client.collect()
    client.goodbye()


def draw(rng: np.random.Generator, rows: int, count: int) -> npt.NDArray[np.uint32]:
    """Return `count` different rows in rising order."""
    some = np.unique(rng.integers(0, rows, count + count // 8 + 8))
    return np.sort(rng.permutation(some)[:count]).astype(np.uint32)


class Child(NamedTuple):
    """A trainer that is a child of this process: its id, its stdin and its stdout."""

    pid: int
    stdin: TextIO
    stdout: TextIO


def run_children(train: Callable[[int], None], numbers: Sequence[int]) -> None:
    """Run trainers in children of this process, and serve rounds as one trainer that consists of all of them."""
    children: list[Child] = []
    for number in numbers:
        children.append(start_child(functools.partial(train, number), children))
    for line in sys.stdin:
        for child in children:
            with contextlib.suppress(BrokenPipeError):  # the child has ended; it has no line then
                print(line, end="", file=child.stdin, flush=True)
        lines = [child.stdout.readline() for child in children]
        if not all(lines):
            raise SystemExit(f"bench/client_process.py: {lines.count('')} of {len(children)} trainers ended early")
        print(Rounds.join([Rounds.parse(one) for one in lines]), flush=True)
    for child in children:
        child.stdin.close()
    statuses = [os.waitpid(child.pid, 0)[1] for child in children]
    if any(statuses):
        raise SystemExit(f"bench/client_process.py: trainers ended with {sorted(set(statuses))}")


def start_child(train: Callable[[], None], others: Sequence[Child]) -> Child:
    """Start a child that runs a trainer; it closes the pipes of the children before it, which then see their end."""
    to_read, to_write = os.pipe()
    answers, answer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(to_read)
        os.close(answer)
        return Child(pid, os.fdopen(to_write, "w"), os.fdopen(answers))
    status = 1
    try:
        os.dup2(to_read, sys.stdin.fileno())
        os.dup2(answer, sys.stdout.fileno())
        for pipe in (to_read, to_write, answers, answer):
            os.close(pipe)
        for child in others:
            child.stdin.close()
            child.stdout.close()
        train()
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)


def main() -> None:
    """Train dense parameters or rows, as the arguments select."""
    kind, numbers, *shape = sys.argv[1:]
    what, _, shared = kind.partition("-")
    train = {
        "dense": train_dense,
        "async": functools.partial(train_dense, optimization=ASYNCHRONOUS),
        "rows": train_rows,
    }[what]
    first, _, last = numbers.partition("-")
    one_trainer = functools.partial(train, job=Job(*map(int, shape)), is_shared=bool(shared))
    if last:
        run_children(one_trainer, range(int(first), int(last) + 1))
    else:
        one_trainer(int(first))


if __name__ == "__main__":
    main()
