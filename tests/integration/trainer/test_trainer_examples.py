"""The examples on made-up data, with `paddle` itself: they train, get better, and predict."""

import json
import re
from pathlib import Path

import pytest
from each import each

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


@each("name", ["lr", "emb"])
def test_quick_start_trains_without_tests_on_texts_that_are_too_few_for_a_test_set(paddle, tmp_path, name):
    """`prepare` said `0 test samples; ready`, and the training ended because test.list is missing."""
    (tmp_path / "texts.tsv").write_text("good\ta fine film\nbad\ta dull film\n")
    flags = ["--data_source=quick_start", f"--data_path={tmp_path / 'texts.tsv'}", "--split_count=1"]
    prepare(read_settings([f"--out_dir={tmp_path / 'job'}", f"--examples_dir={EXAMPLES}", *flags], {}))
    status, text = paddle.train(
        tmp_path / "job/0", f"--config=../quick_start/trainer_config.{name}.py", "--num_passes=1"
    )
    assert status == 0, text
    assert "Test samples=" not in text


NAMED = ["billing", "delivery", "login", "praise", "refund", "sales team"]


@each(("name", "kind"), [("lr", "named"), ("emb", "numbered")])
def test_quick_start_has_as_many_classes_as_the_texts_have_labels(paddle, tmp_path, name, kind):
    """Before, six labels got a config for two, and training ended with an id above the size of the label."""
    (tmp_path / "texts.tsv").write_text(
        "".join(
            f"{NAMED[n % 6] if kind == 'named' else n % 6}\tword{n % 6} common{n % 5} word{n % 6}\n" for n in range(240)
        )
    )
    flags = ["--data_source=quick_start", f"--data_path={tmp_path / 'texts.tsv'}", "--split_count=1"]
    prepare(read_settings([f"--out_dir={tmp_path / 'job'}", f"--examples_dir={EXAMPLES}", *flags], {}))
    folder, config = tmp_path / "job/0", f"../quick_start/trainer_config.{name}.py"
    flags = (f"--config={config}", "--num_passes=60", "--save_dir=out", "--seed=1", "--report")
    status, text = paddle.train(folder, *flags)
    assert status == 0, text
    assert "positive_label=5 precision=" in text
    names = [one.replace(" ", "_") for one in NAMED] if kind == "named" else [str(n) for n in range(6)]
    assert {f"{one}.recall" for one in names} <= json.loads((folder / "out/progress.json").read_text())[
        "evaluators"
    ].keys()
    (folder / "data/pred.txt").write_text("common1 word4\nword2\n")
    (folder / "data/pred.list").write_text("data/pred.txt\n")
    chosen = [line.split(";")[0] for line in predict(paddle, folder, config, last_pass=59)]
    assert chosen == ["4", "2"]


def test_recommendation_trains_and_predicts(paddle, shard):
    folder, config = shard("ratings", 3000), "../recommendation/trainer_config.py"
    costs = train(paddle, folder, config, passes=3)
    assert costs[-1] < costs[0]
    lines = predict(paddle, folder, config, last_pass=2)
    assert len(lines) == 600
    assert all(-1.001 <= float(line.rstrip(";")) <= 1.001 for line in lines)
