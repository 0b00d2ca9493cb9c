"""Networks of images that are made of layers (specification 9)."""

import pytest

from paddle_base.runtime.errors import ConfigError

IMAGE = "image = data_layer('image', 3 * 32 * 32, height=32, width=32)\n"


def layers(config):
    return [(item.name, item.type, item.size) for item in config.model_config.layers[1:]]


def test_convolution_and_pooling(parse_text):
    config = parse_text(f"""{IMAGE}
simple_img_conv_pool(image, filter_size=5, num_filters=4, pool_size=2, pool_stride=2, act=TanhActivation(),
                     bias_attr=False)
simple_img_conv_pool(image, 5, 4, 2, 'mine', conv_padding=2, num_channel=3, pool_type=AvgPooling())""")
    assert layers(config) == [
        ("__conv_pool_0___conv", "exconv", 4 * 28 * 28),
        ("__conv_pool_0___pool", "pool", 4 * 14 * 14),
        ("mine_conv", "exconv", 4 * 32 * 32),
        ("mine_pool", "pool", 4 * 31 * 31),
    ]
    assert [item.active_type for item in config.model_config.layers] == ["", "tanh", "", "relu", ""]
    assert not config.model_config.layers[1].HasField("bias_parameter_name")
    assert config.model_config.layers[4].inputs[0].pool_conf.pool_type == "avg-projection"


def test_convolution_normalisation_and_pooling(parse_text):
    config = parse_text(f"""{IMAGE}
img_conv_bn_pool(image, 3, 4, 2, conv_padding=1, pool_stride=2, act=TanhActivation(), bn_bias_attr=False,
                 bn_param_attr=ParamAttr(name='scale'))""")
    assert layers(config) == [
        ("__conv_bn_pool_0___conv", "exconv", 4 * 1024),
        ("__conv_bn_pool_0___bn", "batch_norm", 4 * 1024),
        ("__conv_bn_pool_0___pool", "pool", 4 * 256),
    ]
    assert [item.active_type for item in config.model_config.layers] == ["", "", "tanh", ""]
    assert config.model_config.layers[2].inputs[0].input_parameter_name == "scale"
    assert not config.model_config.layers[2].HasField("bias_parameter_name")


def test_a_group_of_convolutions_has_lists_or_one_value_for_all(parse_text):
    config = parse_text(f"""{IMAGE}
img_conv_group(image, [4, 6], pool_size=2, pool_stride=2, conv_padding=[1, 0], conv_act=TanhActivation(),
               conv_with_batchnorm=[True, False], conv_batchnorm_drop_rate=[0.25, 0], num_channels=3)""")
    assert layers(config) == [
        ("__conv_0__", "exconv", 4 * 32 * 32),
        ("__batch_norm_0__", "batch_norm", 4 * 32 * 32),
        ("__conv_1__", "exconv", 6 * 30 * 30),
        ("__pool_0__", "pool", 6 * 15 * 15),
    ]
    assert [item.active_type for item in config.model_config.layers] == ["", "", "tanh", "tanh", ""]
    assert [item.drop_rate for item in config.model_config.layers] == [0, 0, 0.25, 0, 0]


def test_a_separable_convolution(parse_text):
    config = parse_text(
        f"{IMAGE}img_separable_conv(image, 3, 8, filter_size=3, padding=1, depth_multiplier=2)", "use_gpu=1"
    )
    assert layers(config) == [
        ("__separable_conv_0___depthwise_conv", "exconv", 6 * 1024),
        ("__separable_conv_0___pointwise_conv", "cudnn_conv", 8 * 1024),
    ]
    by_channel, mixed = (item.inputs[0].conv_conf for item in config.model_config.layers[1:])
    assert (by_channel.groups, by_channel.filter_channels, by_channel.filter_size) == (3, 1, 3)
    assert (mixed.channels, mixed.filter_size) == (6, 1)
    assert [item.active_type for item in config.model_config.layers[1:]] == ["", "relu"]


def test_the_small_vgg_of_the_demos(parse_text):
    config = parse_text(f"{IMAGE}outputs(small_vgg(image, num_channels=3, num_classes=10))")
    kinds = [item.type for item in config.model_config.layers[1:]]
    two, three = ["exconv", "batch_norm"] * 2, ["exconv", "batch_norm"] * 3
    assert kinds == [
        *two,
        "pool",
        *two,
        "pool",
        *three,
        "pool",
        *three,
        "pool",
        "pool",
        "addto",
        "fc",
        "batch_norm",
        "fc",
    ]
    rates = [item.drop_rate for item in config.model_config.layers if item.type == "batch_norm"]
    assert rates == [0.3, 0, 0.4, 0, 0.4, 0.4, 0, 0.4, 0.4, 0, 0]
    assert [item.size for item in config.model_config.layers if item.type == "pool"] == [16384, 8192, 4096, 2048, 512]
    assert [item.name for item in config.model_config.layers[-4:]] == [
        "__dropout_0__",
        "__fc_layer_0__",
        "__batch_norm_10__",
        "__fc_layer_1__",
    ]
    assert [(item.active_type, item.drop_rate) for item in config.model_config.layers[-4:]] == [
        ("", 0.5),
        ("", 0.5),
        ("relu", 0),
        ("softmax", 0),
    ]


def test_the_sixteen_layers_of_vgg(parse_text):
    config = parse_text("""
image = data_layer('image', 3 * 224 * 224)
outputs(vgg_16_network(image, num_channels=3))""")
    convolutions = [item for item in config.model_config.layers if item.type == "exconv"]
    assert [item.num_filters for item in convolutions] == [64] * 2 + [128] * 2 + [256] * 3 + [512] * 6
    assert {item.active_type for item in convolutions} == {"relu"}
    assert [(item.size, item.drop_rate, item.active_type) for item in config.model_config.layers[-3:]] == [
        (4096, 0.5, "relu"),
        (4096, 0.5, "relu"),
        (1000, 0, "softmax"),
    ]
    assert list(config.model_config.parameters[-6].dims) == [512 * 7 * 7, 4096]


@pytest.mark.parametrize(
    "call, message",
    [
        ("img_conv_group(image, 4, 2)", "conv_num_filter is 4; it must be a list"),
        ("img_conv_group(image, [4, 4], 2, conv_padding=[1])", "a value for each of 2 convolutions"),
        ("simple_img_conv_pool(image, 40, 4, 2)", r"img_conv_layer\(name='__conv_pool_0___conv'\): filter_size is 40"),
    ],
)
def test_impossible_networks_are_refused(parse_text, call, message):
    with pytest.raises(ConfigError, match=rf"^config\.py line 3: .*{message}"):
        parse_text(f"{IMAGE}{call}")
