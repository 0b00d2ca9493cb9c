"""Layers of images: maps, parameters, and what is refused (specification 4.4, 4.7, 6 and 8)."""

import math

import pytest
from config_messages import layer_of, parameter_of
from each import each
from google.protobuf import text_format

from paddle_base.proto import ModelConfig_pb2
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.parameters import ParameterTable
from trainer.network.network import Network

IMAGE = """
image = data_layer('image', 3 * 8 * 6, height=6, width=8)
plain = data_layer('plain', 3 * 49)
"""
BLOCK = """
volume = data_layer('volume', 2 * 3 * 6 * 4, depth=3, height=6, width=4)
"""


def shape(message):
    return message.size, message.height, message.width


def test_a_transposed_convolution_stores_the_input_as_its_output(parse_text, capfd):
    config = parse_text("""
img = data_layer(name='image', size=227 * 227)
conv = img_conv_layer(input=img, num_channels=1, num_filters=64, filter_size=(32, 32), padding=(1, 1), stride=(1, 1),
                      act=LinearActivation(), trans=True)
bn = batch_norm_layer(input=conv, act=ReluActivation())
norm = img_cmrnorm_layer(input=bn, size=32)
pool = img_pool_layer(input=conv, pool_size=32, pool_type=MaxPooling())
outputs(pool, norm)""")
    conv = layer_of(config, "__conv_0__")
    assert (conv.type, *shape(conv)) == ("exconvt", 64 * 256 * 256, 256, 256)
    assert conv.inputs[0].conv_conf == text_format.Parse(
        """filter_size: 32 channels: 1 stride: 1 padding: 1 groups: 1 filter_channels: 64 output_x: 227 img_size: 256
caffe_mode: true filter_size_y: 32 padding_y: 1 stride_y: 1 output_y: 227 img_size_y: 256 dilation: 1 dilation_y: 1""",
        ModelConfig_pb2.ConvConfig(),
    )
    weight = parameter_of(config, "___conv_0__.w0")
    assert (weight.size, list(weight.dims)) == (64 * 32 * 32, [])
    assert weight.initial_std == math.sqrt(2 / 32**2) and not weight.initial_smart
    norm = layer_of(config, "__crmnorm_0__").inputs[0].norm_conf
    assert (norm.scale, norm.pow, norm.HasField("blocked"), norm.img_size) == (0.0128 / 32, 0.75, True, 256)
    assert shape(layer_of(config, "__pool_0__")) == (64 * 225 * 225, 225, 225)
    lines = [line.partition("] ")[2] for line in capfd.readouterr().err.splitlines() if "output for" in line]
    assert lines == [
        "output for __conv_0__: c = 64, h = 256, w = 256, size = 4194304",
        "output for __batch_norm_0__: c = 64, h = 256, w = 256, size = 4194304",
        "output for __pool_0__: c = 64, h = 225, w = 225, size = 3240000",
    ]


# arguments: width, height, values of the filters
@each(
    "arguments, width, height, values",
    [
        ("3", 6, 4, 4 * 3 * 9),
        ("(3, 2), stride=(2, 1)", 3, 5, 4 * 3 * 6),
        ("3, stride=2, padding=1", 4, 3, 4 * 3 * 9),
        ("3, filter_size_y=1, stride=2, stride_y=3, padding=1, padding_y=0", 4, 2, 4 * 3 * 3),
        ("3, dilation=2", 4, 2, 4 * 3 * 9),
        ("3, dilation=(1, 2)", 6, 2, 4 * 3 * 9),
        ("2, trans=True, stride=2", 16, 12, 3 * 4 * 4),
        ("3, trans=True, stride=2, padding=1", 15, 11, 3 * 4 * 9),
    ],
)
def test_the_map_of_a_convolution(parse_text, arguments, width, height, values):
    config = parse_text(f"{IMAGE}img_conv_layer(image, num_filters=4, name='c', filter_size={arguments})")
    assert shape(layer_of(config, "c")) == (4 * width * height, height, width)
    assert parameter_of(config, "_c.w0").size == values


