"""A network for any table that `paddle prepare --data_source=csv --csv_label=COLUMN` has split: classes, or a number.

Config args: is_predict (default False: train).
"""

import os

from table import Table

from paddle.trainer_config_helpers import *

HIDDEN_UNITS = 32
predict = get_config_arg("is_predict", bool, False)
table = Table()

test_list = "data/new.list" if predict else "data/test.list"
define_py_data_sources2(
    train_list=None if predict else "data/train.list",
    test_list=test_list if os.path.exists(test_list) else None,
    module="table_provider",
    obj="process_predict" if predict else "process",
    args={"predict": predict},
)
settings(batch_size=32, learning_rate=0.01, learning_method=AdamOptimizer())

hidden = fc_layer(data_layer("row", table.width), HIDDEN_UNITS, act=ReluActivation())
if table.classes is None:
    output = fc_layer(hidden, 1, act=LinearActivation())
else:
    output = fc_layer(hidden, len(table.classes), act=SoftmaxActivation())

if predict:
    outputs(output if table.classes is None else [maxid_layer(output), output])
elif table.classes is None:
    outputs(mse_cost(input=output, label=data_layer("label", 1)))  # 0.5 is that of the mean of the label
else:
    outputs(classification_cost(input=output, label=data_layer("label", len(table.classes))))
