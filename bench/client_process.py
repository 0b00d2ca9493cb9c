"""A trainer process of bench/pserver.py: it uses the client of this project, and trains no network.

usage: bench/client_process.py dense|dense-shared NUMBER TRAINERS SERVERS PORT PARAMETERS
       bench/client_process.py rows|rows-shared NUMBER TRAINERS SERVERS PORT ROWS
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # comes before bench/, which also has a module `pserver`

import itertools

import numpy as np
import numpy.typing as npt
from interleave import serve_rounds

from pserver.client.client import Client
from pserver.client.sparse_client import SparseClient
from pserver.client.sparse_rows import WantedRows
from pserver.optim.settings import Optimization, ParameterSpec

WIDTH = 16  # number of elements of a row
ROWS_OF_A_BATCH = 20_000
SGD = Optimization("momentum", 1e-6)


def list_services(servers: int, port: int) -> list[tuple[str, int]]:
    """Return the services; every server has a separate address, as servers in separate pods have."""
    return [(f"127.0.0.{server + 1}", port) for server in range(servers)]


def train_dense(number: int, trainers: int, servers: int, port: int, parameters: int, *, is_shared: bool) -> None:
    """Push a gradient and receive the values in every round; if `is_shared`, share memory with one of the servers."""
    services = list_services(servers, port)
    own = {services[number][0]} if is_shared and number < servers else set()
    client = Client(services, trainer_id=number, num_trainers=trainers, own_addresses=own)
    client.join([ParameterSpec("w", parameters)], SGD)
    values, gradient = np.zeros(parameters, np.float32), np.ones(parameters, np.float32)
    client.initialise(values)
    client.start_pass()
    serve_rounds(lambda: client.push_pull(gradient, values, 1))
    client.finish_pass(values)
    client.goodbye()


def train_rows(number: int, trainers: int, servers: int, port: int, rows: int, *, is_shared: bool) -> None:
    """Push the gradients of the rows of a batch in every round, and pull the rows of the next batch with the answer.

    `is_shared`: see `train_dense`.
    """
    services = list_services(servers, port)
    own = {services[number][0]} if is_shared and number < servers else set()
    client = SparseClient(services, trainer_id=number, num_trainers=trainers, own_addresses=own)
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


def main() -> None:
    """Train dense parameters or rows, as the arguments select."""
    kind, *numbers = sys.argv[1:]
    what, _, shared = kind.partition("-")
    train = {"dense": train_dense, "rows": train_rows}[what]
    train(*map(int, numbers), is_shared=bool(shared))


if __name__ == "__main__":
    main()
