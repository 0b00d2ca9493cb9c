"""The tutorial's own example: logistic regression on a bag of words, by three pods, on real reviews."""

import pytest
from three_pods import PODS, ROOT, ends, errors_in_tests, prepare, run_job

REVIEWS = ROOT.parent / "shared" / "data" / "rt-polarity"
PASSES = 10


@pytest.fixture(scope="module")
def quick_start(tmp_path_factory):
    """A finished job: (its directory, the result of its pods)."""
    if not REVIEWS.is_dir():
        pytest.skip("the sentence polarity data set is not beside the project (shared/data/rt-polarity)")
    volume = tmp_path_factory.mktemp("volume")
    job = prepare(volume, "--data_source=quick_start", f"--data_path={REVIEWS}")
    return job, run_job(volume, deadline=110, TRAIN_CONFIG_DIR="quick_start")


def test_all_three_pods_succeed_with_the_tutorials_config_name(quick_start):
    job, result = quick_start
    assert ends(result) == [0] * PODS
    assert "--config=trainer_config.lr.py" in (job / "output" / "node_0" / "train.log").read_text()


def test_reviews_are_told_apart_with_under_25_percent_error(quick_start):
    job, _ = quick_start
    for node in range(PODS):
        tests = errors_in_tests(job / "output" / f"node_{node}" / "train.log")
        assert [samples for samples, _ in tests] == [2132] * PASSES
        assert tests[-1][1] < 0.25


def test_the_parameters_are_those_that_the_tutorial_lists(quick_start):
    job, _ = quick_start
    saved = job / "output" / f"pass-{PASSES - 1:05d}"
    assert {path.name for path in saved.glob("_*")} == {"___fc_layer_0__.w0", "___fc_layer_0__.wbias"}
    words = (job / "0" / "data" / "dict.txt").read_text(encoding="utf-8").count("\n")
    assert (saved / "___fc_layer_0__.w0").stat().st_size == 16 + 4 * 2 * words
