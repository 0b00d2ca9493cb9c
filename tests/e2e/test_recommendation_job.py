"""The tutorial's recommendation by three pods, on ratings that the data job makes up."""

import re

from three_pods import PODS, ends, prepare, run_job

PASSES = 4
RATINGS = 12000
TEST_LINE = re.compile(r"Test samples=(\d+) cost=(\S+)")


def test_the_cost_of_the_test_ratings_falls_alike_in_every_pod(tmp_path):
    """Tables of films and of users are among the parameters that are saved."""
    flags = ["--data_source=synthetic", "--synthetic_shape=ratings", f"--synthetic_rows={RATINGS}"]
    job = prepare(tmp_path, *flags)
    result = run_job(tmp_path, deadline=100, TRAIN_CONFIG_DIR="recommendation", NUM_PASSES=str(PASSES))
    assert ends(result) == [0] * PODS
    tests = [TEST_LINE.findall((job / "output" / f"node_{node}" / "train.log").read_text()) for node in range(PODS)]
    assert tests[0] == tests[1] == tests[2]
    samples, costs = zip(*tests[0], strict=True)
    assert set(samples) == {str(RATINGS // 5)}
    assert len(costs) == PASSES
    assert float(costs[-1]) < float(costs[0])
    saved = job / "output" / f"pass-{PASSES - 1:05d}"
    assert (saved / "done").exists()
    sizes = {path.name: path.stat().st_size for path in saved.glob("_*")}
    assert len(sizes) == 31
    assert sizes["_user_fusion.w3"] == 16 + 4 * 256 * 256
