"""Whole jobs over loopback: the same bits whatever the order, the servers and the ports."""

import random
import time
from pathlib import Path

import numpy as np
import pytest

from pserver.optim.methods import METHODS
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.shard import DenseShard


def expect(tools, gradients_of_pass):
    """The values after passes given as [pass][batch] -> gradients in trainer order, by one shard that clips."""
    shard = DenseShard(tools.parameters, partition.whole(tools.parameters), tools.settings, per_parameter=True)
    shard.values[:] = np.arange(tools.size, dtype=np.float32) % 7
    for batches in gradients_of_pass:
        for gradients in batches:
            shard.step(list(gradients), 10 * len(gradients))
        shard.finish_pass()
    return shard.values


@pytest.mark.parametrize("trainers", [1, 2, 3])
def test_trainers_sum_in_id_order_bit_for_bit_whoever_comes_first(pserver, train, crowd, tools, trainers):
    server = pserver(trainers=trainers, ports=2)
    gradients = tools.gradients(trainers, 12)
    jitter = random.Random(trainers)
    for number in reversed(range(trainers)):
        passes = [gradients[number][:7], gradients[number][7:]]
        crowd.start(
            number, train, server.services, number, trainers, passes, lambda: time.sleep(jitter.choice([0, 0, 0.003]))
        )
    crowd.end()
    whole = expect(tools, [gradients.swapaxes(0, 1)[:7], gradients.swapaxes(0, 1)[7:]])
    assert {values.tobytes() for values in crowd.results.values()} == {whole.tobytes()}
    assert server.wait() == 0


@pytest.mark.parametrize("hosts, ports", [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)])
def test_the_number_of_servers_and_ports_does_not_change_a_bit(pserver, train, crowd, tools, hosts, ports):
    servers, services = pserver.many(hosts, ports=ports, trainers=2)
    gradients = tools.gradients(2, 5)
    one, two = crowd.run(2, lambda number: train(services, number, 2, [gradients[number]]))
    assert one.tobytes() == two.tobytes() == expect(tools, [gradients.swapaxes(0, 1)]).tobytes()
    assert [server.wait() for server in servers] == [0] * hosts


def test_a_server_takes_its_steps_with_as_many_threads_as_asked_for(pserver, begin):
    server, parameters = pserver("--pserver_num_threads=3"), [ParameterSpec("w", 300_000, momentum=0.5)]
    one, values = begin(server.services, parameters=parameters, settings=Optimization("momentum", 1.0))
    assert len(list(Path(f"/proc/{server.process.pid}/task").iterdir())) >= 3
    gradient = np.arange(300_000, dtype=np.float32)
    for _ in range(2):
        one.push_pull(gradient, values, 1)
    assert np.array_equal(values, np.float32(-2.5) * gradient)
    one.finish_pass(values)
    one.goodbye()
    assert server.wait() == 0


def test_one_trainer_with_a_server_is_a_local_run_bit_for_bit_when_nothing_is_clipped(pserver, begin, tools):
    parameters = [p for p in tools.parameters if not p.gradient_clipping_threshold]
    local = DenseShard(parameters, partition.whole(parameters), tools.settings, per_parameter=False)
    local.values[:] = np.arange(5003)
    one, values = begin(pserver(ports=2).services, 0, 1, parameters, tools.settings, local.values.copy())
    for gradient in tools.gradients(1, 6)[0][:, :5003]:
        one.push_pull(np.ascontiguousarray(gradient), values, 10)
        local.step(gradient, 10)
    one.finish_pass(values)
    assert values.tobytes() == local.values.tobytes()
    one.goodbye()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_and_what_goes_with_it_is_the_same_on_servers(pserver, begin, method):
    """Schedule, clipping, L1, L2 and averages, too, wherever the elements lie: on 3 servers with 2 ports."""
    parameters = [
        ParameterSpec("w", 3000, momentum=0.5, gradient_clipping_threshold=1.0, row_width=10),
        ParameterSpec("l1", 700, decay_rate_l1=0.1, decay_rate=0.1),
        ParameterSpec("late", 600, decay_rate=0.1, num_batches_regularization=2),
    ]
    settings = Optimization(method, 0.01, "poly", 0.1, 0.5, average_window=1.0)
    local = DenseShard(parameters, partition.whole(parameters), settings, per_parameter=True)
    random = np.random.default_rng(8)
    local.values[:] = random.standard_normal(local.size)
    one, values = begin(pserver.many(3, ports=2)[1], 0, 1, parameters, settings, local.values.copy())
    for _ in range(3):
        gradient = random.standard_normal(local.size).astype(np.float32)
        one.push_pull(gradient, values, 10)
        local.step(gradient, 10)
        assert values.tobytes() == local.values.tobytes()
    one.finish_pass(values)
    local.finish_pass()
    assert values.tobytes() == local.values.tobytes()
    one.fetch_averages(averages := np.empty_like(values))
    assert averages.tobytes() == local.averages().tobytes() != values.tobytes()
    one.goodbye()


