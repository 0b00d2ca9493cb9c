"""A small convolutional network for the images that split.py has prepared.

Config args: is_predict (default False: train).
"""

from images import CHANNELS, read_about

from paddle.trainer_config_helpers import *

MEASURED = 20  # so many classes have a measure of their own
predict = get_config_arg("is_predict", bool, False)
about = read_about()
classes = about["classes"]

define_py_data_sources2(
    train_list=None if predict else "data/train.list",
    test_list="data/new.list" if predict else "data/test.list",
    module="image_provider",
    obj="process_predict" if predict else "process",
    args={"predict": predict},
)
settings(batch_size=32, learning_rate=0.002, learning_method=AdamOptimizer())

features = data_layer("image", CHANNELS * about["size"] ** 2)
for filters, channels in ((16, CHANNELS), (32, 16)):
    features = simple_img_conv_pool(
        input=features, filter_size=5, num_filters=filters, num_channel=channels, pool_size=2, pool_stride=2,
        act=ReluActivation(),
    )  # fmt: skip
hidden = fc_layer(features, 64, act=ReluActivation())
output = fc_layer(hidden, len(classes), act=SoftmaxActivation())

if predict:
    outputs([maxid_layer(output), output])
else:
    label = data_layer("label", len(classes))
    outputs(classification_cost(input=output, label=label))
    if 2 < len(classes) <= MEASURED:
        for number, name in enumerate(classes):
            name = "_".join(name.replace("=", "_").split())
            precision_recall_evaluator(input=output, label=label, positive_label=number, name=name)
