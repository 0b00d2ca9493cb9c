# four small groups of convolution, batch normalisation and pooling
from paddle.trainer_config_helpers import *

is_predict = get_config_arg("is_predict", bool, False)

if not is_predict:
    data_dir = './data/'
    define_py_data_sources2(
        train_list=data_dir + 'train.list',
        test_list=data_dir + 'test.list',
        module='mnist_provider',
        obj='process')

settings(batch_size=50, learning_rate=0.001, learning_method=AdamOptimizer())

data_size = 1 * 28 * 28
label_size = 10
img = data_layer(name='pixel', size=data_size)


def conv_group(input, channels, size):
    return img_conv_group(
        input=input,
        num_channels=channels,
        conv_padding=0,
        conv_num_filter=[128],
        conv_filter_size=size,
        conv_act=ReluActivation(),
        conv_with_batchnorm=True,
        pool_size=2,
        pool_stride=2,
        pool_type=MaxPooling())


tmp = conv_group(img, 1, 3)
tmp = conv_group(tmp, None, 3)
tmp = conv_group(tmp, None, 3)
tmp = conv_group(tmp, None, 1)
predict = fc_layer(input=tmp, size=label_size, act=SoftmaxActivation())

if not is_predict:
    lbl = data_layer(name="label", size=label_size)
    inputs(img, lbl)
    outputs(classification_cost(input=predict, label=lbl))
else:
    outputs(predict)
