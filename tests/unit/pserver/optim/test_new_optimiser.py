"""A new optimiser is one file and one line of the registry: what its docstring promises is tried here."""

import numpy as np
import pytest

from pserver.optim import methods
from pserver.optim.method import Method
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition, snapshot
from pserver.store.shard import DenseShard
from pserver.store.sparse_shard import SparseShard


def sign_momentum(w, g, state, numbers, scratch):
    """m = beta*m + sign(g); w = w - rate*m."""
    (m,) = state
    rate, beta = numbers
    np.sign(g, out=scratch[0])
    m *= beta
    m += scratch[0]
    np.multiply(m, rate, out=scratch[0])
    w -= scratch[0]


class SignMomentum(Method):
    rule = staticmethod(sign_momentum)
    arrays = ("sum_of_signs",)
    takes_velocity = False
    uses_momentum = uses_decay = allows_sparse = False

    def numbers(self, last=None):
        return self.rate, np.float32(self.optimization.adam_beta1)


SETTINGS = Optimization("sign_momentum", 1.0, adam_beta1=0.5)


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setitem(methods.METHODS, "sign_momentum", SignMomentum)
    monkeypatch.setitem(methods.ALL_METHODS, "sign_momentum", SignMomentum)


def build():
    parameters = [ParameterSpec("w", 2), ParameterSpec("b", 1, learning_rate=0.5)]
    return DenseShard(parameters, partition.whole(parameters), SETTINGS, per_parameter=True)


def test_it_trains_and_keeps_its_state():
    shard = build()
    gradient = np.array([3, -0.25, 0.5], np.float32)
    shard.step(gradient, 1)
    assert shard.values.tolist() == [-1, 1, -0.5]
    shard.step(gradient, 1)
    assert shard.values.tolist() == [-2.5, 2.5, -1.25]
    assert shard.state["sum_of_signs"].tolist() == [1.5, -1.5, 1.5]


def test_a_checkpoint_has_its_state():
    gradient = np.array([3, -0.25, 0.5], np.float32)
    one, other = build(), build()
    one.step(gradient, 1)
    snapshot.put_back(other, snapshot.take(one))
    for shard in (one, other):
        shard.step(gradient, 1)
    assert one.values.tobytes() == other.values.tobytes()


def test_tables_of_servers_take_it_too():
    shard = SparseShard([ParameterSpec("t", 6, sparse_update=True, row_width=2)], SETTINGS)
    row = np.array([1], np.uint32)
    for _ in range(2):
        shard.step_sparse([[(row, np.ones((1, 2), np.float32))]], 1)
    assert shard.values.tolist() == [0, 0, -2.5, -2.5, 0, 0]


def test_what_it_does_not_use_is_named():
    methods.check_supported(SETTINGS)
    found = methods.list_ignored([ParameterSpec("w", 1, momentum=0.9)], SETTINGS, per_parameter=False)
    assert found == ["sign_momentum does not use the momentum of parameters"]
