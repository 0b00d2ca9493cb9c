from sentiment_net import *
from paddle.trainer_config_helpers import *

data_dir = "./data/pre-imdb"
is_test = get_config_arg('is_test', bool, False)
is_predict = get_config_arg('is_predict', bool, False)
net = get_config_arg('net', str, 'stacked')

dict_dim, class_dim = sentiment_data(data_dir, is_test, is_predict)

settings(
    batch_size=128,
    learning_rate=2e-3,
    learning_method=AdamOptimizer(),
    model_average=ModelAverage(0.5),
    regularization=L2Regularization(8e-4),
    gradient_clipping_threshold=25)

if net == 'stacked':
    stacked_lstm_net(dict_dim, class_dim=class_dim, stacked_num=3, is_predict=is_predict)
else:
    bidirectional_lstm_net(dict_dim, class_dim=class_dim, is_predict=is_predict)
