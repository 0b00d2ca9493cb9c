"""The contestants of bench/pserver.py do what they are said to do."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def load(monkeypatch):
    """Import a script of bench/ that has the name of something else."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setattr(sys, "path", [str(BENCH.parent), *sys.path])

    def find(name):
        spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return find


def test_groups_take_as_many_rounds_as_they_are_told_to(load, tmp_path):
    interleave = load("interleave")
    script = (
        f"import sys; sys.path.insert(0, {str(BENCH)!r}); from interleave import serve_rounds; count = [0]\n"
        "from pathlib import Path\n"
        f"def one(): count[0] += 1; Path({str(tmp_path / 'count')!r}).write_text(str(count[0]))\n"
        "serve_rounds(one)"
    )
    group = interleave.Contestant("counter", [], [[sys.executable, "-c", script]])
    interleave.run_interleaved([group], 5, 2)
    assert group.peaks()[1] > 1
    group.close()
    assert (tmp_path / "count").read_text() == "15" and len(group.rates) == 2 and min(group.rates) > 0


@pytest.mark.parametrize(
    "kind, size", [("zmq", 300_000), ("sockets", 300_000), ("dense", 10_000), ("dense-shared", 10_000), ("rows", 200)]
)
def test_every_contestant_runs_and_ends_by_itself(load, kind, size):
    bench = load("pserver")
    group = bench.start_peer(kind, size) if kind in ("zmq", "sockets") else bench.start_ours(kind, kind, size)
    try:
        assert group.run(2) > 0
    finally:
        group.close()


def test_the_rows_of_a_batch_are_different_and_rising(load):
    rows = load("client_process").draw(np.random.default_rng(1), 100_000, 500)
    assert rows.dtype == np.uint32 and len(rows) == 500 and (np.diff(rows.astype(int)) > 0).all()
