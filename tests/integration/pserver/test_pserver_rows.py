"""Tables on sparse services over loopback: rows are pulled and pushed, the same bits whatever the servers and ports."""

import concurrent.futures
import contextlib
import random
import time

import numpy as np
import pytest

from paddle_base.runtime.errors import BugError, PaddleError, PeerUnreachableError
from pserver.client import membership
from pserver.client.exchange import kernel
from pserver.client.server_channel import ServerChannel
from pserver.client.sparse_client import SparseClient
from pserver.client.sparse_rows import WantedRows
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.shard import DenseShard
from pserver.wire import protocol

ROWS = {"emb": (700, 16), "___embedding_0__.w0": (500, 3), "few": (2, 5)}
TABLES = [
    ParameterSpec(name, rows * width, sparse_update=True, row_width=width) for name, (rows, width) in ROWS.items()
]
SIZE = sum(one.size for one in TABLES)
SGD = Optimization("momentum", 0.1)


@pytest.fixture
def row_client():
    """Make clients; they are closed in the end."""
    made = []

    def build(services, trainer_id=0, num_trainers=1, own_addresses=()):
        options = {"peer_timeout": 15.0, "connect_timeout": 30.0, "wait_timeout": 30.0, "own_addresses": own_addresses}
        made.append(SparseClient(services, trainer_id=trainer_id, num_trainers=num_trainers, **options))
        return made[-1]

    yield build
    for one in made:
        one.close()


def first_values():
    return np.random.default_rng(5).standard_normal(SIZE).astype(np.float32)


def draw(trainer, count, tables=TABLES):
    """For each batch and table some rows and gradients that look at the values."""
    rng = np.random.default_rng(100 + trainer)
    batches = []
    for _ in range(count):
        rows = [
            np.sort(
                rng.choice(
                    one.size // one.row_width, rng.integers(0, min(one.size // one.row_width, 60)), replace=False
                )
            )
            for one in tables
        ]
        noise = [
            rng.standard_normal((len(some), one.row_width)).astype(np.float32)
            for some, one in zip(rows, tables, strict=True)
        ]
        batches.append(([some.astype(np.uint32) for some in rows], noise))
    return batches


def matrices(values, tables=TABLES):
    found, start = [], 0
    for one in tables:
        found.append(values[start : start + one.size].reshape(-1, one.row_width))
        start += one.size
    return found


def train(row_client, services, trainer, trainers, passes, settings=SGD, pause=lambda: None, own=(), at_once=False):
    """Train on passes of batches; a gradient is the pulled row times a number, plus noise.

    at_once: a push also pulls the rows of the next batch.
    """
    client = row_client(services, trainer, trainers, own)
    client.join(TABLES, settings)
    client.initialise(first_values()) if trainer == 0 else client.initialise(np.empty(SIZE, np.float32))
    mine = np.full(SIZE, np.nan, np.float32)  # what was not pulled must not be looked at
    tables = matrices(mine)
    gradients = matrices(np.full(SIZE, np.nan, np.float32))
    for batches in passes:
        client.start_pass()
        for batch, (rows, noise) in enumerate(batches):
            if not (at_once and batch):
                client.pull(rows, tables)
            for number, some in enumerate(rows):
                gradients[number][some] = np.float32(0.5) * tables[number][some] + noise[number]
            pause()
            is_wanted = at_once and batch + 1 < len(batches)
            wanted = WantedRows(batches[batch + 1][0], tables) if is_wanted else None
            client.begin_push_rows(rows, gradients, 10, wanted=wanted)
            client.collect()
        client.begin_end_of_pass()
        client.collect()
    values = np.empty(SIZE, np.float32)
    client.fetch(values)
    client.goodbye()
    return values


def expect(passes, trainers, settings=SGD):
    """The same with the tables as dense parameters, by one shard."""
    parameters = [ParameterSpec(one.name, one.size) for one in TABLES]
    shard = DenseShard(parameters, partition.whole(parameters), settings, per_parameter=True)
    shard.values[:] = first_values()
    for number in range(len(passes[0])):
        longest = max(len(passes[trainer][number]) for trainer in range(trainers))
        for batch in range(longest):
            gradients = []
            for trainer in range(trainers):
                if batch < len(passes[trainer][number]):
                    rows, noise = passes[trainer][number][batch]
                    gradient = np.zeros(SIZE, np.float32)
                    for table, (into, of) in enumerate(zip(matrices(gradient), matrices(shard.values), strict=True)):
                        into[rows[table]] = np.float32(0.5) * of[rows[table]] + noise[table]
                    gradients.append(gradient)
            shard.step(gradients, 10 * len(gradients))
        shard.finish_pass()
    return shard.values


