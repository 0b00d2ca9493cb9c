"""Batches that are computed in parts, against the same batches computed as a whole."""

import threading

import numpy as np
import pytest

from paddle_base.runtime.errors import DataError
from trainer.arrays.arguments import Argument, Sparse
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream, replica_state
from trainer.config import parse_config
from trainer.evaluators import Accumulator, make_evaluators
from trainer.network import data_parallel
from trainer.network.data_parallel import DataParallelNetwork, MeasuredTasks, Worker, cut_batch
from trainer.network.network import Network
from trainer.session import Session

WORDS = 40
HEAD = """
from paddle.trainer_config_helpers import *
settings(batch_size=8, learning_rate=0.1)
label = data_layer('label', 3)
"""
TAIL = """
outputs(classification_cost(input=fc_layer(last, 3, act=SoftmaxActivation()), label=label))
sum_evaluator(input=last)
"""
CONFIGS = {
    "dense": "last = fc_layer(fc_layer(data_layer('x', 5), 6, act=TanhActivation()), 4)",
    "sparse": "last = fc_layer(data_layer('bag', 40), 4, act=ReluActivation())",
    "embedding": "last = pooling_layer(embedding_layer(data_layer('word', 40), 20), pooling_type=AvgPooling())",
    "sparse rows": "last = pooling_layer(embedding_layer(data_layer('word', 40), 20,"
    " param_attr=ParamAttr(sparse_update=True)), pooling_type=MaxPooling())",
    "lstm": "last = last_seq(simple_lstm(embedding_layer(data_layer('word', 40), 4), 3))",
    "nested": "last = last_seq(last_seq(embedding_layer(data_layer('nested', 40), 4),"
    " agg_level=AggregateLevel.EACH_SEQUENCE))",
    "group": """
def step(y):
    state = memory('state', 4)
    return fc_layer([y, state], 4, name='state')
last = last_seq(recurrent_group(step, embedding_layer(data_layer('word', 40), 4)))
""",
}
SAMPLES = 11


def parse(tmp_path, body):
    (tmp_path / "config.py").write_text(HEAD + body + TAIL)
    return parse_config(str(tmp_path / "config.py"), "").model_config


def make_batch(samples=SAMPLES, seed=3):
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0, *rng.integers(1, 6, samples)])
    bag = np.cumsum([0, *rng.integers(0, 5, samples)])
    return {
        "x": Argument(value=rng.normal(size=(samples, 5)).astype(np.float32)),
        "bag": Argument(sparse=Sparse(WORDS, bag, rng.integers(0, WORDS, bag[-1]))),
        "word": Argument(ids=rng.integers(0, WORDS, starts[-1]), starts=starts),
        "nested": Argument(
            ids=rng.integers(0, WORDS, starts[-1]),
            starts=starts,
            sub_starts=np.unique(np.concatenate([starts, rng.integers(0, starts[-1], samples)])),
        ),
        "label": Argument(ids=rng.integers(0, 3, samples)),
    }


def take_inputs(model, batch):
    return {name: batch[name] for name in model.input_layer_names}


def fill(model):
    table = ParameterTable(model.parameters)
    table.randomize(Stream(5))
    return table


def open_replicas(model, table, count):
    return DataParallelNetwork(
        model, table, [Stream(replica_state(1, number, use_global_seed=True)) for number in range(count)], always=True
    )


@pytest.fixture
def replicate():
    """Makes networks with replicas, whose threads end with the test."""
    opened = []

    def run(model, table, count):
        opened.append(open_replicas(model, table, count))
        return opened[-1]

    yield run
    for one in opened:
        one.close()


def train_batch(network, table, batch, evaluators, stream):
    """One batch's cost, gradients and texts of the evaluators."""
    table.clear_gradients()
    network.forward(batch, stream)
    cost = network.cost()
    network.backward()
    total = Accumulator(evaluators)
    total.add(cost, SAMPLES, Session(network, evaluators, Stream(1)).measure())
    return cost, table.gradients.copy(), total.text()


@pytest.mark.parametrize("count", [2, 3, SAMPLES, SAMPLES + 4])
@pytest.mark.parametrize("body", CONFIGS.values(), ids=CONFIGS)
def test_replicas_have_the_costs_gradients_and_measures_of_the_whole(tmp_path, replicate, body, count):
    model = parse(tmp_path, body)
    whole, parts = fill(model), fill(model)
    one, several, evaluators = Network(model, whole), replicate(model, parts, count), make_evaluators(model.evaluators)
    for seed in (3, 4):  # gradients of the batch before must be gone
        batch = take_inputs(model, make_batch(seed=seed))
        cost, gradients, text = train_batch(one, whole, batch, evaluators, Stream(1))
        found_cost, found, found_text = train_batch(several, parts, batch, evaluators, Stream(1))
        assert found_cost == pytest.approx(cost, rel=1e-6)
        assert found == pytest.approx(gradients, rel=1e-4, abs=1e-5)
        assert np.abs(gradients).max() > 1e-3
        assert numbers_of(found_text) == pytest.approx(numbers_of(text), rel=1e-5)


