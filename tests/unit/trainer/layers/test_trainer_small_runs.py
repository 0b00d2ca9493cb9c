"""Small recorded runs of the legacy program, done again: first values bit for bit, the rest within float32's noise.

`make golden` does all of them, and where ../shared is the whole recorded runs, with all values and those of several
processes.
"""

import pytest
from small_runs import check, lay_out, read_cases

from trainer.__main__ import run
from trainer.config.scripts.python2 import use_directories

CASES = read_cases()


def choose_cases():
    """Return the cases: the first of each family of names, and of each type of a layer; make golden has all."""
    families, types, found = set(), set(), []
    for name in sorted(CASES):
        family, own = name.partition("_")[0], set(CASES[name]["types"])
        is_new = family not in families or not own <= types
        families.add(family)
        types |= own
        found.append(name if is_new else pytest.param(name, marks=pytest.mark.golden))
    return found


@pytest.fixture
def job(tmp_path, monkeypatch, capfd):
    """A function that runs a command where all configurations and the data are, and returns its log."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "paddle_base.kernels.flush_denormals", lambda: None
    )  # of the process: later tests look at small numbers
    monkeypatch.setattr("os.fsync", lambda _: None)  # 70 a case; other tests look at what a crash leaves
    lay_out(tmp_path)

    def start(command, *arguments):
        assert command == "train"
        use_directories(forget=True)
        run([*arguments, "--dot_period=0"])
        return capfd.readouterr().err

    yield start
    use_directories(forget=True)


@pytest.mark.parametrize("name", choose_cases())
def test_a_small_run_gives_the_legacys_numbers(name, job, tmp_path):
    logs = {}
    for log, copies, *arguments in CASES[name]["steps"]:
        for source, target in copies.items():
            (tmp_path / target).symlink_to(tmp_path / source)
        logs[log] = job(*arguments)
    check(CASES[name], tmp_path, logs)