def run(
    pserver, crowd, row_client, tools, hosts, ports, passes, settings=SGD, jitter=None, own=lambda _: (), at_once=False
):
    trainers = len(passes)
    port = tools.find_ports(ports + 1)
    flags = [f"--ports_num_for_sparse={ports}"]
    servers = [
        pserver(*flags, host=f"127.0.0.{number + 1}", ports=1, port=port, trainers=trainers) for number in range(hosts)
    ]
    services = [(server.host, server.port + 1 + number) for server in servers for number in range(ports)]
    for trainer in reversed(range(trainers)):
        crowd.start(
            trainer,
            *(train, row_client, services, trainer, trainers, passes[trainer], settings, jitter or (lambda: None)),
            own(trainer),
            at_once,
        )
    crowd.end()
    assert len({values.tobytes() for values in crowd.results.values()}) == 1
    return crowd.results[0]


@pytest.mark.parametrize(("hosts", "ports"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)])
def test_tables_train_as_dense_parameters_do_bit_for_bit_on_any_servers(
    pserver, crowd, row_client, tools, hosts, ports
):
    passes = [[draw(trainer, 6)[:4], draw(trainer, 6)[4:]] for trainer in range(3)]
    values = run(pserver, crowd, row_client, tools, hosts, ports, passes)
    assert values.tobytes() == expect(passes, 3).tobytes()


def test_rows_through_shared_memory_give_the_same_bits(pserver, crowd, row_client, tools):
    """Trainers 0 and 1 share memory with one server each, trainer 2 with none."""
    passes = [[draw(trainer, 6)] for trainer in range(3)]
    own = {0: ["127.0.0.1"], 1: ["127.0.0.2"], 2: []}
    values = run(pserver, crowd, row_client, tools, 2, 2, passes, own=own.__getitem__)
    assert values.tobytes() == expect(passes, 3).tobytes()


@pytest.mark.parametrize("settings", [SGD, Optimization("adagrad", 0.1), Optimization("adam", 0.1)])
def test_a_push_that_pulls_the_rows_of_the_next_batch_gives_the_same_bits(pserver, crowd, row_client, tools, settings):
    """Trainer 0 shares memory with a server, and trainer 2 ends its pass first."""
    passes = [[draw(trainer, 6)[: 6 - trainer], draw(trainer, 3)] for trainer in range(3)]
    own = {0: ["127.0.0.1"], 1: [], 2: []}.__getitem__
    results = [
        run(pserver, crowd, row_client, tools, 2, 1, passes, settings, own=own, at_once=at_once)
        for at_once in (False, True)
    ]
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.skipif(not kernel.IS_COMPILED, reason="the compiled module is not built here")
@pytest.mark.parametrize("own", [[], ["127.0.0.1"]])
def test_the_rows_of_a_batch_are_exchanged_in_compiled_calls_with_the_bits_of_the_channels(
    pserver, crowd, row_client, tools, monkeypatch, own
):
    """Each message of rows passed through a connection and a channel in Python."""
    passes = [[draw(trainer, 6)] for trainer in range(3)]
    received = []
    monkeypatch.setattr(ServerChannel, "receive", counting(ServerChannel.receive, received, lambda *given: given[-1]))
    counts, values = [], []
    for is_compiled in (True, False):
        monkeypatch.setattr(kernel, "IS_COMPILED", is_compiled)
        del received[:]
        for at_once in (False, True):
            given = run(pserver, crowd, row_client, tools, 2, 1, passes, own=lambda _: own, at_once=at_once)
            values.append(given.tobytes())
        counts.append(len(received))
    assert len(set(values)) == 1
    # a push or a pull of 3 trainers and 2 services has 3 frames in each answer; hellos, passes and fetches stay
    assert counts[0] < counts[1] - 3 * 2 * 2 * 6


