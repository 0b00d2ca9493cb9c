"""Averages and sparse rows in whole runs: what is saved and what the log says."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

KEPT = Path(__file__).parents[3] / "tests" / "golden" / "runs"
BATCHES = 16  # of 128 samples in the data of the golden runs
CONFIG = """
from paddle.trainer_config_helpers import *
import text_task

dictionary = text_task.read_dictionary('./data/dict.txt')
text_task.declare_data('bow_provider', dictionary, False, True, with_test=False)
average = get_config_arg('average', float, 0.)
settings(
    batch_size=128,
    learning_rate=2e-3,
    learning_rate_schedule='manual',
    learning_rate_args='512:1.0,10000:0.5',
    regularization=L2Regularization(1e-2),
    gradient_clipping_threshold=5,
    model_average=ModelAverage(average) if average else None)
word = data_layer('word', len(dictionary))
weight = ParamAttr(sparse_update=get_config_arg('sparse', bool, False))
text_task.finish(fc_layer(word, 2, act=SoftmaxActivation(), param_attr=weight), False)
"""


@pytest.fixture
def train(tmp_path, paddle):
    """Trains a pass with these config_args; gives the log, and the weights after each batch from the second on."""
    shutil.copytree(KEPT / "configs", tmp_path / "job")
    shutil.copytree(KEPT / "data" / "text", tmp_path / "job" / "data")
    (tmp_path / "job" / "config.py").write_text(CONFIG)

    def run(config_args, *flags):
        output = tmp_path / "job" / "output"
        shutil.rmtree(output, ignore_errors=True)
        status, log = paddle.train(
            tmp_path / "job",
            "--config=config.py",
            f"--config_args={config_args}",
            "--save_dir=./output",
            "--num_passes=1",
            "--saving_period_by_batches=1",
            "--seed=1",
            *flags,
        )
        assert status == 0, log
        directories = sorted(output.glob("pass-00000-*"))
        weights = [np.fromfile(one / "___fc_layer_0__.w0", "<f4", offset=16) for one in directories]
        assert len(weights) == BATCHES - 1
        return log, np.array(weights, np.float64)

    return run


@pytest.mark.parametrize("sparse", [0, 1])
def test_saves_hold_the_average_of_all_batches_so_far(train, sparse):
    """n times the average after batch n, less that of before, is the weight after batch n: nothing else changed."""
    _, raw = train(f"sparse={sparse}")
    _, averages = train(f"sparse={sparse},average=1.0")
    count = np.arange(2, BATCHES + 1)[:, None]
    sums = averages * count
    if sparse:
        # rows that a batch does not touch are pulled to zero at every save, and count as they are then
        np.testing.assert_allclose(sums[1:] - sums[:-1], raw[1:], rtol=1e-3, atol=2e-5)
    else:
        np.testing.assert_allclose(sums[1:] - sums[:-1], raw[1:], rtol=1e-4, atol=5e-6)
    assert np.abs(averages[-1] - raw[-1]).max() > 1e-3


def test_a_sparse_parameter_changes_the_mode_and_gradients_are_clipped(train):
    log, sparse = train("sparse=1", "--log_clipping")
    assert "ignore sparse_remote_update=true due to  --local=true" in log
    assert "trainer mode: SgdSparseCpuTraining" in log
    assert re.search(r"parameter=___fc_layer_0__.w0 need clipping, max grad=\d\S* avg grad=\d", log)
    assert log.count(" learning_rate changes to 0.001\n") == 1
    log, dense = train("sparse=0")
    assert "trainer mode: Normal" in log and "does not clip gradients" in log and "need clipping" not in log
    assert np.abs(sparse[-1] - dense[-1]).max() > 1e-3
