"""Small recorded runs of the legacy program, done again: first values bit for bit, the rest within float32's noise.

`make golden` does all of them, and where ../shared is the whole recorded runs, with all values and those of several
processes. Here is one of each kind, which is the first word of its name.
"""

import pytest
from small_runs import check, lay_out, read_cases

from trainer.__main__ import run
from trainer.config.scripts.python2 import use_directories

CASES = read_cases()
KINDS = {name.partition("_")[0]: name for name in sorted(CASES, reverse=True)}  # the first of each kind


@pytest.fixture
def job(tmp_path, monkeypatch, capfd):
    """A function that runs a command where all configurations and the data are, and returns its log."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kernels.flush_denormals", lambda: None)  # of the process: later tests look at small numbers
    lay_out(tmp_path)

    def start(command, *arguments):
        assert command == "train"
        use_directories(forget=True)
        run([*arguments, "--dot_period=0"])
        return capfd.readouterr().err

    yield start
    use_directories(forget=True)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in KINDS.values() else pytest.mark.golden) for name in sorted(CASES)],
)
def test_a_small_run_gives_the_legacys_numbers(name, job, tmp_path):
    logs = {}
    for log, copies, *arguments in CASES[name]["steps"]:
        for source, target in copies.items():
            (tmp_path / target).symlink_to(tmp_path / source)
        logs[log] = job(*arguments)
    check(CASES[name], tmp_path, logs)