@pytest.mark.parametrize("is_local", [False, True])
def test_a_push_and_its_answer_of_many_pieces_are_one_exchange(pserver, row_client, monkeypatch, is_local):
    table = ParameterSpec("wide", 12_000 * 130, sparse_update=True, row_width=130)
    server = pserver("--ports_num_for_sparse=1")
    client = row_client([(server.host, server.port + 1)], own_addresses=[server.host] if is_local else [])
    client.join([table], SGD)
    values = np.arange(table.size, dtype=np.float32)
    client.initialise(values)
    client.start_pass()
    begun = []
    monkeypatch.setattr(ServerChannel, "begin", counting(ServerChannel.begin, begun, lambda *_: [b""]))
    matrix, rows = values.reshape(-1, 130), np.array([7], np.uint32)
    for count in (12_000, 5, 3_000):
        wanted = np.arange(0, 12_000, 12_000 // count, dtype=np.uint32)
        got = np.empty((len(wanted), 130), np.float32)
        gradient = matrix[rows].copy()
        asked = WantedRows([wanted], [got], in_place=False)
        client.begin_push_rows([rows], [gradient], 1, in_place=False, wanted=asked)
        client.collect()
        matrix[rows] -= np.float32(0.1) * gradient
        assert got.tobytes() == matrix[wanted].tobytes()
        rows = wanted
    assert len(begun) == 3
    client.begin_end_of_pass()
    client.collect()
    client.goodbye()


@pytest.mark.parametrize("most", [None, 0, 4096, 2_000_000, membership.MOST_SHARED_ROWS])
def test_rows_of_many_pieces_that_are_not_in_place_come_through_the_shared_memory_or_beside_it(
    pserver, row_client, monkeypatch, most
):
    """The memory is not shared, or has room for none of a batch's rows, for some of their pieces, or for all."""
    monkeypatch.setattr(membership, "MOST_SHARED_ROWS", most)
    table = ParameterSpec("wide", 12_000 * 130, sparse_update=True, row_width=130)  # rows across the ends of pieces
    server = pserver("--ports_num_for_sparse=1")
    client = row_client([(server.host, server.port + 1)], own_addresses=[] if most is None else [server.host])
    client.join([table], SGD)
    assert (client.channels[0].memory is None) == (most is None)
    values = np.arange(table.size, dtype=np.float32)
    client.initialise(values)
    client.start_pass()
    for count in (5, 12_000, 3_000, 5):
        rows = np.arange(0, 12_000, 12_000 // count, dtype=np.uint32)
        got = np.empty((len(rows), 130), np.float32)
        client.pull([rows], [got], in_place=False)
        assert got.tobytes() == values.reshape(-1, 130)[rows].tobytes()
        client.begin_push_rows([rows], [got], 1, in_place=False)
        client.collect()
        values.reshape(-1, 130)[rows] -= np.float32(0.1) * values.reshape(-1, 130)[rows]
    client.begin_end_of_pass()
    client.collect()
    every = np.empty_like(values)
    client.fetch(every)
    assert every.tobytes() == values.tobytes()
    client.goodbye()


def test_trainers_that_finish_a_pass_early_leave_the_rows_to_the_others(pserver, crowd, row_client, tools):
    passes = [[draw(trainer, 6)[: 2 + trainer], draw(trainer, 6)[: 6 - trainer]] for trainer in range(3)]
    jitter = random.Random(1)
    adagrad = Optimization("adagrad", 0.1)
    values = run(
        pserver, crowd, row_client, tools, 2, 1, passes, adagrad, lambda: time.sleep(jitter.choice([0, 0, 0.003]))
    )
    assert values.tobytes() == expect(passes, 3, adagrad).tobytes()


def test_an_array_of_rows_may_be_used_again_for_others(pserver, row_client):
    server = pserver("--ports_num_for_sparse=2")
    client = row_client([(server.host, server.port + 1), (server.host, server.port + 2)])
    client.join(TABLES[:1], SGD)
    values = np.arange(TABLES[0].size, dtype=np.float32)
    client.initialise(values)
    client.start_pass()
    rows, got = np.zeros(2, np.uint32), np.empty((2, 16), np.float32)
    for rows[:] in ([3, 4], [7, 600]):
        client.pull([rows], [got], in_place=False)
        assert got.tolist() == values.reshape(-1, 16)[rows].tolist()
    client.begin_end_of_pass()
    client.collect()
    client.goodbye()


def test_the_state_of_tables_goes_on_in_another_job(pserver, row_client, tools):
    settings = Optimization("momentum", 0.1)
    table = [ParameterSpec("emb", 40 * 4, decay_rate=0.1, sparse_update=True, row_width=4)]
    batches = draw(0, 8, table)
    results = []
    for cut in (None, 5):
        gathered, values = None, np.ones(160, np.float32)
        for part in [batches] if cut is None else [batches[:cut], batches[cut:]]:
            server = pserver("--ports_num_for_sparse=2")
            client = row_client([(server.host, server.port + 1), (server.host, server.port + 2)])
            client.join(table, settings)
            client.initialise(values, gathered)
            client.start_pass()
            for rows, noise in part:
                client.begin_push_rows(rows, noise, 1, in_place=False)
                client.collect()
            gathered = client.gather_checkpoint({"k": 1})
            client.begin_end_of_pass()
            client.collect()
            client.fetch(values)
            client.goodbye()
        results.append(values.tobytes())
    assert results[0] == results[1]


def test_rows_beyond_a_table_are_refused_before_they_travel(pserver, row_client):
    server = pserver("--ports_num_for_sparse=1")
    client = row_client([(server.host, server.port + 1)])
    client.join(TABLES[:1], SGD)
    with pytest.raises(BugError, match="row numbers of parameter emb must be ascending uint32 numbers below 700"):
        client.pull([np.array([700], np.uint32)], [np.empty((1, 16), np.float32)], in_place=False)


def test_a_service_that_holds_no_tables_refuses_to_look_up_rows(pserver, client, row_client):
    server = pserver("--ports_num_for_sparse=1")
    dense = client(server.services)
    dense.join([ParameterSpec("w", 10)], SGD)
    dense.initialise(np.zeros(10, np.float32))
    rows = row_client(server.services)
    with contextlib.closing(rows), pytest.raises(PaddleError):
        rows.join(TABLES[:1], SGD)


def test_asynchronous_rows_take_the_steps_of_their_own_gradients_only(pserver, row_client):
    table = [ParameterSpec("emb", 40 * 4, decay_rate=1.0, sparse_update=True, row_width=4)]
    settings = Optimization("momentum", 1.0, algorithm="async_sgd")
    server = pserver("--ports_num_for_sparse=1", trainers=2)
    clients = [row_client([(server.host, server.port + 1)], number, 2) for number in range(2)]
    for one in clients:
        one.join(table, settings)
    clients[0].initialise(np.ones(160, np.float32))
    clients[1].initialise(np.ones(160, np.float32))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: one.start_pass(), clients))
        row = [np.array([3], np.uint32)]
        for _ in range(2):  # nobody waits for trainer 1
            clients[0].begin_push_rows(row, [np.zeros((1, 4), np.float32)], 1, in_place=False)
            clients[0].collect()
        got = np.empty((1, 4), np.float32)
        clients[1].pull(row, [got], in_place=False)
        assert got.tolist() == [[0.25] * 4]
        for one in clients:
            one.begin_end_of_pass()
        list(pool.map(lambda one: one.collect(), clients))
    every = np.empty(160, np.float32)
    clients[1].fetch(every)
    assert sorted(set(every.tolist())) == [0.25, 1.0]
    for one in clients:
        one.goodbye()


