# eight LSTMs on top of each other, every second one backwards
from paddle.trainer_config_helpers import *

word_dict = dict()
with open("./data/dict.txt", "r") as f:
    for i, line in enumerate(f):
        word_dict[line.strip().split()[0]] = i

is_predict = get_config_arg("is_predict", bool, False)
define_py_data_sources2(
    train_list=None if is_predict else "data/train.list",
    test_list="data/pred.list" if is_predict else "data/test.list",
    module="dataprovider_emb",
    obj="process_predict" if is_predict else "process",
    args={"dictionary": word_dict})

settings(
    batch_size=1 if is_predict else 128,
    learning_rate=2e-3,
    learning_method=AdamOptimizer(),
    regularization=L2Regularization(8e-4),
    gradient_clipping_threshold=25)

bias_attr = ParamAttr(initial_std=0., l2_rate=0.)

data = data_layer(name="word", size=len(word_dict))
emb = embedding_layer(input=data, size=128)

hidden_0 = mixed_layer(size=128, input=[full_matrix_projection(input=emb)])
lstm_0 = lstmemory(input=hidden_0, layer_attr=ExtraAttr(drop_rate=0.1))

input_layers = [hidden_0, lstm_0]
for i in range(1, 8):
    fc = fc_layer(input=input_layers, size=128)
    lstm = lstmemory(input=fc, layer_attr=ExtraAttr(drop_rate=0.1), reverse=(i % 2) == 1)
    input_layers = [fc, lstm]

lstm_last = pooling_layer(input=lstm, pooling_type=MaxPooling())
output = fc_layer(input=lstm_last, size=2, bias_attr=bias_attr, act=SoftmaxActivation())

if is_predict:
    maxid = maxid_layer(output)
    outputs([maxid, output])
else:
    label = data_layer(name="label", size=2)
    outputs(classification_cost(input=output, label=label))

