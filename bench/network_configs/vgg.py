"""The small VGG of the config helpers, like v0.10's demo image_classification: images of 32 x 32 x 3, 10 classes."""

from paddle.trainer_config_helpers import *

BATCH = 128

define_py_data_sources2("data/train.list", None, module="provider", obj="process")
settings(
    batch_size=BATCH,
    learning_rate=0.1 / BATCH,
    learning_method=MomentumOptimizer(0.9),
    regularization=L2Regularization(0.0005 * BATCH),
)
predicted = small_vgg(input_image=data_layer("image", 3 * 32 * 32), num_channels=3, num_classes=10)
outputs(classification_cost(input=predicted, label=data_layer("label", 10)))