def test_groups_divide_the_channels_of_a_filter(parse_text):
    config = parse_text(f"""{IMAGE}
img_conv_layer(image, filter_size=2, num_filters=6, groups=3, name='c', shared_biases=False)
img_conv_layer(image, filter_size=2, num_filters=6, groups=3, name='t', trans=True)""")
    conv = layer_of(config, "c")
    assert (conv.inputs[0].conv_conf.filter_channels, parameter_of(config, "_c.w0").size) == (1, 6 * 1 * 4)
    assert not conv.shared_biases and conv.HasField("shared_biases")
    assert list(parameter_of(config, "_c.wbias").dims) == [conv.size, 1]
    assert (layer_of(config, "t").inputs[0].conv_conf.filter_channels, parameter_of(config, "_t.w0").size) == (
        2,
        3 * 2 * 4,
    )


def test_the_first_convolution_decides_for_those_that_share_its_attributes(parse_text):
    config = parse_text(f"""{IMAGE}
shared = ParamAttr()
first = img_conv_layer(image, filter_size=3, num_filters=4, param_attr=shared)
img_conv_layer(first, filter_size=5, padding=2, num_filters=4, param_attr=shared)
img_conv_layer(first, filter_size=5, padding=2, num_filters=4, param_attr=ParamAttr(initial_std=0.1), name='own')""")
    deviations = [item.initial_std for item in config.model_config.parameters if item.name.endswith("w0")]
    assert deviations == [math.sqrt(2 / 27), math.sqrt(2 / 27), 0.1]


def test_a_map_that_the_layer_does_not_say_is_square(parse_text):
    config = parse_text(f"{IMAGE}img_pool_layer(plain, pool_size=2, stride=2, num_channels=3, name='p')")
    assert shape(layer_of(config, "p")) == (3 * 16, 4, 4)


@pytest.mark.parametrize(
    "arguments, width, height",
    [
        ("3, stride=2", 4, 3),
        ("3, stride=2, ceil_mode=False", 3, 2),
        ("(2, 3), stride=(2, 3)", 4, 2),
        ("3, pool_size_y=2, stride=2, stride_y=1, padding=1, padding_y=0", 5, 5),
    ],
)
def test_the_map_of_a_pooling(parse_text, arguments, width, height):
    config = parse_text(f"{IMAGE}img_pool_layer(image, name='p', pool_size={arguments})")
    assert shape(layer_of(config, "p")) == (3 * width * height, height, width)


@pytest.mark.parametrize(
    "pooling, name",
    [
        ("None", "max-projection"),
        ("MaxPooling()", "max-projection"),
        ("AvgPooling()", "avg-projection"),
        ("CudnnMaxPooling()", "cudnn-max-pool"),
        ("CudnnAvgPooling()", "cudnn-avg-pool"),
        ("MaxWithMaskPooling()", "max-pool-with-mask"),
    ],
)
def test_a_pooling_of_maps_by_its_name(parse_text, pooling, name):
    config = parse_text(f"{IMAGE}img_pool_layer(image, pool_size=2, pool_type={pooling}, name='p', exclude_mode=True)")
    assert layer_of(config, "p").inputs[0].pool_conf.pool_type == name
    assert layer_of(config, "p").inputs[0].pool_conf.exclude_mode


def test_a_pooling_object_serves_sequences_and_maps(parse_text):
    config = parse_text(f"""{IMAGE}
average = AvgPooling()
img_pool_layer(image, pool_size=2, pool_type=average, name='p')
pooling_layer(image, pooling_type=average, name='s')""")
    assert layer_of(config, "s").type == "average" and not layer_of(config, "p").inputs[0].pool_conf.HasField(
        "exclude_mode"
    )


