"""The examples on made-up data, with `paddle` itself: they train, get better, and predict."""

import re
from pathlib import Path

import pytest

from paddle_cluster.prepare.program import prepare
from paddle_cluster.prepare.settings import read_settings

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def shard(tmp_path):
    """A function that prepares made-up data and returns the work directory of its one shard."""

    def make_shard(shape, rows):
        flags = ["--data_source=synthetic", f"--synthetic_shape={shape}", f"--synthetic_rows={rows}", "--split_count=1"]
        prepare(read_settings([f"--out_dir={tmp_path}", f"--examples_dir={EXAMPLES}", *flags], {}))
        return tmp_path / "0"

    return make_shard


def train(paddle, folder, config, passes):
    status, text = paddle.train(folder, f"--config={config}", f"--num_passes={passes}", "--save_dir=out", "--seed=1")
    assert status == 0, text
    return [float(cost) for cost in re.findall(r"Test samples=\d+ cost=(\S+)", text)]


def predict(paddle, folder, config, last_pass):
    flags = (f"--init_model_path=out/pass-{last_pass:05d}", "--config_args=is_predict=1", "--predict_output_dir=.")
    status, text = paddle.train(folder, f"--config={config}", "--job=test", *flags)
    assert status == 0, text
    return (folder / "rank-00000").read_text().splitlines()


@pytest.mark.parametrize("name", ["lr", "emb", "cnn", "lstm", "bidi-lstm", "db-lstm", "resnet-lstm"])
def test_quick_start_trains_and_predicts(paddle, shard, name):
    folder, config = shard("text", 320), f"../quick_start/trainer_config.{name}.py"
    costs = train(paddle, folder, config, passes=4)
    assert costs[-1] < costs[0]
    texts = [line.partition("\t")[2] for line in (folder / "data/test.txt").read_text().splitlines()][:5]
    (folder / "data/pred.txt").write_text("".join(text + "\n" for text in texts))
    (folder / "data/pred.list").write_text("data/pred.txt\n")
    lines = predict(paddle, folder, config, last_pass=3)
    assert len(lines) == 5
    for line in lines:
        chosen, probabilities = line.rstrip(";").split(";")
        numbers = [float(number) for number in probabilities.split()]
        assert numbers.index(max(numbers)) == int(chosen) and sum(numbers) == pytest.approx(1, abs=1e-4)


def test_recommendation_trains_and_predicts(paddle, shard):
    folder, config = shard("ratings", 3000), "../recommendation/trainer_config.py"
    costs = train(paddle, folder, config, passes=3)
    assert costs[-1] < costs[0]
    lines = predict(paddle, folder, config, last_pass=2)
    assert len(lines) == 600
    assert all(-1.001 <= float(line.rstrip(";")) <= 1.001 for line in lines)
