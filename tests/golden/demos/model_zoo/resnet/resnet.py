# ResNet-50, -101 and -152 (He and others, 2015), in the words of the oldest configs
from paddle.trainer_config_helpers import *

is_test = get_config_arg("is_test", bool, False)
is_predict = get_config_arg("is_predict", bool, False)
data_provider = get_config_arg("data_provider", bool, True)
layer_num = get_config_arg("layer_num", int, 50)

if not is_predict and data_provider:
    train_list = 'train.list' if not is_test else None
    # the mean of all images is the same for training and testing
    args = {
        'mean_value': [103.939, 116.779, 123.68],
        'image_size': 224,
        'crop_size': 224,
        'swap_channel': True,
        'is_test': is_test
    }
    define_py_data_sources2(
        train_list, 'test.list', module="example.image_list_provider", obj="processData", args=args)

batch_size = 1
learning_rate = 0.1 / batch_size
momentum = 0.9
weight_decay = 0.0001 * batch_size
default_momentum(momentum)
default_decay_rate(weight_decay)

Settings(
    algorithm='sgd',
    batch_size=batch_size,
    learning_rate=learning_rate,
    learning_method='momentum',
    learning_rate_decay_a=0.5,
    learning_rate_decay_b=1200000 * 10,
    learning_rate_schedule="discexp")

if is_predict:
    Inputs("input")
    Outputs("output")
else:
    Inputs("input", "label")
    Outputs("res5_3_branch2c_conv", "res5_3_branch2c_bn")


def conv_bn_layer(name, input, filter_size, num_filters, stride, padding, channels=None, active_type=ReluActivation()):
    """A convolution without bias, then batch normalisation."""
    tmp = img_conv_layer(
        name=name + "_conv", input=input, filter_size=filter_size, num_channels=channels, num_filters=num_filters,
        stride=stride, padding=padding, act=LinearActivation(), bias_attr=False)
    return batch_norm_layer(name=name + "_bn", input=tmp, act=active_type, use_global_stats=is_test)


def bottleneck_block(name, input, num_filters1, num_filters2):
    """A block that leaves the size of the maps as it is."""
    last_name = conv_bn_layer(
        name=name + '_branch2a', input=input, filter_size=1, num_filters=num_filters1, stride=1, padding=0)
    last_name = conv_bn_layer(
        name=name + '_branch2b', input=last_name, filter_size=3, num_filters=num_filters1, stride=1, padding=1)
    last_name = conv_bn_layer(
        name=name + '_branch2c', input=last_name, filter_size=1, num_filters=num_filters2, stride=1, padding=0,
        active_type=LinearActivation())
    return addto_layer(name=name + "_addto", input=[input, last_name], act=ReluActivation())


def mid_projection(name, input, num_filters1, num_filters2, stride=2):
    """A block that halves the maps; its shortcut has a convolution."""
    branch1 = conv_bn_layer(
        name=name + '_branch1', input=input, filter_size=1, num_filters=num_filters2, stride=stride, padding=0,
        active_type=LinearActivation())
    last_name = conv_bn_layer(
        name=name + '_branch2a', input=input, filter_size=1, num_filters=num_filters1, stride=stride, padding=0)
    last_name = conv_bn_layer(
        name=name + '_branch2b', input=last_name, filter_size=3, num_filters=num_filters1, stride=1, padding=1)
    last_name = conv_bn_layer(
        name=name + '_branch2c', input=last_name, filter_size=1, num_filters=num_filters2, stride=1, padding=0,
        active_type=LinearActivation())
    return addto_layer(name=name + "_addto", input=[branch1, last_name], act=ReluActivation())


def deep_res_net(res2_num=3, res3_num=4, res4_num=6, res5_num=3):
    img = data_layer(name='input', size=224 * 224 * 3)
    tmp = conv_bn_layer("conv1", img, filter_size=7, channels=3, num_filters=64, stride=2, padding=3)
    tmp = img_pool_layer(name="pool1", input=tmp, pool_size=3, stride=2)

    tmp = mid_projection(name="res2_1", input=tmp, num_filters1=64, num_filters2=256, stride=1)
    for i in xrange(2, res2_num + 1, 1):
        tmp = bottleneck_block(name="res2_" + str(i), input=tmp, num_filters1=64, num_filters2=256)
    tmp = mid_projection(name="res3_1", input=tmp, num_filters1=128, num_filters2=512)
    for i in xrange(2, res3_num + 1, 1):
        tmp = bottleneck_block(name="res3_" + str(i), input=tmp, num_filters1=128, num_filters2=512)
    tmp = mid_projection(name="res4_1", input=tmp, num_filters1=256, num_filters2=1024)
    for i in xrange(2, res4_num + 1, 1):
        tmp = bottleneck_block(name="res4_" + str(i), input=tmp, num_filters1=256, num_filters2=1024)
    tmp = mid_projection(name="res5_1", input=tmp, num_filters1=512, num_filters2=2048)
    for i in xrange(2, res5_num + 1, 1):
        tmp = bottleneck_block(name="res5_" + str(i), input=tmp, num_filters1=512, num_filters2=2048)

    tmp = img_pool_layer(name='avgpool', input=tmp, pool_size=7, stride=1, pool_type=AvgPooling())
    output = fc_layer(name='output', input=tmp, size=1000, act=SoftmaxActivation())
    if not is_predict:
        classification_cost(input=output, label=data_layer(name='label', size=1))


if layer_num == 50:
    deep_res_net(3, 4, 6, 3)
elif layer_num == 101:
    deep_res_net(3, 4, 23, 3)
elif layer_num == 152:
    deep_res_net(3, 8, 36, 3)
else:
    print("Wrong layer number.")
