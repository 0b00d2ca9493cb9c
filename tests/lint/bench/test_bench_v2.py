"""bench/v2.py: the programs of paddle.v2 are the trainings of bench/train.py, and the feeder's table has its rows."""

import argparse
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"
NAMES = ["recommendation", "lr", "cnn", "lstm"]


@pytest.mark.parametrize("name", NAMES)
def test_a_program_does_the_work_of_the_trainer(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import v2
    import workloads

    sizes = workloads.Sizes(batches=1, users=50, films=40, title_words=30, vocabulary=60, text_length=8)
    workload = next(one for one in workloads.WORKLOADS if one.name == name)
    directory = workloads.prepare(workload, tmp_path / name, sizes)
    model = v2.require_same_work(workload, directory)
    if name == "lr":
        options = argparse.Namespace(passes=1, rounds=1, processor=False)
        assert v2.bench(workload, directory, model, options).startswith("| lr | ")
        assert v2.bench_reader(workload, directory, options, "file").startswith("| file | ")


def test_the_feeder_is_measured_beside_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import v2

    for kind in v2.KINDS:
        assert v2.bench_feeder(kind, 1, seconds=0.001).startswith(f"| {kind} | ")
