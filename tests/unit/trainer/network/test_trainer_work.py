"""Which batches are cut into parts: those whose work is worth a second thread (issue E 25)."""

import numpy as np
import pytest
from each import each
from layer_checks import dense as rows_of
from layer_checks import differs_in_halves, ids, make_layer

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig
from trainer.arrays.arguments import Argument, Sparse
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.config import parse_config
from trainer.config.v1.layer_types import LAYER_TYPES
from trainer.network.batch_work import LEAST_OF_LAYER, estimate
from trainer.network.data_parallel import DataParallelNetwork
from trainer.network.network import Network

HEAD = "from paddle.trainer_config_helpers import *\nsettings(batch_size=1)\nlabel = data_layer('label', 2)\n"
TAIL = "\noutputs(classification_cost(fc_layer(x, 2, act=SoftmaxActivation()), label))\n"


@pytest.fixture
def parse(tmp_path):
    def parse_network(body):
        (tmp_path / "config.py").write_text(HEAD + body + TAIL)
        return parse_config(str(tmp_path / "config.py"), "").model_config

    return parse_network


def dense(rows, width):
    return Argument(value=np.ones((rows, width), np.float32))


def labels(rows):
    return Argument(ids=np.zeros(rows, np.int32))


def test_the_operations_of_dense_layers_are_those_of_their_products_three_times(parse):
    work = estimate(parse("x = fc_layer(data_layer('x', 100), 50)"))
    operations = work.operations({"x": dense(8, 100), "label": labels(8)})
    products = 3 * 2 * 8 * (100 * 50 + 50 * 2)
    assert products < operations < 1.2 * products
    assert work.layers == 3


def test_sparse_input_counts_by_what_is_in_it_and_not_by_its_width(parse):
    work = estimate(parse("x = data_layer('x', 30000)"))
    sparse = Sparse(30000, np.arange(0, 9 * 80, 80), np.zeros(640, np.int32))
    few = work.operations({"x": Argument(sparse=sparse), "label": labels(8)})
    assert 3 * 2 * 2 * 640 < few < 3 * 2 * 2 * 640 + 3 * 8 * 10 * 8
    assert work.is_small({"x": Argument(sparse=sparse), "label": labels(8)})


def test_ids_count_by_the_rows_that_they_pick(parse):
    work = estimate(parse("x = pooling_layer(embedding_layer(data_layer('x', 30000), 128))"))
    batch = {"x": Argument(ids=np.zeros(800, np.int32), starts=np.arange(0, 801, 100)), "label": labels(8)}
    assert 3 * 128 * 800 < work.operations(batch) < 30 * 3 * 128 * 800


@pytest.mark.parametrize(
    "body",
    [
        "x = batch_norm_layer(data_layer('x', 4), act=ReluActivation())",
        "x = fc_layer(data_layer('x', 4), 3, layer_attr=ExtraAttr(drop_rate=0.5))",
        "x = dropout_layer(data_layer('x', 4), 0.5)",
        "x = last_seq(recurrent_group(lambda y: fc_layer([y, memory('s', 4)], 4, name='s'), data_layer('x', 4)))",
        "x = resize_layer(data_layer('x', 4), 4)",  # tests/integration/trainer has it for that
    ],
    ids=["batch_norm", "drop_rate", "dropout", "group", "resize"],
)
def test_networks_whose_parts_give_other_results_are_always_cut(parse, body):
    assert estimate(parse(body)) is None


@pytest.mark.parametrize(
    "body",
    [
        "x = clip_layer(data_layer('x', 4), -1, 1)",
        "x = scale_shift_layer(data_layer('x', 4))",
        "x = out_prod_layer(data_layer('x', 4), data_layer('y', 3))",
        "x = conv_shift_layer(data_layer('x', 4), data_layer('y', 3))",
        "x = factorization_machine(data_layer('x', 4), 2)",
        "x = last_seq(lstmemory(data_layer('x', 4)))",
        "x = img_conv_layer(data_layer('x', 16), 3, 2, num_channels=1)",
    ],
    ids=["clip", "scale_shift", "out_prod", "conv_shift", "factorization_machine", "lstmemory", "conv"],
)
def test_a_network_of_independent_samples_is_estimated(parse, body):
    """The first five were missing in a table, so their small batches were always cut: issue M 2.1."""
    assert estimate(parse(body)) is not None


NUMBERS = np.random.default_rng(3).normal(size=(6, 8))
STARTS = [0, 2, 3, 6]
BLOCKS = {"channels": 2, "output_x": 1, "output_y": 2, "img_size_x": 2, "img_size_y": 2, "block_x": 2, "block_y": 1}
BLOCKS |= {"stride_x": 1, "stride_y": 1, "padding_x": 0, "padding_y": 0}
# layers that the checks of gradients (tests/layer_checks.py) do not cut: kind, size, inputs, fields; and a batch
INDEPENDENT = {
    "blockexpand": (("blockexpand", 4, [{"block_expand_conf": BLOCKS}]), {}, [rows_of(NUMBERS)]),
    "crf_decoding": (("crf_decoding", 3, [{"parameter": 15}]), {}, [rows_of(NUMBERS[:, :3], STARTS)]),
    "data_norm": (
        ("data_norm", 8, [{"parameter": 40, "static": True}]),
        {"data_norm_strategy": "z-score"},
        [rows_of(NUMBERS)],
    ),
    "eos_id": (("eos_id", 1, [{}]), {"eos_id": 1}, [ids([1, 0, 1, 1, 0, 0], STARTS)]),
    "lambda_cost": (
        ("lambda_cost", 1, [{}, {}]),
        {"NDCG_num": 1, "max_sort_size": -1},
        [rows_of(NUMBERS[:, :1], STARTS), rows_of(abs(NUMBERS[:, 1:2]), STARTS)],
    ),
    "maxid": (("maxid", 1, [{}]), {"beam_size": 2}, [rows_of(NUMBERS, STARTS)]),
}


