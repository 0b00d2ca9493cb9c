"""The requests of a task job to dense and sparse services together, without sockets."""

import numpy as np
import pytest

from pserver.client.client import Client
from pserver.client.connection import Poller
from pserver.client.sparse_client import SparseClient
from pserver.client.tasks.services import BatchGradient, JoinedServices
from pserver.wire.protocol import Message, MessageFlag, Op
from pserver.wire.views import RoundKey

SIZE = 3


@pytest.fixture
def services(make_channel):
    """Two dense and two sparse services, each of which confirms every request."""
    joined = object.__new__(JoinedServices)
    clients = []
    for kind in (Client, SparseClient):
        client = kind([("somewhere", 1), ("somewhere", 2)], trainer_id=0, num_trainers=0)
        client._use([make_channel(SIZE), make_channel(SIZE)])
        client._exchange._poller = Poller([])
        client._exchange.receive = lambda timeout, one=client: confirm(one)
        clients.append(client)
    joined.dense, joined.sparse = clients
    return joined


def confirm(client):
    payload = [np.full(SIZE, 7, np.float32).tobytes()] if isinstance(client, Client) else []
    for channel in client.channels:
        for piece in list(channel.pending):
            given = {"flags": MessageFlag.ANSWER, "payload": payload, "piece": piece}
            channel._take(Message(channel.request.op, bytes(8), 0, channel.sequence, **given))


def ops(client):
    return [[one.op for one in channel.connection.sent] for channel in client.channels]


def test_a_commit_goes_to_the_chosen_services_of_both_kinds(services):
    """The numbers of services go on from the dense to the sparse ones."""
    values = np.zeros(SIZE, np.float32)
    services.commit(RoundKey(1, 1), 1, values, [1, 2])
    assert ops(services.dense) == [[], [Op.COMMIT]]
    assert ops(services.sparse) == [[Op.COMMIT], []]
    assert values.tolist() == [7] * SIZE
    services.commit(RoundKey(1, 1), 1, values)
    assert ops(services.dense) == [[Op.COMMIT], [Op.COMMIT, Op.COMMIT]]
    assert ops(services.sparse) == [[Op.COMMIT, Op.COMMIT], [Op.COMMIT]]


def test_the_gradients_of_rows_are_on_their_way_before_the_dense_answers_are_awaited(services):
    order = []
    services.sparse.gather = lambda rows, gradients: {one: memoryview(b"rows") for one in services.sparse.channels}
    services.dense.collect = lambda timeout=None: (order.append(("dense", ops(services.sparse))), services.dense.send())
    services.sparse.collect = lambda timeout=None: order.append(("sparse", ops(services.sparse)))
    gradient = np.ones(SIZE, np.float32)
    services.begin_round_push(gradient, 4, RoundKey(1, 1), 0, lambda: True)
    services.begin_round_rows(BatchGradient(gradient, gradient, 4), RoundKey(1, 1), 0, lambda: True)
    services.finish_push()
    assert order == [(kind, [[Op.PUSH], [Op.PUSH]]) for kind in ("dense", "sparse")]
    assert [one.note for one in services.dense.channels[0].connection.sent] == [{"epoch": 1, "round": 1, "pass": 0}]
