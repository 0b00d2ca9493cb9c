"""The ways of bench/nodes.py train the same on several nodes."""

from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).parents[3] / "bench"


def test_servers_and_all_reduce_train_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import nodes
    import timing
    import workloads

    workload = next(one for one in workloads.WORKLOADS if one.name == "recommendation")
    sizes = workloads.Sizes(batches=1, users=50, films=40, title_words=30)
    directory = workloads.prepare(workload, tmp_path / "job", sizes)
    timing.run_trainer(workload, directory, "--num_passes=1", "--save_dir=start")
    ways = nodes.Jobs(workload, directory, directory / "start/pass-00000", 2, None).ways()
    runs = {way: run(1) for way, run in ways.items()}
    assert list(runs) == ["sockets", "servers", "collective"]  # like with like comes first
    assert all(len(run.rates) == 1 and run.rates[0] > 0 and run.trainer_mb > 1 for run in runs.values())
    costs = [run.first_cost for run in runs.values()]
    assert costs[0] == costs[1] == pytest.approx(costs[2], rel=1e-5)


def test_a_window_has_the_number_of_all_rows_beyond_its_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    from numpy_baseline.data import find_windows

    windows = find_windows(np.array([2, 1]), -1, 3)
    assert windows.tolist() == [[3, 0, 1], [0, 1, 3], [3, 2, 3]]