@each("kind", INDEPENDENT)
def test_halves_of_a_batch_give_the_numbers_of_the_whole_batch(kind):
    layer, fields, inputs = INDEPENDENT[kind]
    assert not LAYER_TYPES[kind].is_coupled
    assert not differs_in_halves(make_layer(*layer, **fields)[0], inputs)


REGIONS = {"pooled_width": 1, "pooled_height": 1, "spatial_scale": 1.0, "height": 2, "width": 2}
COUPLED = {
    **{
        kind: (
            (kind, 8, [{"parameter": 8, "image_conf": {"channels": 8, "img_size": 1}}] * 3),
            {},
            [rows_of(NUMBERS)] * 3,
        )
        for kind in ("batch_norm", "cudnn_batch_norm", "mkldnn_batch_norm")
    },
    "resize": (("resize", 4, [{}]), {}, [rows_of(NUMBERS)]),
    "roi_pool": (
        ("roi_pool", 2, [{"roi_pool_conf": REGIONS}, {}]),
        {},
        [rows_of(NUMBERS), rows_of([[0, 0, 0, 1, 1]] * 6)],
    ),
    "trans": (("trans", 6, [{}]), {"height": 6}, [rows_of(NUMBERS[:, :6])]),
}


@each("kind", COUPLED)
def test_a_coupled_layer_gives_other_numbers_for_halves(kind):
    layer, fields, inputs = COUPLED[kind]
    assert LAYER_TYPES[kind].is_coupled
    tested = make_layer(*layer, **fields)[0]
    tested.input_configs = [LayerConfig(size=8)] * len(inputs)  # roi_pool reads the size
    tested.is_training = True
    assert differs_in_halves(tested, inputs)


@pytest.mark.parametrize("depth", [0, 1], ids=["of data", "of a layer"])
@pytest.mark.parametrize("form", ["layer", "projection"])
def test_a_convolution_uses_its_parameter_at_every_pixel(parse, form, depth):
    below = "data_layer('x', 64)" if depth == 0 else "fc_layer(data_layer('x', 2), 64, bias_attr=False)"
    calls = {
        "layer": f"x = img_conv_layer({below}, 3, 4, num_channels=1, padding=1, bias_attr=False)",
        "projection": f"x = mixed_layer(input=conv_projection({below}, 3, 4, num_channels=1, padding=1))",
    }
    work = estimate(parse(calls[form]))
    products = 3 * 3 * 4 * 8 * 8 + 4 * 8 * 8 * 2
    assert 3 * 2 * products < work.operations({"x": dense(1, 64), "label": labels(1)}) < 2.5 * 3 * 2 * products


BODY = "x = fc_layer(data_layer('x', 30), 20)"


@pytest.mark.parametrize("rows", [1, 7, 60])
def test_a_small_batch_gives_the_bits_of_one_network_and_uses_one_thread(parse, rows, capsys):
    model = parse(BODY)
    rng = np.random.default_rng(rows)
    batch = {
        "x": Argument(value=rng.normal(size=(rows, 30)).astype(np.float32)),
        "label": Argument(ids=rng.integers(0, 2, rows)),
    }
    found = []
    for make in (Network, lambda config, table: DataParallelNetwork(config, table, [Stream(1), Stream(2)])):
        table = ParameterTable(model.parameters)
        table.randomize(Stream(5))
        network = make(model, table)
        for _ in range(2):
            network.forward(batch, Stream(3))
            network.backward()
        found.append((network.cost(), table.gradients.tobytes(), len(network.replicas)))
    network.close()
    assert found[0] == found[1]
    assert found[1][2] == 1
    assert capsys.readouterr().err.count("one thread computes small batches, because this is faster") == 1


def test_a_batch_that_is_worth_it_is_cut(parse, monkeypatch):
    model = parse(BODY)
    work = estimate(model)
    rows = int(LEAST_OF_LAYER * work.layers / work.operations({"x": dense(1, 30), "label": labels(1)})) + 1
    assert not work.is_small({"x": dense(rows, 30), "label": labels(rows)})
    assert work.is_small({"x": dense(rows - 2, 30), "label": labels(rows - 2)})
    network = DataParallelNetwork(model, ParameterTable(model.parameters), [Stream(1), Stream(2)])
    for count, replicas in ((rows, 2), (rows - 2, 1), (rows, 2)):
        network.forward({"x": dense(count, 30), "label": labels(count)})
        assert len(network.replicas) == replicas
    network.close()


def test_a_network_of_nothing_but_data_is_no_error():
    config = ModelConfig(type="nn")
    config.layers.add(name="x", type="data", size=1, active_type="")
    assert estimate(config).is_small({"x": dense(1, 1)})
