"""The tutorial's own example: logistic regression on a bag of words, by three pods, on real reviews."""

import pytest
from three_pods import PODS, ROOT, ends, errors_in_tests, prepare, run_job

REVIEWS = ROOT.parent / "shared" / "data" / "rt-polarity"
PASSES = 10


def test_three_pods_tell_reviews_apart_with_under_25_percent_error(tmp_path):
    """The pods find the tutorial's name of the config, and save the parameters that the tutorial lists."""
    if not REVIEWS.is_dir():
        pytest.skip("the sentence polarity data set is not beside the project (shared/data/rt-polarity)")
    job = prepare(tmp_path, "--data_source=quick_start", f"--data_path={REVIEWS}")
    result = run_job(tmp_path, deadline=110, TRAIN_CONFIG_DIR="quick_start")
    assert ends(result) == [0] * PODS
    assert "--config=trainer_config.lr.py" in (job / "output" / "node_0" / "train.log").read_text()
    for node in range(PODS):
        tests = errors_in_tests(job / "output" / f"node_{node}" / "train.log")
        assert [samples for samples, _ in tests] == [2132] * PASSES, f"node_{node}"
        assert tests[-1][1] < 0.25, f"node_{node}"
    saved = job / "output" / f"pass-{PASSES - 1:05d}"
    assert {path.name for path in saved.glob("_*")} == {"___fc_layer_0__.w0", "___fc_layer_0__.wbias"}
    words = (job / "0" / "data" / "dict.txt").read_text(encoding="utf-8").count("\n")
    assert (saved / "___fc_layer_0__.w0").stat().st_size == 16 + 4 * 2 * words
