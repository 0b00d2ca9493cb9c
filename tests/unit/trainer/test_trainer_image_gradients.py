"""The gradient check of the image layers: one line for each type, in float64 against central differences.

Besides the parameters' gradients the rows that come in are checked: they are the values of an fc layer's weight.
"""

import numpy as np
import pytest

from proto.ModelConfig_pb2 import ModelConfig
from trainer.arguments import Argument
from trainer.layers import batch_norm, conv, norm, pool
from trainer.network import Network
from trainer.parameters import ParameterTable

FAMILIES = (batch_norm, conv, norm, pool)


def conv_conf(channels, image, size, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, filters=0, **extra):
    """A ConvConfig from (y, x) pairs, sizes of the output rounded down."""
    grid = [
        (i + 2 * p - (k - 1) * d - 1) // s + 1
        for i, k, s, p, d in zip(image, size, stride, padding, dilation, strict=True)
    ]
    return {
        "channels": channels,
        "groups": groups,
        "filter_channels": (filters or channels) // groups,
        "caffe_mode": True,
        **dict(zip(("img_size_y", "img_size"), image, strict=True)),
        **dict(zip(("output_y", "output_x"), grid, strict=True)),
        **dict(zip(("filter_size_y", "filter_size"), size, strict=True)),
        **dict(zip(("stride_y", "stride"), stride, strict=True)),
        **dict(zip(("padding_y", "padding"), padding, strict=True)),
        **dict(zip(("dilation_y", "dilation"), dilation, strict=True)),
        **extra,
    }


