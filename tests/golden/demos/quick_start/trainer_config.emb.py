# mean of word vectors
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

settings(batch_size=1 if is_predict else 128, learning_rate=2e-3, learning_method=AdamOptimizer())

data = data_layer(name="word", size=len(word_dict))
emb = embedding_layer(input=data, size=128)

avg = pooling_layer(input=emb, pooling_type=AvgPooling())
output = fc_layer(input=avg, size=2, act=SoftmaxActivation())

if is_predict:
    maxid = maxid_layer(output)
    outputs([maxid, output])
else:
    label = data_layer(name="label", size=2)
    outputs(classification_cost(input=output, label=label))

