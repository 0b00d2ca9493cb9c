"""The digits program of paddle.v2 ends in the same parameters, bit for bit, as `paddle train` with the equal config."""

import io
from pathlib import Path

import numpy as np
import pytest

import paddle.v2 as paddle
from trainer.config.scripts.python2 import use_directories
from trainer.flags import parse_flags
from trainer.training.assembly import Assembly

PASSES = 2
BATCH = 32
CONFIG = """
from paddle.trainer_config_helpers import *
define_py_data_sources2('data.list', None, module='digits_of_v2', obj='process')
settings(batch_size=32, learning_rate=0.1 / 32, {0})
image = data_layer('image', 64)
hidden = fc_layer(fc_layer(image, 64, act=ReluActivation()), 32, act=ReluActivation())
predicted = fc_layer(hidden, 10, act=SoftmaxActivation())
outputs(classification_cost(input=predicted, label=data_layer('label', 10)))
"""
PROVIDER = """
from paddle.trainer.PyDataProvider2 import *
from paddle.v2.dataset import digits
@provider(input_types={'image': dense_vector(64), 'label': integer_value(10)}, should_shuffle=False)
def process(settings, file):
    for image, label in digits.train()():
        yield {'image': image, 'label': label}
"""


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A function that trains a config with `paddle train`, and returns its parameters by name."""

    def train(settings):
        monkeypatch.chdir(tmp_path)
        Path("config.py").write_text(CONFIG.format(settings))
        Path("digits_of_v2.py").write_text(PROVIDER)
        Path("data.list").write_text("digits\n")
        flags = ["--config=config.py", "--save_dir=out", f"--num_passes={PASSES}", "--seed=1", "--log_period=1000"]
        assembly = Assembly(parse_flags(flags))
        try:
            assembly.training().run()
        finally:
            assembly.end()
        directory = Path(f"out/pass-{PASSES - 1:05d}")
        return {path.name: np.frombuffer(path.read_bytes()[16:], np.float32) for path in directory.glob("_*")}

    yield train
    use_directories(forget=True)


def train_program(optimizer):
    """Trains the program, and returns its parameters by name: averages, if the optimiser averages."""
    paddle.init(seed=1, trainer_count=1)
    image = paddle.layer.data(name="image", type=paddle.data_type.dense_vector(64))
    label = paddle.layer.data(name="label", type=paddle.data_type.integer_value(10))
    hidden = paddle.layer.fc(input=image, size=64, act=paddle.activation.Relu())
    hidden = paddle.layer.fc(input=hidden, size=32, act=paddle.activation.Relu())
    predicted = paddle.layer.fc(input=hidden, size=10, act=paddle.activation.Softmax())
    cost = paddle.layer.classification_cost(input=predicted, label=label)
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, optimizer)
    trainer.train(paddle.batch(paddle.dataset.digits.train(), BATCH), num_passes=PASSES)
    file = io.BytesIO()
    trainer.save_parameter_to_tar(file)
    file.seek(0)
    saved = paddle.parameters.Parameters.from_tar(file)
    return {name: saved.get(name).reshape(-1) for name in saved.names()}


L2 = 0.0005 * 32
OPTIMIZERS = {
    "momentum": (
        lambda **more: paddle.optimizer.Momentum(momentum=0.9, **more),
        f"learning_method=MomentumOptimizer(0.9), regularization=L2Regularization({L2})",
    ),
    "adam": (
        lambda **more: paddle.optimizer.Adam(**more),
        f"learning_method=AdamOptimizer(), regularization=L2Regularization({L2})",
    ),
    "averages and a schedule": (
        lambda **more: paddle.optimizer.RMSProp(
            model_average=paddle.optimizer.ModelAverage(0.5),
            learning_rate_schedule="poly",
            learning_rate_decay_a=0.01,
            learning_rate_decay_b=0.5,
            **more,
        ),
        f"learning_method=RMSPropOptimizer(), regularization=L2Regularization({L2}), "
        "model_average=ModelAverage(0.5), learning_rate_schedule='poly', learning_rate_decay_a=0.01, "
        "learning_rate_decay_b=0.5",
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_program_and_paddle_train_end_in_the_same_bits(trained, name):
    make, settings = OPTIMIZERS[name]
    found = train_program(make(learning_rate=0.1 / 32, regularization=paddle.optimizer.L2Regularization(rate=L2)))
    wanted = trained(settings)
    assert found.keys() == wanted.keys() and len(found) == 6
    for parameter, value in wanted.items():
        np.testing.assert_array_equal(found[parameter], value, err_msg=parameter)
    assert np.abs(found["___fc_layer_0__.w0"]).max() > 0.3, "it has been trained"