def numbers_of(text):
    return {name: float(value) for name, value in (part.split("=") for part in text.split())}


def test_the_touched_rows_are_those_of_all_replicas(tmp_path, replicate):
    model = parse(tmp_path, CONFIGS["sparse rows"])
    whole, parts = fill(model), fill(model)
    batch = take_inputs(model, make_batch(4))
    train_batch(Network(model, whole), whole, batch, [], None)
    train_batch(replicate(model, parts, 3), parts, batch, [], None)
    name = next(one.name for one in model.parameters if one.sparse_update)
    assert parts[name].touched_rows.tolist() == whole[name].touched_rows.tolist() != []


def test_a_run_in_parts_repeats_bit_for_bit(tmp_path, replicate):
    model = parse(tmp_path, CONFIGS["lstm"] + "\nlast = dropout_layer(last, 0.5)")
    results = []
    for _ in range(2):
        table = fill(model)
        network = replicate(model, table, 3)
        for seed in range(8):
            _, gradients, _ = train_batch(network, table, take_inputs(model, make_batch(seed=seed)), [], Stream(1))
            table.values -= 0.1 * gradients
        results.append(table.values.copy())
    assert results[0].tobytes() == results[1].tobytes()


def test_every_replica_draws_its_masks_from_a_stream_of_its_own(tmp_path, replicate):
    model = parse(tmp_path, "last = dropout_layer(data_layer('x', 5), 0.5, name='dropped')")
    network, main = replicate(model, fill(model), 2), Stream(9)
    batch = take_inputs(model, make_batch(6))
    batch["x"] = Argument(value=np.ones((6, 5), np.float32))
    network.forward(batch, main)
    first, second = (one.outputs["dropped"].value for one in network.replicas)
    assert main.state == 9
    assert first.tolist() == second.tolist()  # with the seed for all
    assert 0 < first.sum() < first.size


@pytest.mark.parametrize(("use_global_seed", "states"), [(True, [7, 7, 7]), (False, [8, 9, 10])])
def test_the_streams_of_replicas_start_at_the_seed_or_behind_it(use_global_seed, states):
    assert [replica_state(7, number, use_global_seed) for number in range(3)] == states


def test_moving_averages_follow_the_replicas_in_order(tmp_path, replicate):
    body = (
        "last = batch_norm_layer(fc_layer(data_layer('x', 5), 6), act=LinearActivation(), moving_average_fraction=0.7)"
    )
    model = parse(tmp_path, body)
    parts, halves = fill(model), fill(model)
    batch = take_inputs(model, make_batch())
    _, found, _ = train_batch(replicate(model, parts, 2), parts, batch, [], Stream(1))
    half = Network(model, halves)
    sums = np.zeros_like(found)
    for slots in cut_batch(batch, 2):
        sums += train_batch(half, halves, slots, [], Stream(1))[1]
    assert found == pytest.approx(sums, rel=1e-5, abs=1e-6)
    statics = [one.name for one in model.parameters if one.is_static]
    assert len(statics) == 2
    for name in statics:
        assert parts[name].value.tobytes() == halves[name].value.tobytes()
        assert parts[name].value.any()


def test_a_step_on_the_values_of_the_table_is_one_for_all_replicas(tmp_path, replicate):
    model = parse(tmp_path, CONFIGS["dense"])
    table = fill(model)
    network = replicate(model, table, 2)
    batch = take_inputs(model, make_batch())
    table.values[:] = 0
    network.forward(batch)
    assert network.cost() == pytest.approx(SAMPLES * np.log(3), rel=1e-6)


def test_an_error_of_a_replica_ends_the_batch(tmp_path, replicate):
    model = parse(tmp_path, CONFIGS["dense"])
    network = replicate(model, fill(model), 3)
    batch = take_inputs(model, make_batch())
    labels = batch["label"].ids.copy()
    labels[-1] = 5
    with pytest.raises(DataError, match="label 5"):
        network.forward({**batch, "label": Argument(ids=labels)})
    network.forward(batch)
    assert np.isfinite(network.cost())


