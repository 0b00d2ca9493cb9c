from paddle.trainer_config_helpers import *

is_predict = get_config_arg("is_predict", bool, False)

if not is_predict:
    data_dir = 'data/cifar-out/batches/'
    meta_path = data_dir + 'batches.meta'
    args = {
        'meta': meta_path,
        'mean_img_size': 32,
        'img_size': 32,
        'num_classes': 10,
        'use_jpeg': 1,
        'color': "color"
    }
    define_py_data_sources2(
        train_list="train.list", test_list="train.list", module='image_provider', obj='processData', args=args)

settings(
    batch_size=128,
    learning_rate=0.1 / 128.0,
    learning_method=MomentumOptimizer(0.9),
    regularization=L2Regularization(0.0005 * 128))

img = data_layer(name='image', size=3 * 32 * 32)
predict = small_vgg(input_image=img, num_channels=3, num_classes=10)

if not is_predict:
    lbl = data_layer(name="label", size=10)
    outputs(classification_cost(input=predict, label=lbl))
else:
    outputs(predict)