@pytest.mark.parametrize(
    "config_args, conv, turned, norm, is_shared",
    [
        ("", "exconv", "exconvt", "batch_norm", True),
        ("use_gpu=0", "exconv", "exconvt", "batch_norm", True),
        ("use_gpu=1", "cudnn_conv", "cudnn_convt", "cudnn_batch_norm", False),
        ("use_gpu=1,parallel_nn=1", "exconv", "exconvt", "batch_norm", False),
    ],
)
def test_a_graphics_card_has_types_of_its_own(parse_text, config_args, conv, turned, norm, is_shared):
    config = parse_text(
        f"""{IMAGE}
c = img_conv_layer(image, filter_size=2, num_filters=6, name='c')
assert c.layer_type == 'conv'
img_conv_layer(image, filter_size=2, num_filters=6, name='t', trans=True)
img_conv_layer(image, filter_size=2, num_filters=6, name='x', layer_type='exconv')
batch_norm_layer(c, name='n')
batch_norm_layer(c, name='b', batch_norm_type='batch_norm')""",
        config_args,
    )
    assert [layer_of(config, name).type for name in "ctxnb"] == [conv, turned, "exconv", norm, "batch_norm"]
    assert parameter_of(config, "_n.w1").is_shared == is_shared and parameter_of(config, "_n.w1").HasField("is_shared")


def test_batch_normalisation_without_maps(parse_text):
    config = parse_text("""
settings(batch_size=1, regularization=L2Regularization(0.1))
h = fc_layer(data_layer('x', 4), 5)
n = batch_norm_layer(h, name='n', use_global_stats=False, mean_var_names=['mean', 'var'], moving_average_fraction=0.5,
                     epsilon=1e-4, layer_attr=ExtraAttr(drop_rate=0.3), bias_attr=False)
assert n.num_filters == 5""")
    norm = layer_of(config, "n")
    assert (norm.size, norm.drop_rate, norm.moving_average_fraction, norm.epsilon) == (5, 0.3, 0.5, 1e-4)
    assert norm.HasField("use_global_stats") and not norm.use_global_stats
    assert not any(norm.HasField(field) for field in ("height", "width", "depth", "bias_parameter_name"))
    assert (norm.inputs[0].image_conf.channels, norm.inputs[0].image_conf.img_size) == (5, 1)
    assert [entry.input_parameter_name for entry in norm.inputs] == ["_n.w0", "mean", "var"]
    scale, mean = parameter_of(config, "_n.w0"), parameter_of(config, "mean")
    assert (scale.initial_mean, scale.initial_std, list(scale.dims), scale.is_static) == (1, 0, [], False)
    assert (mean.initial_mean, list(mean.dims), mean.is_static, mean.decay_rate) == (0, [1, 5], True, 0.1)


@pytest.mark.parametrize(("channels", "filters", "groups"), [(2, 3, 1), (4, 2, 2), (2, 2, 1)])
def test_a_transposed_convolution_of_volumes_in_a_job_has_the_weights_that_it_needs(
    parse_text, channels, filters, groups
):
    """It was refused when training began unless the input had as many channels as filters."""
    text = f"""outputs(img_conv3d_layer(data_layer('x', {channels} * 8, height=2, width=2, depth=2), 3, {filters},
                         name='c', num_channels={channels}, groups={groups}, trans=True))"""
    bare, job = parse_text(text), parse_text(f"define_py_data_sources2('a', None, 'b', 'c')\n{text}")
    assert parameter_of(bare, "_c.w0").size == filters * filters // groups * 27
    assert parameter_of(job, "_c.w0").size == channels * filters // groups * 27
    Network(job.model_config, ParameterTable(job.model_config.parameters))


@pytest.mark.parametrize("trans, sizes", [(False, (2, 3, 2)), (True, (7, 11, 5))])
def test_a_convolution_of_volumes(parse_text, capfd, trans, sizes):
    config = parse_text(f"""{BLOCK}
c = img_conv3d_layer(volume, filter_size=3, num_filters=4, stride=2, padding=1, name='c', trans={trans},
                     act=LinearActivation())
img_conv3d_layer(volume, filter_size=[3, 3, 3], num_filters=4, stride=[2, 2, 2], padding=[1, 1, 1], name='d',
                 trans={trans}, layer_type='{"deconv3d" if trans else "conv3d"}', act=LinearActivation())
assert c.layer_type == '{"deconv3d" if trans else "conv3d"}' and c.num_filters == 4""")
    conv, same = layer_of(config, "c"), layer_of(config, "d")
    width, height, depth = sizes
    assert (*shape(conv), conv.depth) == (4 * math.prod(sizes), height, width, depth)
    assert conv.inputs[0].conv_conf == same.inputs[0].conv_conf
    maps = conv.inputs[0].conv_conf
    assert not maps.HasField("dilation")
    produced = (
        (maps.img_size, maps.img_size_y, maps.img_size_z) if trans else (maps.output_x, maps.output_y, maps.output_z)
    )
    assert produced == sizes
    assert maps.filter_channels == (4 if trans else 2)
    assert parameter_of(config, "_c.w0").size == 4 * maps.filter_channels * 27
    assert list(parameter_of(config, "_c.wbias").dims) == [4, 1]
    assert parameter_of(config, "_c.w0").initial_std == math.sqrt(2 / (9 * 2))
    line = f"output for c: c = 4, d = {depth}, h = {height}, w = {width}, size = {conv.size}"
    assert line in capfd.readouterr().err


