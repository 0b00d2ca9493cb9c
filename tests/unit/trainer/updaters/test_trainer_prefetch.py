"""The rows of its tables that a batch will use, from its slots: those of the batch's gradient, and no others."""

import numpy as np
import pytest
from layer_checks import make_network

from paddle.trainer_config_helpers import *
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Sparse
from trainer.config.scripts.parse import parse_network_config
from trainer.updaters.prefetch import RowFinder, sort_rows

WORDS, SIZE = 50, 4
TABLE = ParamAttr(name="table", sparse_update=True)
IDS = np.array([7, 3, 7, 49, -1, 0, 3])
STARTS = np.array([0, 3, 7])


def build(make, *parameters):
    """The network of what `make` returns, and the finder of the rows of its parameters."""
    names = make.__code__.co_varnames[: make.__code__.co_argcount]

    def config():
        settings(batch_size=1, learning_rate=0.1)
        made = make(*(data_layer(name=name, size=WORDS) for name in names))
        outputs([sum_cost(one) for one in (made if isinstance(made, list) else [made])])

    model = parse_network_config(config)
    network, table = make_network(model, dtype=np.float32)
    return network, table, RowFinder(model, [table[name] for name in parameters or ("table",)])


def words(ids=IDS, starts=STARTS):
    return Argument(ids=np.asarray(ids), starts=starts)


def bags(ids=(3, 8, 8, 20), offsets=(0, 1, 4)):
    return Argument(sparse=Sparse(WORDS, np.array(offsets), np.array(ids)))


def check(make, batch, expected):
    """The finder names `expected`, and these are just the rows that get a gradient."""
    net, table, finder = build(make)
    (rows,) = finder.find(batch)
    assert rows.dtype == np.uint32 and rows.tolist() == expected
    net.forward(batch)
    net.backward()
    gradient = table["table"].gradient_matrix(table["table"].size // table["table"].row_width, table["table"].row_width)
    assert np.flatnonzero(gradient.any(axis=1)).tolist() == expected


def pooled(layer):
    return fc_layer(pooling_layer(layer, pooling_type=SumPooling()), size=2, act=SquareActivation())


def test_rows_of_an_embedding():
    check(lambda a: pooled(embedding_layer(a, SIZE, param_attr=TABLE)), {"a": words()}, [0, 3, 7, 49])


def test_rows_of_sparse_input_of_a_fully_connected_layer():
    check(lambda a: fc_layer(a, SIZE, act=SquareActivation(), param_attr=TABLE), {"a": bags()}, [3, 8, 20])


def test_rows_of_projections_of_a_mixed_layer_and_of_several_users_of_one_table():
    def net(a, b, c):
        both = mixed_layer(SIZE, [table_projection(a, param_attr=TABLE), table_projection(b, param_attr=TABLE)])
        return [pooled(both), fc_layer(c, SIZE, act=SquareActivation(), param_attr=TABLE)]

    batch = {"a": words(), "b": words([1, 1, 2, 2, 2, 2, 2]), "c": bags([30], [0, 0, 1])}
    _, _, finder = build(net)
    assert finder.find(batch)[0].tolist() == [0, 1, 2, 3, 7, 30, 49]


def test_rows_of_a_full_matrix_projection_of_sparse_input():
    def net(a):
        return fc_layer(mixed_layer(SIZE, [full_matrix_projection(a, param_attr=TABLE)]), 1, act=SquareActivation())

    check(net, {"a": bags()}, [3, 8, 20])


def test_rows_of_an_embedding_inside_of_groups():
    def net(a):
        def inner(frame):
            return fc_layer([embedding_layer(frame, SIZE, param_attr=TABLE), memory("s", SIZE)], SIZE, name="s")

        return pooled(recurrent_group(inner, a))

    check(net, {"a": words([7, 3, 7, 49, 1, 0, 3])}, [0, 1, 3, 7, 49])


def test_rows_of_a_static_input_of_a_group():
    def net(a, b):
        def step(frame, still):
            parts = [embedding_layer(frame, SIZE), embedding_layer(still, SIZE, param_attr=TABLE)]
            return fc_layer(parts, SIZE, act=SquareActivation())

        return pooled(recurrent_group(step, [a, StaticInput(b)]))

    check(net, {"a": words([1, 2, 3, 4, 5, 6, 7]), "b": Argument(ids=np.array([9, 4]))}, [4, 9])


def test_several_tables_in_the_order_asked_for():
    def net(a, b):
        named = ((a, "first"), (b, "second"))
        return [
            pooled(embedding_layer(one, SIZE, param_attr=ParamAttr(name=name, sparse_update=True)))
            for one, name in named
        ]

    _, _, finder = build(net, "second", "first")
    assert [rows.tolist() for rows in finder.find({"a": words([5], [0, 1]), "b": words([6], [0, 1])})] == [[6], [5]]


@pytest.mark.parametrize("count", [0, 1, 30, 3000])
def test_rows_are_sorted_and_single_however_many_there_are(count):
    _, table, _ = build(lambda a: embedding_layer(a, SIZE, param_attr=TABLE))
    ids = np.random.default_rng(count).integers(-1, WORDS, count)
    assert sort_rows(ids, table["table"]).tolist() == sorted(set(ids.tolist()) - {-1})


@pytest.mark.parametrize(
    ("bad", "text"), [(50, "gives row 50"), (-2, "gives row -2"), (2**40, "gives row 1099511627776")]
)
def test_an_id_beyond_the_table_is_named(bad, text):
    _, _, finder = build(lambda a: embedding_layer(a, SIZE, param_attr=TABLE))
    with pytest.raises(DataError, match=f"data layer a {text}, but layer __embedding_0__ takes rows -1 to 49 of"):
        finder.find({"a": words([3, bad], [0, 2])})


@pytest.mark.parametrize(
    ("slot", "kind"), [(Argument(value=np.ones((2, WORDS))), "sparse vectors"), (words(), "sparse")]
)
def test_a_slot_of_another_kind_is_named(slot, kind):
    _, _, finder = build(lambda a: fc_layer(a, SIZE, param_attr=TABLE))
    with pytest.raises(
        ConfigError, match=r"parameter table, which has sparse_update, with data layer a, .* sparse vectors"
    ):
        finder.find({"a": slot})


def test_a_layer_that_uses_all_rows_is_refused():
    def net(a, b):
        embedded = embedding_layer(a, SIZE, param_attr=TABLE)
        return mixed_layer(WORDS, [trans_full_matrix_projection(embedded, param_attr=TABLE)])

    with pytest.raises(ConfigError, match=r"parameter table has sparse_update, but layer \S+ \(mixed\) uses all of it"):
        build(net)


def test_sparse_update_of_a_bias_is_refused():
    with pytest.raises(ConfigError, match=r"layer \S+ \(fc\) uses all of it"):
        build(lambda a: fc_layer(a, SIZE, bias_attr=ParamAttr(name="table", sparse_update=True)))


def test_rows_that_a_computed_layer_chooses_are_refused():
    def net(a):
        return embedding_layer(maxid_layer(fc_layer(a, WORDS)), SIZE, param_attr=TABLE)

    with pytest.raises(ConfigError, match=r"depend on layer __maxid_layer_0__ \(maxid\)"):
        build(net)
