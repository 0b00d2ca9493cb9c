"""What the image layers compute, against plain loops over every place and against numbers worked out by hand."""

import numpy as np
import pytest
from each import each
from image_layers import batch_norm_of, conv_conf, image_conf, layer, norm_of, pool_conf, run, start, volume_conf

from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument


def places(origin, sizes, dilation, image):
    """(index in the window, place in the image) of what a window has inside the image."""
    for index in np.ndindex(*sizes):
        place = tuple(o + i * d for o, i, d in zip(origin, index, dilation, strict=True))
        if all(0 <= p < n for p, n in zip(place, image, strict=True)):
            yield index, place


def convolve(x, w, grid, stride, padding, dilation, groups):
    """Plain loops. Shapes: x: (channels, *image), w: (filters, channels / groups, *sizes)."""
    result = np.zeros((len(w), *grid))
    for f in range(len(w)):
        group = f // (len(w) // groups)
        for window in np.ndindex(*grid):
            origin = [o * s - p for o, s, p in zip(window, stride, padding, strict=True)]
            for index, place in places(origin, w.shape[2:], dilation, x.shape[1:]):
                for c in range(w.shape[1]):
                    result[(f, *window)] += w[(f, c, *index)] * x[(group * w.shape[1] + c, *place)]
    return result


def spread(x, w, image, stride, padding, groups):
    """Plain loops of the transpose. Shapes: x: (channels, *grid), w: (channels, filters / groups, *sizes)."""
    filters = w.shape[1]
    result = np.zeros((filters * groups, *image))
    for c in range(len(x)):
        group = c // (len(x) // groups)
        for window in np.ndindex(*x.shape[1:]):
            origin = [o * s - p for o, s, p in zip(window, stride, padding, strict=True)]
            for index, place in places(origin, w.shape[2:], (1,) * len(image), image):
                for f in range(filters):
                    result[(group * filters + f, *place)] += w[(c, f, *index)] * x[(c, *window)]
    return result