def test_an_early_finisher_drops_out_and_gets_the_values_of_the_end(pserver, train, crowd, tools):
    server = pserver(trainers=3)
    gradients = tools.gradients(3, 6)
    lengths = [6, 2, 4]
    found = crowd.run(3, lambda number: train(server.services, number, 3, [gradients[number][: lengths[number]]] * 2))
    one_pass = [[gradients[n][b] for n in range(3) if b < lengths[n]] for b in range(6)]
    assert {values.tobytes() for values in found} == {expect(tools, [one_pass, one_pass]).tobytes()}


def test_a_trainer_without_any_batch_takes_part_in_the_pass(pserver, train, crowd, tools):
    server = pserver(trainers=2, ports=2)
    gradients = tools.gradients(1, 3)[0]
    passes = [[gradients, []], [[], gradients]]
    one, two = crowd.run(2, lambda number: train(server.services, number, 2, passes[number]))
    whole = expect(tools, [[[g] for g in gradients], [[g] for g in gradients]])
    assert one.tobytes() == two.tobytes() == whole.tobytes()
    assert server.wait() == 0


def test_more_services_than_blocks_is_legal(pserver, train, crowd, tools):
    """Issue 2224 of the original: some services own nothing, and the job hung."""
    server = pserver(ports=12, trainers=2)
    gradients = tools.gradients(2, 2)
    one, _ = crowd.run(2, lambda number: train(server.services, number, 2, [gradients[number]]))
    assert one.tobytes() == expect(tools, [gradients.swapaxes(0, 1)]).tobytes()
    assert server.wait() == 0


def test_ports_that_nobody_joins_do_not_keep_a_server_alive(pserver, train, tools):
    server = pserver("--ports_num_for_sparse=2", ports=1, port=tools.find_ports(3))
    train(server.services, 0, 1, [tools.gradients(1, 2)[0]])
    assert server.wait() == 0


def test_the_log_says_what_the_legacys_said(pserver, train, tools):
    server = pserver("--ports_num_for_sparse=1", "--log_period_server=2", ports=2, port=tools.find_ports(3))
    train(server.services, 0, 1, [tools.gradients(1, 5)[0]])
    assert server.wait() == 0
    text = server.text()
    for line in (
        "Util.cpp:166] commandline: paddle pserver --nics=127.0.0.1 ",
        "ParameterServerController.cpp:83] number of parameterServer instances: 3",
        "ParameterServerController.cpp:87] Starting parameterServer[2]",
        "LightNetwork.cpp:269] tcp server start \n",
        "ParameterServerController.cpp:96] Waiting parameterServer[0]",
        "LightNetwork.cpp:322] worker started, peer = 127.0.0.1",
        "ParameterServer2.cpp:260] pserver: setParameter",
        "ParameterServer2.cpp:306] pserver: new cpuvector: size=",
        "pserver: getParameter",
        "======== Batch=4=======",
        "ParameterServer2.cpp:1588] ======== Batch=5 pass END=======",
    ):
        assert line in text, line


