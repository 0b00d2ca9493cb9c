"""No trial outlives the run that has started it, whether that is interrupted or killed."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from chaos.plan import Trial
from chaos.processes import StoppedError, TrialProcesses, run_and_show, run_side_by_side
from chaos.trial import Report, read_report
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


def test_a_trial_has_a_folder_with_its_spec_and_says_why_there_is_no_report(tmp_path, monkeypatch):
    (tmp_path / "small_trial.py").write_text(
        "import json, pathlib, sys\nspec = json.loads(pathlib.Path(sys.argv[1]).read_text())\n"
        "(pathlib.Path(spec['directory']) / 'result.json').write_text(json.dumps(spec))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    folder, processes = tmp_path / "one", TrialProcesses()
    spec = {"trial": {"name": "1-000"}, "faults": []}
    assert processes.run_trial("small_trial", folder, spec, ["env"], 60.0) == ""
    assert read_report(folder) == Report(Trial("1-000"), str(folder))
    why = processes.run_trial("no_such_trial", folder, spec, (), 60.0)
    assert why == f"the trial's process ended with 1; see {folder}/trial.log" and not (folder / "result.json").exists()


@pytest.mark.parametrize(("faults", "status"), [([], 0), (["it hangs"], 1)])
def test_a_directory_is_kept_if_a_trial_failed(tmp_path, monkeypatch, capsys, faults, status):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    report = Report(Trial("1-000"), "x", faults=faults)
    assert run_and_show(None, 7, lambda _, reports: reports.append(report), lambda reports: "a table") == status
    said = capsys.readouterr()
    assert said.out.startswith(f"\na table\n\n{1 - status} of 1 trials passed in ")
    assert len(list(tmp_path.iterdir())) == said.err.count("failed: 1-000 of seed 7; their logs: ") == status
