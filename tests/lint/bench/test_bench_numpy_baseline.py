"""The numpy baseline of bench/train.py is the same training: equal costs of three steps from equal parameters."""

from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"
NAMES = ["recommendation", "lr", "cnn", "lstm"]


@pytest.mark.parametrize("name", NAMES)
def test_the_baseline_has_the_costs_of_the_trainer(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import train
    import workloads

    sizes = workloads.Sizes(users=50, films=40, title_words=30, vocabulary=60, text_length=8)
    workload = next(one for one in workloads.WORKLOADS if one.name == name)
    _, ours, costs = train.compare_costs(workload, tmp_path / name, sizes)
    assert len(ours) == train.CHECKED_STEPS
    assert ours[0] != ours[1] != ours[2]
    assert costs[train.NUMPY] == pytest.approx(ours, rel=train.NUMPY.tolerances[0])
