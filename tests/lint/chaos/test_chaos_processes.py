"""No trial outlives the run that has started it, whether that is interrupted or killed."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from chaos.processes import StoppedError, TrialProcesses, run_side_by_side
from waiting import until

ROOT = Path(__file__).parents[3]
# a trial that tells its process id, and says at its end that it has ended in order
TRIAL = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
from chaos.processes import end_with_runner
end_with_runner()
try:
    Path({place!r}, "new").write_text(str(os.getpid()))
    Path({place!r}, "new").rename(Path({place!r}, "begun"))
    signal.pause()
finally:
    Path({place!r}, "ended").touch()
"""
RUNNER = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
from chaos.processes import TrialProcesses
TrialProcesses().run([sys.executable, "-c", {trial!r}], Path({place!r}, "log"), 100.0)
"""


def trial_in(place):
    return [sys.executable, "-c", TRIAL.format(root=str(ROOT), tests=str(ROOT / "tests"), place=str(place))]


def test_a_trial_ends_in_order_when_its_runner_is_killed(tmp_path):
    trial = trial_in(tmp_path)[2]
    text = RUNNER.format(root=str(ROOT), tests=str(ROOT / "tests"), trial=trial, place=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", text]) as runner:
        until((tmp_path / "begun").exists, "the trial to begin")
        runner.kill()
    until((tmp_path / "ended").exists, "the trial to end in order")
    process = int((tmp_path / "begun").read_text())
    until(lambda: not Path(f"/proc/{process}").exists(), "the end of its process")


def test_an_interrupt_ends_the_trials_that_run_and_lets_no_other_begin(tmp_path):
    processes, begun = TrialProcesses(), []

    def run(place):
        if place is None:
            until((tmp_path / "begun").exists, "the trial to begin")
            return "a report"
        begun.append(place)
        return processes.run(trial_in(place), tmp_path / "log", 100.0)

    def interrupt(_):
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        run_side_by_side(run, [tmp_path, None, tmp_path / "second"], 2, processes, interrupt)
    assert (tmp_path / "ended").exists()
    assert not (tmp_path / "second" / "begun").exists()
    assert threading.active_count() == before
    with pytest.raises(StoppedError):
        processes.run(["true"], tmp_path / "log", 1.0)


def test_a_trial_beyond_its_bound_is_ended(tmp_path):
    assert TrialProcesses().run([sys.executable, "-c", "input()"], tmp_path / "log", 0.0) == -15


def test_reports_are_heard_when_their_trials_have_ended(tmp_path):
    heard = []
    run_side_by_side(lambda number: number * number, range(5), 2, TrialProcesses(), heard.append)
    assert sorted(heard) == [0, 1, 4, 9, 16]
