# y = w x + b
from paddle.trainer_config_helpers import *

define_py_data_sources2(
    train_list=['no_matter.txt'], test_list=None, module='dataprovider', obj='process', args={})

settings(batch_size=12, learning_rate=1e-3, learning_method=MomentumOptimizer())

x = data_layer(name='x', size=1)
y = data_layer(name='y', size=1)
y_predict = fc_layer(
    input=x, param_attr=ParamAttr(name='w'), size=1, act=LinearActivation(), bias_attr=ParamAttr(name='b'))
cost = mse_cost(input=y_predict, label=y)
outputs(cost)
