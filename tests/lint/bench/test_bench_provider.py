"""bench/provider.py: every form gives all samples."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.mark.parametrize("make", ["make_dense_ways", "make_text_ways"])
def test_every_form_gives_all_samples(tmp_path, monkeypatch, make):
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setattr(sys, "path", [str(BENCH.parent), *sys.path])
    spec = importlib.util.spec_from_file_location("bench_provider", BENCH / "provider.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    rates = bench.measure(getattr(bench, make)(tmp_path, 300), 300, 1)
    assert len(rates) == 7 and all(len(found) == 1 and found[0] > 0 for found in rates.values())
