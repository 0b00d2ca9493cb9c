"""Eight LSTMs that read forward and backward alternately, like v0.10's demo semantic_role_labeling.

All activations are tanh, because torch's LSTM has no other activation, and there is no model averaging.
"""

import math

from paddle.trainer_config_helpers import *

WORDS, VERBS, ROLES, SIZE, DEPTH = 44068, 3162, 59, 512, 8

define_py_data_sources2("data/train.list", None, module="provider", obj="process")
settings(
    batch_size=128,
    learning_rate=1e-4,
    learning_method=MomentumOptimizer(momentum=0),
    regularization=L2Regularization(8e-4),
)

start = ParamAttr(initial_std=1 / math.sqrt(SIZE) / 3)
contexts = ["word", "ctx_n2", "ctx_n1", "ctx_0", "ctx_p1", "ctx_p2"]
shared = ParamAttr(name="_words")
features = [embedding_layer(input=data_layer(name, WORDS), size=32, param_attr=shared) for name in contexts]
features.append(embedding_layer(input=data_layer("verb", VERBS), size=32))
features.append(embedding_layer(input=data_layer("mark", 2), size=5))
hidden = mixed_layer(SIZE, bias_attr=start, input=[full_matrix_projection(one, param_attr=start) for one in features])
read = lstmemory(input=hidden)
for depth in range(1, DEPTH):
    terms = [full_matrix_projection(one, param_attr=start) for one in (hidden, read)]
    hidden = mixed_layer(SIZE, bias_attr=start, input=terms)
    read = lstmemory(input=hidden, reverse=depth % 2 == 1)
terms = [full_matrix_projection(one, param_attr=start) for one in (hidden, read)]
scores = mixed_layer(ROLES, bias_attr=start, input=terms)
outputs(crf_layer(input=scores, label=data_layer("role", ROLES), size=ROLES))
