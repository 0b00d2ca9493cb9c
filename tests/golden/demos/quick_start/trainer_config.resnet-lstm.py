# LSTMs with shortcuts
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

lstm = simple_lstm(input=emb, size=128, lstm_cell_attr=ExtraAttr(drop_rate=0.1))
previous_input, previous_hidden_state = emb, lstm
for i in range(3):
    # the sum is the input of this layer and is carried on
    current_input = addto_layer(input=[previous_input, previous_hidden_state])
    hidden_state = simple_lstm(input=current_input, size=128, lstm_cell_attr=ExtraAttr(drop_rate=0.1))
    previous_input, previous_hidden_state = current_input, hidden_state

lstm = previous_hidden_state
lstm_last = pooling_layer(input=lstm, pooling_type=MaxPooling())
output = fc_layer(input=lstm_last, size=2, bias_attr=bias_attr, act=SoftmaxActivation())

if is_predict:
    maxid = maxid_layer(output)
    outputs([maxid, output])
else:
    label = data_layer(name="label", size=2)
    outputs(classification_cost(input=output, label=label))

