"""The contestants of bench/pserver.py do what they are said to do."""

import contextlib
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


def test_the_processor_time_of_a_round_is_measured(load):
    interleave = load("interleave")
    spins = "import time; end = time.process_time() + 0.05\nwhile time.process_time() < end: pass"
    script = (
        f"import sys; sys.path.insert(0, {str(BENCH)!r}); from interleave import serve_rounds\n"
        f"serve_rounds(lambda: exec({spins!r}, {{}}))"
    )
    group = interleave.Contestant("spins", [], [[sys.executable, "-c", script]] * 2)
    interleave.run_interleaved([group], 2, 1)
    group.close()
    [(servers, trainers)] = group.spent
    assert servers == 0 and trainers >= 0.1


def test_a_trainer_that_ends_early_is_told_with_what_it_said(load):
    interleave = load("interleave")
    group = interleave.Contestant("bad", [], [[sys.executable, "-c", "raise SystemExit('no such thing')"]])
    with contextlib.closing(group), pytest.raises(SystemExit, match=r"(?s)'bad' ended early.*no such thing"):
        group.run(1)


def test_the_joined_rounds_of_trainers_have_the_longest_time(load):
    rounds = load("interleave").Rounds
    both = [rounds.parse(str(one)) for one in (rounds(2.0, 0.5, 30.0), rounds(1.5, 0.25, 40.0))]
    assert rounds.join(both) == rounds(2.0, 0.75, 40.0)


@pytest.mark.parametrize(
    "kind, size, trainers",
    [
        ("zmq", 300_000, 3),
        ("sockets", 300_000, 3),
        ("dense", 10_000, 3),
        ("dense-shared", 10_000, 3),
        ("rows", 200, 3),
        ("async", 1_000, 3),
        ("dense", 1_000, 6),  # these are children of one process
    ],
)
def test_every_contestant_runs_and_ends_by_itself(load, kind, size, trainers):
    bench = load("contestants")
    peer = kind in ("zmq", "sockets")
    group = bench.start_peer(kind, size) if peer else bench.start_ours(kind, kind, size, trainers=trainers)
    try:
        rate, spent = group.measure(2)
        assert rate > 0 and spent.servers_s > 0 and spent.trainers_s > 0
        assert all(peak > 1 for peak in group.peaks())
    finally:
        group.close()


def test_a_child_that_fails_ends_its_parent(load):
    python, script = sys.executable, str(BENCH / "client_process.py")
    group = load("interleave").Contestant("children", [], [[python, script, "dense", "0-1", "2", "0", "1", "1"]])
    with contextlib.closing(group), pytest.raises(SystemExit, match=r"(?s)ended early.*2 of 2 trainers ended early"):
        group.run(1)


def test_the_rows_of_a_batch_are_different_and_rising(load):
    rows = load("client_process").draw(np.random.default_rng(1), 100_000, 500)
    assert rows.dtype == np.uint32 and len(rows) == 500 and (np.diff(rows.astype(int)) > 0).all()
