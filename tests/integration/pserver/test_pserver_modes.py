"""Whole jobs over loopback that are not plain synchronous rounds."""

import itertools
import random
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.shard import DenseShard
from pserver.wire.checkpoint_blobs import LEAVES

ASYNC = Optimization("momentum", 0.01, algorithm="async_sgd", async_lagged_grad_discard_ratio=1000.0)


def start_values(size):
    return np.arange(size, dtype=np.float32) % 7


@pytest.mark.parametrize("hosts, ports", [(1, 1), (2, 2)])
def test_one_asynchronous_trainer_is_a_shard_that_steps_at_the_samples_before(pserver, train, tools, hosts, ports):
    servers, services = pserver.many(hosts, ports=ports)
    settings = replace(ASYNC, learning_rate_schedule="discexp", learning_rate_decay_a=0.5, learning_rate_decay_b=20.0)
    gradients = tools.gradients(1, 8)[0]
    found = train(services, 0, 1, [gradients], settings=settings)
    shard = DenseShard(tools.parameters, partition.whole(tools.parameters), settings, per_parameter=True)
    shard.values[:] = start_values(tools.size)
    for gradient in gradients:
        shard.begin_step(0)
        shard.step_range(0, [gradient])
        shard.finish_step()
        shard.samples += 10
    assert found.tobytes() == shard.values.tobytes()
    assert [server.wait() for server in servers] == [0] * hosts


def test_asynchronous_trainers_wait_for_nobody_inside_a_pass_and_for_all_at_its_end(pserver, begin, crowd, tools):
    server = pserver(trainers=2, ports=2)
    quick_is_through = threading.Event()
    gradient = np.ones(tools.size, np.float32)

    def run(number, batches):
        one, values = begin(server.services, number, 2, tools.parameters, ASYNC)
        if number == 1:
            assert quick_is_through.wait(tools.deadline)
        for _ in range(batches):
            one.push_pull(gradient, values, 1)
        if number == 0:
            quick_is_through.set()
        one.finish_pass(values)
        one.goodbye()
        return values

    one, two = crowd.run(2, lambda number: run(number, (5, 3)[number]))
    assert one.tobytes() == two.tobytes()
    shard = DenseShard(tools.parameters, partition.whole(tools.parameters), ASYNC, per_parameter=True)
    for _ in range(8):
        shard.step(gradient, 1)
    assert one.tobytes() == shard.values.tobytes()
    assert "Batch=5 pass END" in server.text()
    assert server.wait() == 0


def test_a_server_discards_what_is_too_old_and_says_so(pserver, begin, crowd, tools):
    """Check value of distributed.md 3.15: threshold 3; A A A B discards B's, and the next B is kept."""
    server = pserver("--async_lagged_ratio_default=1.5", trainers=2)
    turns = [threading.Event() for _ in range(2)]
    settings = replace(ASYNC, async_lagged_grad_discard_ratio=1.0)

    def run(number, batches, sign):
        one, values = begin(server.services, number, 2, tools.parameters, settings)
        assert number == 0 or turns[0].wait(tools.deadline)
        seen = []
        for _ in range(batches):
            one.push_pull(np.full(tools.size, sign, np.float32), values, 1)
            seen.append(values[tools.size - 1])  # a parameter without momentum
        turns[0].set()
        one.finish_pass(values)
        one.goodbye()
        return np.float32(seen)

    one, two = crowd.run(2, lambda number: run(number, (3, 2)[number], (-1, 1)[number]))
    np.testing.assert_allclose(one, [0.01, 0.02, 0.03], rtol=1e-6)
    np.testing.assert_allclose(two, [0.03, 0.02], rtol=1e-6)
    assert "async_lagged_grad_discard_ratio is 1, which is not above --async_lagged_ratio_min=1" in server.text()
    assert "discard lagged async gradient ratio: 1.5 asyncLaggedhreshold: 3" in server.text()
    assert "total updates: 5 discard updates: 1" in server.text()
    assert "Async Gradient Discard based on trainer_id: 0:0(0) 1:1(0.5)" in server.text()


@pytest.mark.parametrize("own_addresses", [(), ("127.0.0.1",)], ids=["sockets", "shared memory"])
def test_an_answer_of_several_pieces_is_of_one_moment(pserver, begin, crowd, own_addresses):
    """Other trainers' steps come while it is on its way: no piece of it may see them."""
    server = pserver(trainers=3)
    parameters = [ParameterSpec("w", 900_000)]

    def run(number):
        settings, gradient = replace(ASYNC, learning_rate=1.0), np.full(900_000, -1, np.float32)
        one, values = begin(server.services, number, 3, parameters, settings, own_addresses=own_addresses)
        seen = []
        for _ in range(15):
            one.push_pull(gradient, values, 1)
            seen.append((values.min(), values.max()))
        one.finish_pass(values)
        one.goodbye()
        return seen, values[0]

    for seen, last in crowd.run(3, run):
        assert all(low == high for low, high in seen) and len(set(seen)) == 15
        assert last == 45


