"""bench/master.py: a run begins with the tasks that the killed clients of the run before still hold."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "bench" / "master.py"


@pytest.fixture
def master(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))  # the script puts tests/ at its beginning
    spec = importlib.util.spec_from_file_location("bench_master", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TTL_S", 1.0)
    return module


def test_the_second_run_of_pairs_in_one_store_ends_its_passes(master, tmp_path, capsys):
    """The clients came back as the same incarnation, and the passes waited for tasks that nobody had."""
    place = master.Place("directory", tmp_path)
    for is_one in (True, False):
        master.run_pairs(place, 100, 0.5, is_one=is_one)
    rates = [int(line.partition(": ")[2].partition(" ")[0]) for line in capsys.readouterr().out.splitlines()]
    assert len(rates) == 2 and min(rates) > 100