def volume_conf(channels, image, size, stride, padding, filters=0):
    """A ConvConfig from (z, y, x) triples."""
    grid = [(i + 2 * p - k) // s + 1 for i, k, s, p in zip(image, size, stride, padding, strict=True)]
    return {
        **conv_conf(channels, image[1:], size[1:], stride[1:], padding[1:], filters=filters),
        "img_size_z": image[0],
        "output_z": grid[0],
        "filter_size_z": size[0],
        "stride_z": stride[0],
        "padding_z": padding[0],
    }


def pool_conf(channels, image, size, stride, padding=(0, 0), kind="max-projection", **extra):
    """A PoolConfig from (y, x) or (z, y, x), sizes of the output rounded up."""
    result = {"channels": channels, "pool_type": kind, **extra}
    names = [
        ("_z", "_z"),
        ("_y", "_y"),
        ("", "_x"),
    ][-len(image) :]
    for (tail, x_tail), i, k, s, p in zip(names, image, size, stride, padding, strict=True):
        grid = 1 - (-(i + 2 * p - k) // s)
        result |= {f"img_size{tail}": i, f"output{x_tail}": grid, f"size{x_tail}": k, f"stride{tail}": s}
        result[f"padding{tail}"] = p
    return result


def layer(kind, inputs, bias=0, **fields):
    """A layer's record: its inputs are dicts of LayerInputConfig with `parameter`, the size of a parameter."""
    return {"type": kind, "inputs": inputs, "bias": bias, **fields}


def image_conf(channels, image):
    return {"channels": channels, **dict(zip(("img_size_y", "img_size"), image, strict=True))}


def batch_norm_of(channels, pixels, **fields):
    inputs = [
        {"image_conf": {"channels": channels, "img_size": pixels, "img_size_y": 1}, "parameter": channels},
        {"parameter": channels, "static": True},
        {"parameter": channels, "static": True},
    ]
    return layer("batch_norm", inputs, channels, size=channels * pixels, **fields)


def norm_of(kind, channels, pixels, size, **conf):
    fields = {"norm_type": kind, "channels": channels, "size": size, "scale": 0.3, "pow": 0.75}
    fields |= {"output_x": pixels, "img_size": pixels, "output_y": 1, "img_size_y": 1, **conf}
    return {"norm_conf": fields}


# name: (width of the rows that come in, the layer)
CASES = {
    "exconv": (
        2 * 5 * 4,
        layer(
            "exconv",
            [{"conv_conf": conv_conf(2, (5, 4), (3, 2)), "parameter": 3 * 2 * 6}],
            3,
            num_filters=3,
            shared_biases=True,
        ),
    ),
    "exconv padded, strides, dilation, a bias for each value": (
        2 * 7 * 6,
        layer(
            "exconv",
            [{"conv_conf": conv_conf(2, (7, 6), (2, 3), (2, 1), (1, 2), (2, 2)), "parameter": 3 * 2 * 6}],
            3 * 4 * 6,
            num_filters=3,
        ),
    ),
    "conv in groups, no bias": (
        4 * 4 * 4,
        layer("conv", [{"conv_conf": conv_conf(4, (4, 4), (3, 3), groups=2), "parameter": 6 * 2 * 9}], num_filters=6),
    ),
    "cudnn_conv, rounded up": (
        6 * 6,
        layer(
            "cudnn_conv",
            [
                {
                    "conv_conf": conv_conf(1, (6, 6), (3, 3), (2, 2), caffe_mode=False, output_x=3, output_y=3),
                    "parameter": 2 * 9,
                }
            ],
            2,
            num_filters=2,
            shared_biases=True,
        ),
    ),
    "mkldnn_conv of two inputs": (
        2 * 4 * 4,
        layer(
            "mkldnn_conv",
            [
                {"conv_conf": conv_conf(2, (4, 4), (2, 2)), "parameter": 3 * 2 * 4},
                {"conv_conf": conv_conf(2, (4, 4), (4, 4), padding=(1, 1)), "parameter": 3 * 2 * 16},
            ],
            3,
            num_filters=3,
            shared_biases=True,
        ),
    ),
    **{
        f"{kind}": (
            4 * 3 * 2,
            layer(
                kind,
                [{"conv_conf": conv_conf(4, (7, 5), (3, 3), (2, 2), (0, 0), groups=2), "parameter": 4 * 3 * 9}],
                6,
                num_filters=6,
                shared_biases=True,
            ),
        )
        for kind in ("exconvt", "convt", "cudnn_convt")
    },
    "conv3d": (
        2 * 3 * 4 * 3,
        layer(
            "conv3d",
            [
                {
                    "conv_conf": volume_conf(2, (3, 4, 3), (2, 3, 2), (1, 2, 1), (1, 1, 0)),
                    "parameter": 3 * 2 * 12,
                }
            ],
            3,
            num_filters=3,
            shared_biases=True,
        ),
    ),
    "deconv3d": (
        2 * 4 * 2 * 2,
        layer(
            "deconv3d",
            [{"conv_conf": volume_conf(2, (3, 4, 3), (2, 3, 2), (1, 2, 1), (1, 1, 0)), "parameter": 2 * 3 * 12}],
            3,
            num_filters=3,
            shared_biases=True,
        ),
    ),
    "pool of largest": (2 * 5 * 4, layer("pool", [{"pool_conf": pool_conf(2, (5, 4), (2, 2), (2, 2))}])),
    "pool of largest, overlapping, padded": (
        2 * 5 * 6,
        layer("pool", [{"pool_conf": pool_conf(2, (5, 6), (3, 4), (1, 2), (1, 2), kind="cudnn-max-pool")}]),
    ),
    "pool of largest with mask": (
        2 * 5 * 4,
        layer("pool", [{"pool_conf": pool_conf(2, (5, 4), (2, 2), (2, 2), kind="max-pool-with-mask")}]),
    ),
    "pool of means": (
        2 * 5 * 6,
        layer("pool", [{"pool_conf": pool_conf(2, (5, 6), (3, 4), (2, 3), (1, 2), kind="avg-projection")}]),
    ),
    "pool of means with padding": (
        2 * 5 * 6,
        layer(
            "pool",
            [{"pool_conf": pool_conf(2, (5, 6), (3, 4), (2, 3), (1, 2), kind="avg-projection", exclude_mode=False)}],
        ),
    ),
    "pool3d of largest": (
        2 * 4 * 3 * 5,
        layer("pool3d", [{"pool_conf": pool_conf(2, (4, 3, 5), (2, 2, 3), (2, 1, 2), (0, 0, 1))}]),
    ),
    "pool3d of means": (
        2 * 4 * 3 * 5,
        layer(
            "pool3d",
            [{"pool_conf": pool_conf(2, (4, 3, 5), (2, 2, 3), (2, 1, 2), (0, 0, 1), kind="avg-projection")}],
        ),
    ),
    "spp": (
        2 * 5 * 7,
        layer(
            "spp",
            [{"spp_conf": {"image_conf": image_conf(2, (5, 7)), "pool_type": "max-projection", "pyramid_height": 2}}],
        ),
    ),
    "batch_norm of rows": (5, batch_norm_of(5, 1)),
    "batch_norm of images": (3 * 4, batch_norm_of(3, 4, active_type="tanh")),
    "cudnn_batch_norm": (6, {**batch_norm_of(2, 3), "type": "cudnn_batch_norm"}),
    "mkldnn_batch_norm without a bias": (6, {**batch_norm_of(2, 3), "type": "mkldnn_batch_norm", "bias": 0}),
    "norm across maps": (7 * 3, layer("norm", [norm_of("cmrnorm-projection", 7, 3, 4)], size=21)),
    "norm to length one": (
        4 * 3,
        layer("norm", [{**norm_of("cross-channel-norm", 4, 3, 4), "parameter": 4}], size=12),
    ),
}


def build(width, fields):
    """data x -> fc -> the layer under test, whose output is the network's."""
    config = ModelConfig(type="nn", output_layer_names=["out"])
    config.layers.add(name="x", type="data", size=width)
    first = config.layers.add(name="first", type="fc", size=width)
    first.inputs.add(input_layer_name="x", input_parameter_name="first.w")
    config.parameters.add(name="first.w", size=width * width, dims=[width, width])
    rest = {name: value for name, value in fields.items() if name not in ("inputs", "bias")}
    out = config.layers.add(name="out", **rest)
    for position, one in enumerate(fields["inputs"]):
        conf = {name: value for name, value in one.items() if name not in ("parameter", "static", "layer")}
        link = out.inputs.add(input_layer_name=one.get("layer", "first"), **conf)
        if "parameter" in one:
            link.input_parameter_name = f"out.w{position}"
            config.parameters.add(
                name=link.input_parameter_name, size=one["parameter"], is_static=one.get("static", False)
            )
    if fields["bias"]:
        out.bias_parameter_name = "out.wbias"
        config.parameters.add(name="out.wbias", size=fields["bias"])
    return config


def add_cost(config):
    """Square the distances of the output from the data layer y."""
    config.layers.add(name="y", type="data", size=1)
    cost = config.layers.add(name="cost", type="square_error", size=1)
    cost.inputs.add(input_layer_name="out")
    cost.inputs.add(input_layer_name="y")
    config.output_layer_names[:] = ["cost"]


def check(config, batch, rng):
    """Compare the gradient of the distance from random targets along a random direction."""
    table = ParameterTable(config.parameters, np.float64)
    shape = Network(config, table).forward(batch)["out"].value.shape
    add_cost(config)
    batch = {**batch, "y": Argument(value=rng.normal(size=shape))}
    network = Network(config, table)

    def cost_at(values):
        table.values[:] = values
        network.forward(batch, is_training=True)
        return network.cost()

    start, direction = rng.normal(size=table.values.size), rng.normal(size=table.values.size)
    step = 1e-6
    numeric = (cost_at(start + step * direction) - cost_at(start - step * direction)) / (2 * step)
    cost_at(start)
    table.clear_gradients()
    network.backward()
    assert float(table.gradients @ direction) == pytest.approx(numeric, rel=5e-6, abs=1e-7)
    assert (table.gradients != 0).any()


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("name", CASES)
def test_gradients_agree_with_finite_differences(name, rows):
    rng = np.random.default_rng(len(name) + rows)
    width, fields = CASES[name]
    if "batch_norm of rows" in name:
        rows += 3
    check(build(width, fields), {"x": Argument(value=rng.normal(size=(rows, width)))}, rng)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_without_rows_runs_both_ways(name):
    width, fields = CASES[name]
    config = build(width, fields)
    table = ParameterTable(config.parameters)
    network = Network(config, table)
    out = network.forward({"x": Argument(value=np.empty((0, width), np.float32))}, is_training=True)["out"]
    assert out.value.shape[0] == 0
    network.backward()
    assert not table.gradients.any()


@pytest.mark.parametrize("name", CASES)
def test_float32_stays_float32(name):
    rng = np.random.default_rng(1)
    width, fields = CASES[name]
    config = build(width, fields)
    table = ParameterTable(config.parameters)
    table.values[:] = rng.normal(size=table.values.size)
    network = Network(config, table)
    x = rng.normal(size=(3, width)).astype(np.float32)
    first = network.forward({"x": Argument(value=x)}, is_training=True)["out"].value.copy()
    network.backward()
    assert first.dtype == np.float32
    network.forward({"x": Argument(value=x[:1])})  # buffers of another size in between
    again = network.forward({"x": Argument(value=x)}, is_training=True)["out"].value
    np.testing.assert_array_equal(again, first)


def test_the_table_has_every_type():
    types = {kind for family in FAMILIES for kind in family.LAYERS}
    assert {fields["type"] for _, fields in CASES.values()} == types
