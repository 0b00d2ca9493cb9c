"""The networks of bench/networks.py train on the samples that it draws."""

from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.mark.parametrize("name", ["vgg", "attention", "db_lstm", "crf"])
def test_a_network_trains(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import networks

    network = next(one for one in networks.NETWORKS if one.name == name)
    directory = networks.prepare(network, tmp_path / name, samples=4)
    passes, _ = networks.run_trainer(network, directory, "--num_passes=2", "--save_dir=")
    assert [samples for _, samples, _ in passes] == [4, 4]
    assert float(passes[1][2]) < float(passes[0][2])
