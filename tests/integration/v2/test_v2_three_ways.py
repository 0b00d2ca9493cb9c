"""The digits program three ways: alone, in three pods with servers, and as a config of `paddle train`."""

from __future__ import annotations

import numpy as np
from test_v2_servers import Job, values_of
from waiting import DEADLINE_S

# A pod trains a third of each batch; alone, three threads do. Both add the three gradients in this order. A network of
# fewer than 1,024 neurons would be computed by one thread, with other roundings.
PROGRAM = """
import itertools
import paddle.v2 as paddle

def samples():
    return itertools.islice(paddle.dataset.digits.train()(), 960)

def thirds():
    for number, sample in enumerate(samples()):
        if number // 32 % 3 == rank:
            yield sample

rank = int(os.environ.get("PADDLE_INIT_TRAINER_ID", -1))
paddle.init(seed=1)
image = paddle.layer.data(name="image", type=paddle.data_type.dense_vector(64))
label = paddle.layer.data(name="label", type=paddle.data_type.integer_value(10))
hidden = paddle.layer.fc(input=image, size=1024, act=paddle.activation.Relu())
predicted = paddle.layer.fc(input=hidden, size=10, act=paddle.activation.Softmax())
cost = paddle.layer.classification_cost(input=predicted, label=label)
parameters = paddle.parameters.create(cost)
rate = paddle.optimizer.L2Regularization(rate=0.0005 * 96)
optimizer = paddle.optimizer.Momentum(learning_rate=0.1 / 96, momentum=0.9, regularization=rate)
trainer = paddle.trainer.SGD(cost, parameters, optimizer, is_local=rank < 0)
reader = paddle.batch(samples, 96) if rank < 0 else paddle.batch(thirds, 32)
trainer.train(reader, num_passes=3)
save(parameters, f"{rank}.tar")
"""
CONFIG = """
from paddle.trainer_config_helpers import *
define_py_data_sources2('data.list', None, module='digits_of_v2', obj='process')
method, decay = MomentumOptimizer(0.9), L2Regularization(0.0005 * 96)
settings(batch_size=96, learning_rate=0.1 / 96, learning_method=method, regularization=decay)
hidden = fc_layer(data_layer('image', 64), 1024, act=ReluActivation())
predicted = fc_layer(hidden, 10, act=SoftmaxActivation())
outputs(classification_cost(input=predicted, label=data_layer('label', 10)))
"""
PROVIDER = """
import itertools
from paddle.trainer.PyDataProvider2 import *
from paddle.v2.dataset import digits
@provider(input_types={'image': dense_vector(64), 'label': integer_value(10)}, should_shuffle=False)
def process(settings, file):
    for image, label in itertools.islice(digits.train()(), 960):
        yield {'image': image, 'label': label}
"""


def test_a_program_alone_in_three_pods_and_as_a_config_ends_in_the_same_bits(programs, tmp_path):
    programs.write("train.py", PROGRAM)
    for name, text in (("config.py", CONFIG), ("digits_of_v2.py", PROVIDER), ("data.list", "digits\n")):
        (tmp_path / name).write_text(text)
    flags = ["--config=config.py", "--save_dir=out", "--num_passes=3", "--seed=1", "--trainer_count=3"]
    started = [
        programs.start("alone", "run", "train.py", PADDLE_INIT_TRAINER_COUNT="3"),
        programs.start("config", "train", *flags),
    ]
    Job(programs, 3).run("train.py")
    assert [one.wait(DEADLINE_S) for one in started] == [0, 0], programs.log("alone") + programs.log("config")
    assert "one thread computes small batches" not in programs.log("alone")
    alone, *pods = [values_of(tmp_path / f"{number}.tar") for number in (-1, 0, 1, 2)]
    config = {name: (tmp_path / "out/pass-00002" / name).read_bytes()[16:] for name in alone}
    assert len(alone) == 4 and config == alone
    assert pods == [alone] * 3
    assert np.abs(np.frombuffer(alone["___fc_layer_0__.w0"], np.float32)).max() > 0.3, "it has been trained"