def test_what_travels_for_a_batch_are_its_rows(monkeypatch, pserver, row_client):
    table = [ParameterSpec("emb", 10**6 * 16, sparse_update=True, row_width=16)]
    server = pserver("--ports_num_for_sparse=1")
    client = row_client([(server.host, server.port + 1)])
    client.join(table, SGD)
    client.initialise(np.zeros(table[0].size, np.float32))
    client.start_pass()
    travelled = []
    monkeypatch.setattr(kernel, "IS_COMPILED", False)  # the same messages, but each passes through its channel
    monkeypatch.setattr(
        ServerChannel, "send", counting(ServerChannel.send, travelled, lambda _, one: protocol.encode(one))
    )
    monkeypatch.setattr(ServerChannel, "receive", counting(ServerChannel.receive, travelled, lambda *given: given[-1]))
    seen = {}
    for count in (100, 10_000):
        rows = [np.arange(0, 10**6, 10**6 // count, dtype=np.uint32)[:count]]
        got = np.empty((count, 16), np.float32)
        del travelled[:]
        client.pull(rows, [got], in_place=False)
        client.begin_push_rows(rows, [got], 1, in_place=False)
        client.collect()
        seen[count] = sum(travelled)
    assert seen[100] < 100 * 2 * (64 + 4) + 2000
    assert 10_000 * 2 * 64 < seen[10_000] < 10_000 * 2 * (64 + 4) + 4000
    client.begin_end_of_pass()
    client.collect()
    client.goodbye()


def counting(function, sizes, frames_of):
    def counted(*given):
        sizes.extend(memoryview(frame).nbytes for frame in frames_of(*given))
        return function(*given)

    return counted


@pytest.mark.parametrize("own", [[], ["127.0.0.1"]])
@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".svc"])
def test_a_text_that_can_be_no_name_of_a_server_is_named(host, own):
    """A UnicodeError ended the trainer as if the trainer were at fault."""
    with (
        contextlib.closing(
            SparseClient([(host, 7164)], trainer_id=0, num_trainers=1, connect_timeout=0.1, own_addresses=own)
        ) as one,
        pytest.raises(PeerUnreachableError, match="cannot be found: a part of the name"),
    ):
        one.join(TABLES[:1], SGD)