def test_a_pooling_of_volumes_reads_a_list_of_paddings_as_the_legacy_did(parse_text):
    config = parse_text(f"""{BLOCK}
p = img_pool3d_layer(volume, pool_size=[2, 3, 2], stride=[1, 2, 1], padding=[0, 5, 1], name='p')
assert p.layer_type == 'pool'""")
    pool = layer_of(config, "p").inputs[0].pool_conf
    assert (pool.padding, pool.padding_y, pool.padding_z) == (0, 1, 0)
    assert (pool.size_x, pool.size_y, pool.size_z, pool.stride_y) == (2, 3, 2, 2)
    assert (*shape(layer_of(config, "p")), layer_of(config, "p").depth) == (2 * 3 * 4 * 2, 4, 3, 2)


def test_blocks_margins_and_cuts(parse_text):
    config = parse_text(f"""{IMAGE}
block_expand_layer(image, block_x=2, block_y=3, stride_x=1, stride_y=1, padding_y=1, name='b')
pad_layer(image, pad_c=[1, 0], pad_w=(2, 3), name='p')
small = data_layer('small', 3 * 2 * 4, height=2, width=4)
crop_layer(image, offset=[1, 2], shape=[-1 + 2, 3, 4, 5], name='c')
crop_layer([image, small], offset=[1, 2], name='d')""")
    block = layer_of(config, "b")
    assert block.size == 2 * 3 * 3 and not block.HasField("height")
    assert block.inputs[0].block_expand_conf.HasField("output_x") and block.inputs[0].block_expand_conf.padding_y == 1
    pad = layer_of(config, "p")
    assert shape(pad) == (4 * 6 * 13, 6, 13)
    assert (list(pad.inputs[0].pad_conf.pad_c), list(pad.inputs[0].pad_conf.pad_h)) == ([1, 0], [0, 0])
    crop, like = layer_of(config, "c"), layer_of(config, "d")
    assert (*shape(crop), crop.axis, list(crop.offset), list(crop.shape)) == (60, 4, 5, 2, [1, 2], [1, 3, 4, 5])
    assert (crop.inputs[0].image_conf.channels, crop.inputs[0].image_conf.img_size) == (3, 8)
    assert (*shape(like), list(like.shape)) == (24, 2, 4, [])
    assert [entry.input_layer_name for entry in like.inputs] == ["image", "small"]


def test_pyramids_maxima_of_channels_and_scaling(parse_text):
    config = parse_text(f"""{IMAGE}
conv = img_conv_layer(image, filter_size=3, padding=1, num_filters=4, act=LinearActivation())
spp_layer(conv, pyramid_height=3, pool_type=AvgPooling(), name='s')
m = maxout_layer(conv, groups=2, name='m')
assert m.num_filters is None
bilinear_interp_layer(conv, out_size_x=16, out_size_y=5, name='i')
rotate_layer(image, height=6, width=8, name='r')
switch_order_layer(image, reshape_axis=1, name='o')""")
    spp = layer_of(config, "s")
    assert shape(spp) == (4 * 21, 1, 21)
    assert spp.inputs[0].spp_conf.pool_type == "avg-projection"
    assert shape(layer_of(config, "m")) == (2 * 48, 6, 8)
    assert shape(layer_of(config, "i")) == (4 * 80, 5, 16)
    assert shape(layer_of(config, "r")) == (144, 6, 8)
    order = layer_of(config, "o")
    assert (order.size, list(order.reshape_conf.height_axis), list(order.reshape_conf.width_axis)) == (
        144,
        [0],
        [1, 2, 3],
    )


