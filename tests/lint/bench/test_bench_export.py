"""bench/export.py: a network is trained, exported, and computed by both contestants."""

from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"


def test_both_contestants_compute_the_same_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import export

    network = next(one for one in export.NETWORKS if one.name == "crf")
    one = export.lay_out(tmp_path, network, 1)
    export.export(one)
    row = export.bench(one, 1, 1, 1).strip("| ").split(" | ")
    assert row[:2] == ["crf", "1"]
    assert all(float(cell.split()[0]) > 0 for cell in row[2:5])
    assert max(map(float, row[5:])) < 1e-5
    assert len(row) == 7
