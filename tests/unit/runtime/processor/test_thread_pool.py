"""Threads that take an optimiser step together."""

import threading
from functools import partial

import numpy as np
import pytest

from paddle_base.runtime.processor.thread_pool import SINGLE_THREAD, start_thread_pool
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.shard import DenseShard
from pserver.store.updates.shard_state import CHUNK


@pytest.fixture
def pool():
    return start_thread_pool(3)


def make_shard(pool, method, **settings):
    parameters = [
        ParameterSpec("a", 4 * CHUNK + 3, momentum=0.5, decay_rate=0.01),
        ParameterSpec("small", 5),
        ParameterSpec("b", 2 * CHUNK),
    ]
    optimization = Optimization(method, 0.1, **settings)
    shard = DenseShard(parameters, partition.whole(parameters), optimization, per_parameter=False, pool=pool)
    shard.values[:] = np.random.default_rng(1).normal(size=shard.size)
    return shard


@pytest.mark.parametrize(
    ("method", "settings"), [("momentum", {}), ("momentum", {"average_window": 0.5}), ("rmsprop", {}), ("adam", {})]
)
def test_a_step_of_several_threads_gives_the_bits_of_one(pool, method, settings):
    shards = [make_shard(one, method, **settings) for one in (SINGLE_THREAD, pool)]
    first = shards[0].values.copy()
    for seed in range(3):
        gradient = np.random.default_rng(seed).normal(size=shards[0].size).astype(np.float32)
        for shard in shards:
            shard.step(gradient, 4)
    assert np.isclose(shards[0].values, first, rtol=0, atol=1e-7).mean() < 1e-3  # by chance one may come back
    assert shards[1].values.tobytes() == shards[0].values.tobytes()
    for name, state in shards[0].state.items():
        assert shards[1].state[name].tobytes() == state.tobytes()


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_every_piece_is_worked_on_once(pool, count):
    done = []
    pool.share(range(count), lambda thread, piece: done.append((thread, piece)))
    assert sorted(piece for _, piece in done) == list(range(count))
    assert {thread for thread, _ in done} <= set(range(min(3, count)))


def test_threads_work_at_the_same_time(pool):
    met = threading.Barrier(3, timeout=20)
    pool.share(range(3), lambda _thread, _piece: met.wait())


def test_what_a_piece_raises_comes_out(pool):
    def fail(_thread, piece):
        if piece == 4:
            raise ValueError("the fifth piece")

    with pytest.raises(ValueError, match="the fifth piece"):
        pool.share(range(6), fail)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_what_a_task_raised_is_raised_when_all_are_done(pool, failing):
    done = []
    has_raised = threading.Event()

    def work(number):
        if number == failing:
            has_raised.set()
            raise LookupError("this one")
        assert has_raised.wait(20)
        done.append(number)

    with pytest.raises(LookupError, match="this one"):
        pool.run([partial(work, number) for number in range(3)])
    assert sorted(done) == sorted({0, 1, 2} - {failing})