def test_enlarging_by_the_mask_of_a_pooling(parse_text):
    config = parse_text(f"""{IMAGE}
mask = img_pool_layer(image, pool_size=2, stride=2, pool_type=MaxWithMaskPooling(), name='mask')
upsample_layer([mask, mask], scale=2, name='u')
upsample_layer([mask, mask], upsample_size=9, upsample_size_y=7, pad_out_x=True, name='v')""")
    first, second = layer_of(config, "u"), layer_of(config, "v")
    assert (*shape(first), first.depth) == (144, 6, 8, 1)
    assert first.inputs[0].upsample_conf == text_format.Parse(
        "image_conf { channels: 3 img_size: 4 img_size_y: 3 } scale: 2 scale_y: 2 pad_out_x: false pad_out_y: false",
        ModelConfig_pb2.UpsampleConfig(),
    )
    assert shape(second) == (3 * 63, 7, 9) and second.inputs[0].upsample_conf.pad_out_x
    assert [entry.input_layer_name for entry in second.inputs] == ["mask", "mask"]


def test_slopes_where_the_layer_has_no_map(parse_text):
    config = parse_text("""
prelu_layer(fc_layer(data_layer('x', 3), 6), num_channels=1, partial_sum=2, param_attr=ParamAttr(name='own'), name='p')
""")
    slopes = layer_of(config, "p")
    assert slopes.HasField("height") and shape(slopes) == (6, 0, 0) and slopes.depth == 1
    assert list(parameter_of(config, "own").dims) == [1, 3] and parameter_of(config, "own").initial_smart


def test_default_boxes_are_counted_per_pixel(parse_text):
    config = parse_text(f"""{IMAGE}
conv = img_conv_layer(image, filter_size=3, stride=2, num_filters=4)
boxes = priorbox_layer(conv, image, aspect_ratio=[2., 3.], variance=[0.1, 0.1, 0.2, 0.2], min_size=[4], max_size=[8],
                       name='b')
assert boxes.num_filters == 24""")
    boxes = layer_of(config, "b")
    assert boxes.size == 3 * 2 * 24 * 2
    assert boxes.inputs[0].priorbox_conf == ModelConfig_pb2.PriorBoxConfig(
        min_size=[4], max_size=[8], aspect_ratio=[2, 3], variance=[0.1, 0.1, 0.2, 0.2]
    )
    assert boxes.inputs[1].input_layer_name == "image"


def test_the_loss_of_detection_reads_boxes_and_labels_first(parse_text):
    config = parse_text("""
loc = data_layer(name='input_loc', size=16, height=16, width=1)
conf = data_layer(name='input_conf', size=8, height=1, width=8)
boxes = data_layer(name='priorbox', size=32, height=4, width=8)
label = data_layer(name='label', size=24, height=4, width=6)
outputs(multibox_loss_layer(input_loc=loc, input_conf=conf, priorbox=boxes, label=label, num_classes=21,
                            overlap_threshold=0.5, neg_pos_ratio=3.0, neg_overlap=0.5, background_id=0,
                            name='test_multibox_loss'))
multibox_loss_layer([loc, loc], [conf, conf], boxes, label, 2, name='two')""")
    assert layer_of(config, "test_multibox_loss") == text_format.Parse(
        """name: "test_multibox_loss" type: "multibox_loss" size: 1 active_type: ""
inputs { input_layer_name: "priorbox"
         multibox_loss_conf { num_classes: 21 overlap_threshold: 0.5 neg_pos_ratio: 3 neg_overlap: 0.5
                              background_id: 0 input_num: 1 } }
inputs { input_layer_name: "label" } inputs { input_layer_name: "input_loc" }
inputs { input_layer_name: "input_conf" }""",
        ModelConfig_pb2.LayerConfig(),
    )
    assert list(config.model_config.input_layer_names) == ["priorbox", "label", "input_loc", "input_conf"]
    assert layer_of(config, "two").inputs[0].multibox_loss_conf.input_num == 2