def test_what_trainer_0_captures_is_one_moment_while_the_others_go_on(pserver, begin, crowd, tools):
    """Every element of a service's state took the same steps, however many there were meanwhile."""
    server = pserver(trainers=3, ports=2)
    parameters = [
        replace(one, momentum=0.0, learning_rate=1.0, gradient_clipping_threshold=0) for one in tools.parameters
    ]
    settings = Optimization("adagrad", 0.01, algorithm="async_sgd", async_lagged_grad_discard_ratio=1000.0)
    jitter = random.Random(4)

    def run(number):
        one, values = begin(server.services, number, 3, parameters, settings)
        made = []
        for batch in range(30):
            if one.push_pull(np.ones(tools.size, np.float32), values, 1, checkpoint=number == 0 and batch % 8 == 7):
                gathered = one.gather_checkpoint({"number": number, "batch": batch})
                if gathered is not None:
                    made.append(gathered)
            if number:
                time.sleep(jitter.choice([0, 0.002]))
        one.finish_pass(values, {"number": number, "batch": 30})
        one.goodbye()
        return made

    made, *_ = crowd.run(3, run)
    assert len(made) == 3
    for gathered in made:
        assert [own["number"] for own in gathered.trainers] == [0, 1, 2]
        for part in gathered.services:
            steps = part.counters["steps"]
            assert np.unique(part.arrays["values"]).size == 1
            squares = np.unique(np.sum([part.arrays[n] for n in part.arrays if n.startswith("state.")], axis=0))
            assert squares.tolist() == [steps]


@pytest.mark.parametrize("leaver", [0, 1])
def test_a_trainer_leaves_asynchronous_training_when_the_checkpoint_is_written(pserver, begin, crowd, tools, leaver):
    """It left as soon as it had given its part, and trainer 0 could not write: a drain cost all since the last one."""
    server = pserver(trainers=3, ports=2)
    settings = Optimization("momentum", 0.01, algorithm="async_sgd", async_lagged_grad_discard_ratio=1000.0)
    released, written = threading.Event(), threading.Event()

    def run(number):
        one, values = begin(server.services, number, 3, tools.parameters, settings)
        for batch in itertools.count():
            time.sleep(0.001)  # a batch
            asks = number == leaver and batch == 4
            if one.push_pull(np.ones(tools.size, np.float32), values, 1, checkpoint=asks):
                break
        gathered = one.gather_checkpoint({"number": number} | ({LEAVES: True} if number == leaver else {}))
        if number == 0:
            assert [part["number"] for part in gathered.trainers] == [0, 1, 2]
            assert not released.wait(0.5)
            written.set()
        else:
            released.set()
            assert written.is_set()
        if number == leaver:
            one.abort("stopped by SIGTERM")
            return
        one.push_pull(np.ones(tools.size, np.float32), values, 1)
        raise AssertionError("it went on though a trainer leaves")

    for number in range(3):
        crowd.start(number, run, number)
    crowd.join()
    assert sorted(crowd.errors) == [number for number in range(3) if number != leaver]
    assert {str(error).count("stopped by SIGTERM") for error in crowd.errors.values()} == {1}


@pytest.mark.parametrize("hosts, ports", [(1, 1), (2, 1), (3, 2)])
def test_synchronous_exchanges_repeat_bit_for_bit_on_any_servers(pserver, begin, crowd, tools, hosts, ports):
    """Deltas of two trainers, added in their order: the centre moves by rate times their sum."""
    _, services = pserver.many(hosts, ports=ports, trainers=2)
    settings = Optimization("delta", delta_add_rate=0.3)
    deltas = tools.gradients(2, 4)
    plain = [replace(one, momentum=0.0, gradient_clipping_threshold=0.0) for one in tools.parameters]

    def run(number):
        kept = np.empty(tools.size, np.float32)
        one, values = begin(services, number, 2, plain, settings, start_values(tools.size))
        for delta in deltas[number]:
            one.push(delta, 10)
            one.fetch_values(kept)
            one.push_pull(delta, values, 10)
        one.finish_pass(values)
        one.goodbye()
        return kept, values

    results = crowd.run(2, run)
    expected, before = start_values(tools.size), None
    for first, second in zip(*deltas, strict=True):
        for _ in range(2):
            before, expected = expected, expected + np.float32(0.3) * (first + second)
    for kept, values in results:
        assert kept.tobytes() == before.tobytes() and values.tobytes() == expected.tobytes()