GEOMETRIES = {
    "plain": ((5, 4), (3, 2), (1, 1), (0, 0), (1, 1), 1),
    "rectangles, strides, padding": ((7, 6), (2, 3), (2, 1), (1, 2), (1, 1), 1),
    "dilation": ((7, 6), (2, 3), (1, 2), (0, 1), (3, 2), 1),
    "groups": ((4, 4), (3, 3), (1, 1), (1, 1), (1, 1), 2),
    "the whole image": ((3, 4), (3, 4), (1, 1), (0, 0), (1, 1), 1),
    "one pixel": ((3, 4), (1, 1), (1, 1), (0, 0), (1, 1), 2),
}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_convolution_equals_loops(name, shared):
    image, size, stride, padding, dilation, groups = GEOMETRIES[name]
    rng = np.random.default_rng(5)
    conf = conv_conf(4, image, size, stride, padding, dilation, groups)
    grid = conf["output_y"], conf["output_x"]
    w, x = rng.normal(size=(6, 4 // groups, *size)), rng.normal(size=(3, 4, *image))
    bias = rng.normal(size=6 if shared else (6, *grid))
    fields = layer("exconv", [{"conv_conf": conf, "parameter": w.size}], bias.size, num_filters=6, shared_biases=shared)
    out = run(4 * image[0] * image[1], fields, x.reshape(3, -1), {"out.w0": w, "out.wbias": bias})
    for row, one in zip(out.value, x, strict=True):
        expected = convolve(one, w, grid, stride, padding, dilation, groups) + (bias[:, None, None] if shared else bias)
        np.testing.assert_allclose(row, expected.reshape(-1), atol=1e-12)


def test_a_window_that_reaches_beyond_the_padding_sees_zeros():
    """caffe_mode false: the size is rounded up, so the last window of a row lacks a column."""
    conf = conv_conf(1, (1, 4), (1, 3), (1, 2), caffe_mode=False, output_x=2)
    fields = layer("exconv", [{"conv_conf": conf, "parameter": 3}], num_filters=1)
    out = run(4, fields, [[1, 2, 3, 4]], {"out.w0": [1, 10, 100]})
    np.testing.assert_array_equal(out.value, [[321, 43]])


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution_equals_loops(groups):
    rng = np.random.default_rng(6)
    conf = conv_conf(4, (8, 7), (3, 2), (2, 3), (1, 0), groups=groups)
    grid = conf["output_y"], conf["output_x"]
    w, x = rng.normal(size=(4, 6 // groups, 3, 2)), rng.normal(size=(2, 4, *grid))
    bias = rng.normal(size=6)
    fields = layer("exconvt", [{"conv_conf": conf, "parameter": w.size}], 6, num_filters=6, shared_biases=True)
    out = run(4 * grid[0] * grid[1], fields, x.reshape(2, -1), {"out.w0": w, "out.wbias": bias})
    for row, one in zip(out.value, x, strict=True):
        expected = spread(one, w, (8, 7), (2, 3), (1, 0), groups) + bias[:, None, None]
        np.testing.assert_allclose(row, expected.reshape(-1), atol=1e-12)


def test_convolution_of_volumes_equals_loops():
    rng = np.random.default_rng(7)
    image, size, stride, padding = (4, 5, 3), (2, 3, 2), (1, 2, 1), (1, 0, 1)
    conf = volume_conf(2, image, size, stride, padding)
    grid = conf["output_z"], conf["output_y"], conf["output_x"]
    w, x = rng.normal(size=(3, 2, *size)), rng.normal(size=(2, 2, *image))
    fields = layer("conv3d", [{"conv_conf": conf, "parameter": w.size}], num_filters=3)
    out = run(2 * 60, fields, x.reshape(2, -1), {"out.w0": w})
    expected = [convolve(one, w, grid, stride, padding, (1, 1, 1), 1).reshape(-1) for one in x]
    np.testing.assert_allclose(out.value, expected, atol=1e-12)
    y = rng.normal(size=(2, 3, *grid))
    fields = layer("deconv3d", [{"conv_conf": {**conf, "channels": 3}, "parameter": w.size}], num_filters=2)
    out = run(y[0].size, fields, y.reshape(2, -1), {"out.w0": w})
    expected = [spread(one, w, image, stride, padding, 1).reshape(-1) for one in y]
    np.testing.assert_allclose(out.value, expected, atol=1e-12)


def test_a_convolution_in_chunks_is_the_whole(monkeypatch):
    rng = np.random.default_rng(8)
    conf = conv_conf(2, (5, 5), (3, 3), padding=(1, 1))
    fields = layer("exconv", [{"conv_conf": conf, "parameter": 3 * 18}], num_filters=3)
    rows, w, g = rng.normal(size=(7, 50)), rng.normal(size=54), None
    results = []
    for chunk in (1, 2 * 9 * 25 * 8 * 3, 1 << 30):
        monkeypatch.setattr("trainer.layers.image.convolution.CHUNK_BYTES", chunk)
        network, table = start(50, fields, {"out.w0": w})
        out = network.forward({"x": Argument(value=rows)}, is_training=True)["out"].value.copy()
        network.backward()
        results.append((out, table.gradients.copy()))
    for out, g in results[1:]:
        np.testing.assert_allclose(out, results[0][0], atol=1e-12)
        np.testing.assert_allclose(g, results[0][1], atol=1e-11)


POOLS = {
    "2 x 2": ((4, 6), (2, 2), (2, 2), (0, 0)),
    "2 x 2, rounded up": ((5, 7), (2, 2), (2, 2), (0, 0)),
    "overlapping, padded": ((5, 6), (3, 4), (1, 2), (1, 2)),
    "volume": ((3, 5, 4), (2, 3, 2), (2, 2, 1), (0, 1, 1)),
}


@each("name", POOLS)
@each("kind", ["max-projection", "avg-projection", "avg with padding", "avg without padding"])
def test_pooling_equals_loops(name, kind):
    image, size, stride, padding = POOLS[name]
    rng = np.random.default_rng(9)
    mode = {"avg with padding": {"exclude_mode": False}, "avg without padding": {"exclude_mode": True}}.get(kind, {})
    counts_padding = kind == "avg with padding" or (kind == "avg-projection" and len(image) == 2)
    legacy_kind = kind if "-" in kind else "avg-projection"
    conf = pool_conf(2, image, size, stride, padding, kind=legacy_kind, **mode)
    x = rng.normal(size=(2, 2, *image))
    out = run(x[0].size, layer("pool3d" if len(image) == 3 else "pool", [{"pool_conf": conf}]), x.reshape(2, -1))
    grid = [1 - (-(i + 2 * p - k) // s) for i, k, s, p in zip(image, size, stride, padding, strict=True)]
    expected = np.zeros((2, 2, *grid))
    for window in np.ndindex(*grid):
        origin = [o * s - p for o, s, p in zip(window, stride, padding, strict=True)]
        inside = [place for _, place in places(origin, size, (1,) * len(size), image)]
        values = np.array([x[(slice(None), slice(None), *place)] for place in inside])
        count = len(inside)
        if counts_padding:  # places in the padding count, but not those beyond it
            ends = [min(o + k, n + p) - o for o, k, n, p in zip(origin, size, image, padding, strict=True)]
            count = np.prod(ends)
        expected[(slice(None), slice(None), *window)] = (
            values.max(axis=0) if kind == "max-projection" else values.sum(axis=0) / count
        )
    np.testing.assert_allclose(out.value, expected.reshape(2, -1), atol=1e-12)


def test_all_largest_values_of_a_window_get_its_gradient():
    fields = layer("pool", [{"pool_conf": pool_conf(1, (2, 2), (2, 2), (2, 2))}])
    network, table = start(4, fields)
    network.forward({"x": Argument(value=np.array([[3.0, 1.0, 2.0, 3.0]]))}, is_training=True)
    network.backward()
    np.testing.assert_array_equal(table["first.w"].gradient_matrix(4, 4)[0], [3, 0, 0, 3])


def test_a_mean_that_counts_the_padding_is_0_in_a_window_of_padding_only():
    """A pool of 3 with stride 3 and padding 1 over 5 x 5 pixels was refused; v0.10 trained it."""
    conf = pool_conf(1, (5, 5), (3, 3), (3, 3), (1, 1), kind="avg-projection")
    network, table = start(25, layer("pool", [{"pool_conf": conf}]))
    out = network.forward({"x": Argument(value=np.ones((1, 25)))}, is_training=True)["out"].value
    np.testing.assert_allclose(out.reshape(3, 3), np.outer([2 / 3, 1, 0], [2 / 3, 1, 0]))
    network.backward()
    shares = np.array([1, 1, 1, 1, 1]) / 3  # each row and column is in one window of three
    np.testing.assert_allclose(table["first.w"].gradient_matrix(25, 25)[0].reshape(5, 5), np.outer(shares, shares))


def test_the_mask_is_the_place_of_the_first_largest_value():
    fields = layer("pool", [{"pool_conf": pool_conf(1, (3, 4), (2, 2), (2, 2), kind="max-pool-with-mask")}])
    out = run(12, fields, [[5, 1, 7, 7, 2, 5, 7, 0, 1, 2, 4, 9]])
    np.testing.assert_array_equal(out.value, [[5, 7, 2, 9]])
    np.testing.assert_array_equal(out.extras["mask"], [[0, 2, 9, 11]])


def test_a_pyramid_of_pools():
    fields = layer(
        "spp", [{"spp_conf": {"image_conf": image_conf(1, (3, 4)), "pool_type": "avg-projection", "pyramid_height": 2}}]
    )
    # level 1 has bins of 2 x 2; there is a row too few, so the first bins begin in the padding, which counts
    out = run(12, fields, [np.arange(12)])
    np.testing.assert_allclose(out.value, [[5.5, 0.25, 1.25, 6.5, 8.5]])


def statistics(table):
    return table["out.w1"].value, table["out.w2"].value


@pytest.mark.parametrize("given", [{}, {"use_global_stats": True}])
def test_batch_norm_in_tests_uses_the_moving_statistics(given):
    fields = batch_norm_of(2, 1, epsilon=1.0, **given)
    values = {"out.w0": [2, 3], "out.wbias": [0, 1], "out.w1": [1, 2], "out.w2": [3, -5]}
    network, table = start(2, fields, values)
    out = network.forward({"x": Argument(value=np.array([[2.0, 2.5], [5.0, 4.0]]))})["out"].value
    np.testing.assert_allclose(out, [[1, 2.5], [4, 7]])  # deviations 2 and 1: a negative variance counts as 0
    np.testing.assert_array_equal(statistics(table), [[1, 2], [3, -5]])


def test_batch_norm_of_training_ignores_use_global_stats():
    fields = batch_norm_of(1, 1, epsilon=1e-5, use_global_stats=True)
    out = run(1, fields, [[2], [4]], {"out.w0": 1, "out.w1": 9, "out.w2": 9}, is_training=True)
    np.testing.assert_allclose(out.value, [[-1], [1]], rtol=1e-4)


def test_batch_norm_of_one_row_gives_the_bias():
    out = run(2, batch_norm_of(2, 1), [[2, 4]], {"out.w0": [1, 1], "out.wbias": [5, 6]}, is_training=True)
    np.testing.assert_array_equal(out.value, [[5, 6]])


def test_blocks_become_sequences():
    sizes = {"block_x": 2, "block_y": 1, "stride_x": 2, "stride_y": 1, "padding_x": 0, "padding_y": 0}
    unknown = dict.fromkeys(("output_x", "output_y", "img_size_x", "img_size_y"), 0)
    fields = layer("blockexpand", [{"block_expand_conf": {"channels": 2, **sizes, **unknown}}], image=(2, 3))
    out = run(12, fields, [np.arange(12), np.arange(12, 24)])
    first = [[0, 1, 6, 7], [2, 0, 8, 0], [3, 4, 9, 10], [5, 0, 11, 0]]
    np.testing.assert_array_equal(out.value[:4], first)
    np.testing.assert_array_equal(out.value[4], [12, 13, 18, 19])
    np.testing.assert_array_equal(out.starts, [0, 4, 8])


def test_blocks_of_no_pixels_are_refused():
    """The config language takes them, as v0.10's did."""
    sizes = {"block_x": 2, "block_y": 0, "stride_x": 2, "stride_y": 1, "padding_x": 0, "padding_y": 0}
    unknown = dict.fromkeys(("output_x", "output_y", "img_size_x", "img_size_y"), 0)
    fields = layer("blockexpand", [{"block_expand_conf": {"channels": 2, **sizes, **unknown}}], image=(2, 3))
    with pytest.raises(ConfigError, match="block_y is 0; it must be a positive integer"):
        run(12, fields, [np.arange(12)])


def test_crop_takes_a_piece():
    fields = layer("crop", [{"image_conf": image_conf(1, (3, 4))}], axis=2, offset=[1, 2], shape=[1, 1, 2, 2])
    np.testing.assert_array_equal(run(12, fields, [np.arange(12)]).value, [[6, 7, 10, 11]])


def test_crop_refuses_a_piece_outside():
    fields = layer("crop", [{"image_conf": image_conf(1, (3, 4))}], axis=2, offset=[2], shape=[1, 1, 2, 2])
    with pytest.raises(ConfigError, match="axis 2 has 3 places, but the selected part ends at 4"):
        run(12, fields, [np.arange(12)])


def test_rotate_turns_clockwise():
    fields = layer("rotate", [{}], size=6, height=2, width=3)
    np.testing.assert_array_equal(run(6, fields, [[1, 2, 3, 4, 5, 6]]).value, [[4, 1, 5, 2, 6, 3]])


def test_switch_order_puts_the_channels_last():
    fields = layer("switch_order", [{"image_conf": image_conf(2, (1, 3))}])
    np.testing.assert_array_equal(run(6, fields, [[1, 2, 3, 4, 5, 6]]).value, [[1, 4, 2, 5, 3, 6]])


def test_upsample_puts_values_where_they_were_found():
    fields = layer("upsample", [{"upsample_conf": {"image_conf": image_conf(2, (2, 2))}}, {"layer": "pooled"}])
    large = np.zeros((1, 2, 4, 4))
    large[0, 0, 1, 1] = large[0, 0, 0, 2] = large[0, 0, 3, 0] = large[0, 0, 2, 2] = 1
    large[0, 1, 0, 0] = large[0, 1, 0, 3] = large[0, 1, 3, 1] = large[0, 1, 3, 3] = 1
    out = run(8, fields, [[1, 2, 3, 4, 5, 6, 7, 8]], large=large.reshape(1, -1))
    expected = np.zeros((2, 4, 4))
    expected[0, 1, 1], expected[0, 0, 2], expected[0, 3, 0], expected[0, 2, 2] = 1, 2, 3, 4
    expected[1, 0, 0], expected[1, 0, 3], expected[1, 3, 1], expected[1, 3, 3] = 5, 6, 7, 8
    np.testing.assert_array_equal(out.value, expected.reshape(1, -1))


def test_scale_sub_region_scales_a_box():
    conf = {"image_conf": image_conf(2, (2, 2)), "value": 10}
    fields = layer("scale_sub_region", [{"scale_sub_region_conf": conf}, {"layer": "boxes"}])
    out = run(8, fields, [np.ones(8)] * 2, boxes=[[1, 1, 1, 2, 2, 2], [1, 2, 2, 2, 1, 2]])
    np.testing.assert_array_equal(out.value, [[1, 10, 1, 10, 1, 1, 1, 1], [1, 1, 10, 10, 1, 1, 10, 10]])
    with pytest.raises(DataError, match=r"not inside 1..2 on axis 1"):
        run(8, fields, [np.ones(8)], boxes=[[1, 1, 1, 3, 2, 2]])


def test_regions_are_cut_in_bins():
    conf = {"pooled_width": 2, "pooled_height": 1, "spatial_scale": 0.5}
    fields = layer("roi_pool", [{"roi_pool_conf": conf}, {"layer": "regions"}], image=(3, 4))
    images = np.arange(24).reshape(2, 12)
    # rounded to columns 1..3 and rows 0..1 of image 1: bins of 1.5 columns overlap in column 2
    regions = [[1, 2, 0, 5, 1], [0, 0, 0, 0, 0], [0, 9, 0, 9, 0]]
    out = run(12, fields, images, regions=regions)
    np.testing.assert_array_equal(out.value, [[18, 19], [0, 0], [0, 0]])
    with pytest.raises(DataError, match="not in the batch of 2"):
        run(12, fields, images, regions=[[2, 0, 0, 0, 0]])


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("z-score", [(2 - 5) * 7, (4 - 6) * 8]), ("min-max", [(2 - 1) * 3, (4 - 2) * 4]), ("decimal-scaling", [18, 40])],
)
def test_data_norm_uses_the_rows_of_its_parameter(strategy, expected):
    fields = layer("data_norm", [{"parameter": 10, "static": True}], size=2, data_norm_strategy=strategy)
    out = run(2, fields, [[2, 4]], {"out.w0": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]})
    np.testing.assert_array_equal(out.value, [expected])


@each(
    ("width", "fields", "message"),
    [
        (
            16,
            layer("exconv", [{"conv_conf": conv_conf(1, (4, 4), (3, 3)), "parameter": 8}], num_filters=1),
            "parameter out.w0 has 8 values instead of 9",
        ),
        (
            16,
            layer("exconv", [{"conv_conf": conv_conf(1, (4, 4), (3, 3)), "parameter": 9}], 2, num_filters=1),
            "bias out.wbias has 2 values instead of 4",
        ),
        (
            16,
            layer("exconv", [{"conv_conf": conv_conf(1, (4, 4), (3, 3)), "parameter": 9}], num_filters=1, size=9),
            "has size 9, but input 0 gives 4 values",
        ),
        (
            16,
            layer("exconv", [{"conv_conf": conv_conf(2, (4, 4), (3, 3), groups=3), "parameter": 9}], num_filters=3),
            "no multiple of 3 groups",
        ),
        (
            16,
            layer("pool", [{"pool_conf": pool_conf(1, (4, 4), (2, 2), (2, 2), kind="median")}]),
            "pool_type 'median' is not known",
        ),
        (
            16,
            layer("pool", [{"pool_conf": pool_conf(1, (4, 4), (1, 1), (2, 2))}]),
            "holds padding only",
        ),
        (9, layer("norm", [norm_of("rnorm", 3, 3, 3)], size=9), "norm_type 'rnorm' is not known"),
        (8, layer("maxout", [{"maxout_conf": {"image_conf": image_conf(4, (1, 2)), "groups": 3}}]), "no multiple of 3"),
        (8, layer("crop", [{"image_conf": image_conf(2, (2, 2))}], axis=0, offset=[0]), "axis 0 is not one of"),
    ],
)
def test_what_cannot_be_is_refused_by_name(width, fields, message):
    with pytest.raises(ConfigError, match=message) as caught:
        start(width, fields)
    assert "layer out" in str(caught.value)


def test_an_input_of_another_width_is_refused():
    fields = layer("exconv", [{"conv_conf": conv_conf(1, (4, 4), (3, 3)), "parameter": 9}], num_filters=1)
    with pytest.raises(ConfigError, match="width 12 instead of 16"):
        run(12, fields, [np.ones(12)])