def test_images_in_the_order_of_arguments_of_v0_10(parse_text):
    config = parse_text("data_layer('image', 784, 28, 28)")
    assert shape(layer_of(config, "image")) == (784, 28, 28) and not layer_of(config, "image").HasField("depth")


@each(
    "call, message",
    [
        ("img_conv_layer(plain, 3, 4)", r"img_conv_layer\(name='__conv_0__'\): give num_channels"),
        ("img_conv_layer(plain, 3, 4, num_channels=2)", "size 147 has 73 pixels in each of 2 channels"),
        ("img_conv_layer(image, 9, 4)", "filter_size is 9; a window of this size does not fit into 8 pixels"),
        ("img_conv_layer(image, [3, 3, 3], 4)", "filter_size is .* a list of 2 numbers"),
        ("img_conv_layer(image, 3, 4, padding=-1)", "padding is -1; it must not be negative"),
        ("img_conv_layer(image, 3, 4, stride=0)", "stride is 0; it must be a positive integer"),
        ("img_conv_layer(image, 3, 4, stride_y=0)", "stride_y is 0"),
        ("img_conv_layer(image, 3, 4, groups=2)", "num_channels is 3; it must be a multiple of groups .2."),
        ("img_conv_layer(image, 3, 4, trans=True, layer_type='exconv')", "one of exconvt, cudnn_convt"),
        ("img_conv_layer(image, 3, 4, layer_attr=ExtraAttr(error_clipping_threshold=1))", "does not support"),
        ("img_conv_layer(image, 2, 4, padding=5, trans=True)", "a transposed convolution of 8 pixels"),
        ("img_pool_layer(image, 2, pool_type=SumPooling())", "it must be one of MaxPooling"),
        ("img_pool_layer(image, 2, pool_type=CudnnAvgInclPadPooling())", "it must be one of MaxPooling"),
        ("img_pool3d_layer(image, 2, num_channels=2)", "which do not fit 2 channels"),
        ("img_conv3d_layer(image, 2, 3, layer_type='deconv3d')", "with trans=False it must be conv3d"),
        ("batch_norm_layer(image, epsilon=1e-6)", "epsilon is 1e-06; it must be at least"),
        ("batch_norm_layer(image, batch_norm_type='x')", "batch_norm or cudnn_batch_norm"),
        ("batch_norm_layer(image, mean_var_names=['m'])", "two names"),
        ("cross_channel_norm_layer(image)", "param_attr is None; give a ParamAttr"),
        ("maxout_layer(image, 3)", "linear activation"),
        ("maxout_layer(img_conv_layer(image, 3, 4, act=LinearActivation()), 3)", "divide the 4 channels"),
        ("bilinear_interp_layer(image, 4, 4)", "it must be an img_conv_layer"),
        ("bilinear_interp_layer(img_conv_layer(image, 3, 4), 4, 4)", "must be linear, not relu"),
        ("spp_layer(image)", "pyramid_height is None"),
        ("pad_layer(image, pad_c=1)", "list of two numbers"),
        ("crop_layer(image, [1])", "four numbers"),
        ("crop_layer(plain, [1], shape=[1, 1, 1, 1])", "'plain' has no height and width"),
        ("prelu_layer(image, partial_sum=5)", "partial_sum is 5; it must divide 144"),
        ("prelu_layer(plain, num_channels=3, channel_shared=True)", "the layer .* must have height and width"),
        ("upsample_layer([image, image], scale=2)", "must be an img_pool_layer"),
        ("upsample_layer(image, scale=2)", "the layer to be enlarged and"),
        ("scale_sub_region_layer(image, plain, 1.0)", "its size must be 6"),
        ("priorbox_layer(image, plain, [2.], [.1, .1, .2, .2], [4])", "a data_layer with height and width"),
        ("priorbox_layer(image, image, [2.], [.1], [4])", "four numbers"),
        ("detection_output_layer([image, image], image, image, 2)", "2 input_loc and 1 input_conf"),
        ("switch_order_layer(image, reshape_axis=4)", "1, 2 or 3"),
    ],
)
def test_impossible_image_layers_are_refused(parse_text, call, message):
    with pytest.raises(ConfigError, match=rf"^config\.py line 5: .*{message}"):
        parse_text(f"{IMAGE}{call}")