def test_a_push_that_begins_before_the_gradient_is_complete_has_the_same_bits(pserver, begin, crowd):
    """Two trainers, of which one sends what is complete layer by layer; long enough for several pieces a service."""
    sizes = [400_000, 3, 900_000, 500_000]
    parameters = [ParameterSpec(f"p{number}", size, momentum=0.5) for number, size in enumerate(sizes)]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    gradients = np.random.default_rng(5).standard_normal((2, 3, sum(sizes))).astype(np.float32)

    def train(number, services, in_parts):
        one, values = begin(services, number, 2, parameters, Optimization("momentum", 0.1))
        for complete in gradients[number]:
            gradient = np.full_like(complete, np.nan) if in_parts[number] else complete
            one.begin_push(gradient, values, 1)
            for start in reversed(starts) if in_parts[number] else []:
                gradient[start:] = complete[start:]
                one.push_from(start)
            one.push_pull(gradient, values, 1)
        one.finish_pass(values)
        one.goodbye()
        return values.tobytes()

    results = set()
    for in_parts in ((False, False), (True, False), (True, True)):
        services = pserver(ports=2, trainers=2).services
        results |= set(crowd.run(2, train, services, in_parts))
    assert len(results) == 1


def test_a_trainer_beside_its_server_shares_memory_with_it_and_the_bits_are_the_same(pserver, begin, crowd):
    """Of three trainers one shares memory with both services, one with none; long enough for several pieces."""
    size = 1_200_000
    parameters = [ParameterSpec("w", size - 7, momentum=0.5), ParameterSpec("b", 7)]
    gradients = np.random.default_rng(6).standard_normal((3, 2, size)).astype(np.float32)
    settings = Optimization("adam", 0.1, average_window=0.5)

    def train(number, services, shares):
        own = {"127.0.0.1"} if shares[number] else ()
        values = np.linspace(-1, 1, size, dtype=np.float32)
        one, values = begin(services, number, 3, parameters, settings, values, own_addresses=own)
        assert [channel.memory is not None for channel in one.channels] == [shares[number]] * 2
        for gradient in gradients[number]:
            one.push_pull(gradient, values, 1)
        averages = np.empty_like(values)
        one.fetch_averages(averages)
        own = one.gather_checkpoint({"number": number})
        state = b"" if own is None else b"".join(part.arrays["values"].tobytes() for part in own.services)
        one.finish_pass(values)
        one.goodbye()
        return values.tobytes(), averages.tobytes(), state

    results = {}
    for shares in ((False,) * 3, (True, False, True), (False, True, False)):
        services = pserver(ports=2, trainers=3).services
        results[shares] = crowd.run(3, train, services, shares)
        assert len({values for values, _, _ in results[shares]}) == 1
    assert len({tuple(one) for one in results.values()}) == 1


def test_a_server_that_is_named_by_its_host_name_shares_memory_too(pserver, begin):
    one, values = begin([("localhost", pserver().port)], own_addresses={"127.0.0.1"})
    assert one.channels[0].memory is not None
    one.push_pull(np.ones(4, np.float32), values, 1)
    assert values.any()
    one.finish_pass(values)
    one.goodbye()


def test_the_state_of_a_service_without_elements_is_captured_and_restored(pserver, begin):
    """One element on two services: the one that has none has no velocity either, and that was written to a constant."""
    parameters = [ParameterSpec("w", 1, momentum=0.5)]
    gathered = None
    steps = []
    for _ in range(2):
        first = (np.ones(1, np.float32), gathered)
        one, values = begin(pserver(ports=2).services, 0, 1, parameters, Optimization("momentum", 1.0), *first)
        one.push_pull(np.ones(1, np.float32), values, 1)
        gathered = one.gather_checkpoint({})
        steps.append(float(values[0]))
        one.finish_pass(values)
        one.goodbye()
    assert [sorted(part.arrays) for part in gathered.services] == [["values"], ["state.velocity", "values"]]
    assert steps == [0.0, -1.5]