def test_a_bad_cost_of_any_replica_is_found(tmp_path, replicate):
    model = parse(tmp_path, CONFIGS["dense"])
    network = replicate(model, fill(model), 3)
    batch = take_inputs(model, make_batch())
    network.forward(batch)
    assert network.find_bad_cost() == ""
    batch["x"].value[-1] = np.nan
    network.forward(batch)
    assert network.find_bad_cost() == model.output_layer_names[0]


def test_a_worker_ends_when_it_is_closed():
    before = threading.active_count()
    worker = Worker("replica 1")
    done = threading.Event()
    assert worker.start(done.set).get(timeout=10) is None
    assert done.is_set()
    worker.close()
    assert threading.active_count() == before


def test_a_short_optimiser_step_leaves_the_passes_to_the_threads(tmp_path, replicate):
    """One object measured all tasks. After an optimiser step of 0.3 ms, one thread computed the next forward pass."""
    model = parse(tmp_path, CONFIGS["dense"])
    network = replicate(model, fill(model), 2)
    threads = [set(), set()]
    for replica in network._networks:
        note(replica, "forward", threads[0])
        note(replica, "backward", threads[1])
    batch = take_inputs(model, make_batch())
    network.pool.run([str, str])  # these tasks take no time
    network.forward(batch)
    network.backward()
    assert [len(one) for one in threads] == [2, 2]


def test_tasks_too_short_for_threads_are_executed_in_turn_until_they_grow(monkeypatch):
    times = iter([0.0, 0.0001, 1.0, 1.0001, 2.0, 2.003, 3.0, 3.003])  # two readings of the clock for each run
    monkeypatch.setattr(data_parallel.time, "perf_counter", lambda: next(times))
    worker, used = Worker("replica 1"), []
    tasks = MeasuredTasks([worker])
    for _ in range(4):
        found = set()
        tasks.run([lambda found=found: found.add(threading.get_ident())] * 2)
        used.append(len(found))
    worker.close()
    assert used == [2, 1, 1, 2]


def note(replica, method, found):
    """Lets a method of a replica note the thread that calls it."""
    call = getattr(replica, method)

    def noted(*given, **named):
        found.add(threading.get_ident())
        return call(*given, **named)

    setattr(replica, method, noted)


# ----- Cutting -----


def test_parts_are_cut_as_the_legacy_cut_them():
    batch = {"x": Argument(value=np.arange(7.0)[:, None])}
    assert [part["x"].value[:, 0].tolist() for part in cut_batch(batch, 3)] == [[0, 1], [2, 3], [4, 5, 6]]


def test_a_part_without_samples_is_none():
    parts = cut_batch({"x": Argument(ids=np.array([4]))}, 3)
    assert [part and part["x"].ids.tolist() for part in parts] == [None, None, [4]]


def test_a_batch_that_is_one_part_is_handed_on_as_it_is():
    batch = {"x": Argument(value=np.zeros((3, 2), np.float32))}
    assert cut_batch(batch, 1) == [batch] and cut_batch(batch, 1)[0]["x"] is batch["x"]
    assert cut_batch({"x": Argument(value=np.zeros((0, 2), np.float32))}, 1) == [None]


def test_sequences_are_cut_with_their_frames_and_sub_sequences():
    one = Argument(ids=np.arange(9), starts=np.array([0, 4, 4, 6, 9]), sub_starts=np.array([0, 1, 1, 4, 6, 8, 9]))
    first, second = one.cut(0, 2), one.cut(2, 4)
    assert (first.ids.tolist(), first.starts.tolist(), first.sub_starts.tolist()) == (
        [0, 1, 2, 3],
        [0, 4, 4],
        [0, 1, 1, 4],
    )
    assert (second.ids.tolist(), second.starts.tolist(), second.sub_starts.tolist()) == (
        [4, 5, 6, 7, 8],
        [0, 2, 5],
        [0, 2, 4, 5],
    )


def test_cutting_copies_no_values():
    value = np.zeros((4, 2), np.float32)
    sparse = Sparse(9, np.array([0, 2, 3, 3, 5]), np.arange(5), np.ones(5, np.float32))
    assert np.shares_memory(Argument(value=value).cut(1, 3).value, value)
    cut = Argument(sparse=sparse).cut(1, 4).sparse
    assert np.shares_memory(cut.ids, sparse.ids)
    assert (cut.offsets.tolist(), cut.ids.tolist()) == ([0, 1, 1, 3], [2, 3, 4])


def test_rows_that_repeat_are_cut_by_their_index():
    one = Argument(distinct=np.array([[1.0], [2.0]]), index=np.array([1, 0, 1]), starts=np.array([0, 1, 3]))
    assert one.cut(1, 2).value.tolist() == [[1], [2]]
