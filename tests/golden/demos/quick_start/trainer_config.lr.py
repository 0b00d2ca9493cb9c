# logistic regression on a bag of words
from paddle.trainer_config_helpers import *

dict_file = get_config_arg('dict_file', str, "./data/dict.txt")
word_dict = dict()
with open(dict_file, 'r') as f:
    for i, line in enumerate(f):
        word_dict[line.strip().split()[0]] = i

is_predict = get_config_arg('is_predict', bool, False)
define_py_data_sources2(
    train_list=None if is_predict else 'data/train.list',
    test_list='data/pred.list' if is_predict else 'data/test.list',
    module="dataprovider_bow",
    obj='process_predict' if is_predict else 'process',
    args={"dictionary": word_dict})

settings(
    batch_size=1 if is_predict else 128,
    learning_rate=2e-3,
    learning_method=AdamOptimizer(),
    regularization=L2Regularization(8e-4),
    gradient_clipping_threshold=25)

data = data_layer(name="word", size=len(word_dict))
output = fc_layer(input=data, size=2, act=SoftmaxActivation())
if not is_predict:
    label = data_layer(name="label", size=2)
    outputs(classification_cost(input=output, label=label))
else:
    outputs([maxid_layer(output), output])
