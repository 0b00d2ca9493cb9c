"""The gradient check of the image layers: one line for each type, in float64 against central differences.

Besides the parameters' gradients the rows that come in are checked: they are the values of an fc layer's weight.
"""

import numpy as np
from each import each
from image_layers import batch_norm_of, build, conv_conf, image_conf, layer, norm_of, pool_conf, volume_conf
from layer_checks import check_cost_gradients, make_network, types_of

from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.layers.image import batch_norm, conv, norm, pixel_values, places, pool
from trainer.layers.mixed import conv_projections
from trainer.network.network import Network

FAMILIES = (batch_norm, conv, places, pixel_values, norm, pool)


def projection(kind, width, size):
    """Two groups, 4 channels and 6 filters."""
    conf = conv_conf(4, (7, 5), (3, 3), (2, 2), groups=2)
    return {
        "type": kind,
        "name": kind,
        "input_size": width,
        "output_size": size,
        "conv_conf": conf,
        "num_filters": 6,
    }


def operator(kind, width, size):
    """2 channels, 3 filters of 2 x 2."""
    return {
        "type": kind,
        "input_indices": [0, 1],
        "input_sizes": [width, 2 * 3 * 4],
        "output_size": size,
        "conv_conf": conv_conf(2, (5, 4), (2, 2)),
        "num_filters": 3,
    }


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
    "pool of means without padding": (
        2 * 5 * 6,
        layer(
            "pool",
            [{"pool_conf": pool_conf(2, (5, 6), (3, 4), (2, 3), (1, 2), kind="avg-projection", exclude_mode=True)}],
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
    "maxout": (6 * 4, layer("maxout", [{"maxout_conf": {"image_conf": image_conf(6, (2, 2)), "groups": 3}}])),
    "bilinear_interp": (
        2 * 3 * 4,
        layer(
            "bilinear_interp",
            [{"bilinear_interp_conf": {"image_conf": image_conf(2, (3, 4)), "out_size_x": 7, "out_size_y": 5}}],
        ),
    ),
    "bilinear_interp to a smaller image": (
        2 * 3 * 4,
        layer(
            "bilinear_interp",
            [{"bilinear_interp_conf": {"image_conf": image_conf(2, (3, 4)), "out_size_x": 1, "out_size_y": 2}}],
        ),
    ),
    "scale_sub_region": (
        2 * 3 * 4,
        layer(
            "scale_sub_region",
            [{"scale_sub_region_conf": {"image_conf": image_conf(2, (3, 4)), "value": 2.5}}, {"layer": "boxes"}],
        ),
    ),
    "roi_pool": (
        2 * 16,
        layer(
            "roi_pool",
            [
                {"roi_pool_conf": {"pooled_width": 2, "pooled_height": 3, "spatial_scale": 0.5}},
                {"layer": "regions"},
            ],
            image=(4, 4),
        ),
    ),
    "pad": (
        2 * 3 * 4,
        layer(
            "pad",
            [{"pad_conf": {"image_conf": image_conf(2, (3, 4)), "pad_c": [1, 0], "pad_h": [0, 2], "pad_w": [1, 1]}}],
        ),
    ),
    "crop": (
        3 * 3 * 4,
        layer(
            "crop",
            [{"image_conf": image_conf(3, (3, 4))}],
            axis=1,
            offset=[1, 0, 2],
            shape=[4, 2, 2, 2],
            size=2 * 2 * 2,
        ),
    ),
    "crop to a second input": (
        2 * 3 * 3,
        layer(
            "crop",
            [{"image_conf": image_conf(2, (3, 3))}, {"layer": "small"}],
            axis=2,
            offset=[1],
        ),
    ),
    "rotate": (2 * 3 * 4, layer("rotate", [{}], size=24, height=3, width=4)),
    "switch_order": (2 * 3 * 4, layer("switch_order", [{"image_conf": image_conf(2, (3, 4))}])),
    "switch_order to other rows": (
        2 * 3 * 4,
        layer(
            "switch_order",
            [{"image_conf": image_conf(2, (3, 4))}],
            reshape_conf={"height_axis": [0, 1], "width_axis": [2, 3]},
        ),
    ),
    "blockexpand": (
        2 * 4 * 4,
        layer(
            "blockexpand",
            [
                {
                    "block_expand_conf": {
                        **dict.fromkeys(("output_x", "output_y", "img_size_x", "img_size_y"), 0),
                        "channels": 2,
                        "stride_x": 2,
                        "stride_y": 1,
                        "padding_x": 1,
                        "padding_y": 0,
                        "block_x": 3,
                        "block_y": 2,
                    }
                }
            ],
        ),
    ),
    "upsample": (
        2 * 2 * 2,
        layer("upsample", [{"upsample_conf": {"image_conf": image_conf(2, (2, 2))}}, {"layer": "pooled"}]),
    ),
    **{
        f"mixed: {kind} projection": (
            width,
            layer(
                "mixed",
                [{"proj_conf": projection(kind, width, size), "parameter": 4 * 3 * 9}],
                size=size,
            ),
        )
        for kind, width, size in (("conv", 4 * 7 * 5, 6 * 3 * 2), ("convt", 4 * 3 * 2, 6 * 7 * 5))
    },
    **{
        f"mixed: {kind} operator": (
            width,
            layer(
                "mixed",
                [{}, {"layer": "filters"}],
                operator_confs=[operator(kind, width, size)],
                size=size,
                filters=2 * 3 * 4,
            ),
        )
        for kind, width, size in (("conv", 2 * 5 * 4, 3 * 4 * 3), ("convt", 2 * 4 * 3, 3 * 5 * 4))
    },
}


OTHERS = {
    "scale_sub_region": ("boxes", [1, 2, 2, 3, 1, 1]),
    "roi_pool": ("regions", [0, 1, 1, 6, 4]),
    "crop to a second input": ("small", [0.0] * 8),
}


def slots(name, x):
    """The batch of a case: x, and what else its layer reads."""
    other, row = OTHERS.get(name, ("", []))
    large = np.random.default_rng(5).normal(size=(len(x), 2 * 16)).astype(x.dtype)
    return {
        "x": Argument(value=x),
        "large": Argument(value=large),
        other: Argument(value=np.array([row] * len(x), x.dtype).reshape(len(x), len(row))),
    }


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
    table.values[:] = rng.normal(size=table.values.size)
    check_cost_gradients(network, table, lambda: network.forward(batch, is_training=True), rng, rel=5e-6)
    assert (table.gradients != 0).any()


@each("rows", [1, 4])
@each("name", CASES)
def test_gradients_agree_with_finite_differences(name, rows):
    rng = np.random.default_rng(len(name) + rows)
    width, fields = CASES[name]
    if "batch_norm of rows" in name:
        rows += 3
    check(build(width, fields), slots(name, rng.normal(size=(rows, width))), rng)


@each("name", CASES)
def test_a_batch_without_rows_runs_both_ways(name):
    width, fields = CASES[name]
    config = build(width, fields)
    network, table = make_network(config, dtype=np.float32)
    out = network.forward(slots(name, np.empty((0, width), np.float32)), is_training=True)["out"]
    assert out.value.shape[0] == 0
    network.backward()
    assert not table.gradients.any()


@each("name", CASES)
def test_float32_stays_float32(name):
    rng = np.random.default_rng(1)
    width, fields = CASES[name]
    config = build(width, fields)
    network, _ = make_network(config, rng, dtype=np.float32)
    x = rng.normal(size=(3, width)).astype(np.float32)
    first = network.forward(slots(name, x), is_training=True)["out"].value.copy()
    network.backward()
    assert first.dtype == np.float32
    network.forward(slots(name, x[:1]))  # buffers of another size in between
    again = network.forward(slots(name, x), is_training=True)["out"].value
    np.testing.assert_array_equal(again, first)


def test_the_table_has_every_type():
    assert types_of(*FAMILIES) <= {fields["type"] for _, fields in CASES.values()}
    for kind in conv_projections.PROJECTIONS:
        assert f"mixed: {kind} projection" in CASES
    for kind in conv_projections.OPERATORS:
        assert f"mixed: {kind} operator" in CASES
