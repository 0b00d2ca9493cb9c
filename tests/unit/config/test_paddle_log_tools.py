"""What reads the log: curves over the passes, and the duration of a job."""

import math
import sys

import pytest

from paddle.command import main
from paddle.utils import plotcurve
from paddle.utils.plotcurve import read_curves

LOG = """I0406 21:26:20.325584  3832 Util.cpp:166] commandline: paddle train
I0406 21:26:21.325584  3832 TrainerInternal.cpp:165]  Batch=100 samples=100 AvgCost=0.9 CurrentCost=0.9 Eval: error=0.5
.I0406 21:26:21.325584  3832 TrainerInternal.cpp:181]  Pass=0 Batch=150 samples=150 AvgCost=0.8 Eval: error=0.4
I0406 21:26:22.325584  3832 Tester.cpp:115]  Test samples=50 cost=0.7 Eval: error=0.3
I0406 21:26:22.325584  3832 Tester.cpp:115]  Test samples=50 cost=0.1 Eval: error=0.1
.I0406 23:59:59.325584  3832 TrainerInternal.cpp:181]  Pass=1 Batch=150 samples=150 AvgCost=6e-05 Eval: error=0.2
I0407 00:00:09.325584  3832 Tester.cpp:115]  Test samples=50 cost=0.6 Eval: error=nan
"""


def test_average_cost_has_no_test_curve():
    assert read_curves(LOG.splitlines(), ["AvgCost"]) == ([[0, 0.8], [1, 6e-5]], [])


def test_an_evaluator_has_both_and_a_test_belongs_to_the_pass_before_it():
    train, test = read_curves(LOG.splitlines(), ["error"])
    assert train == [[0, 0.4], [1, 0.2]]
    assert test[0] == [0, 0.3]
    assert test[1][0] == 1 and math.isnan(test[1][1])


def test_keys_are_fragments_in_the_order_of_the_line():
    assert read_curves(LOG.splitlines(), ["Avg.ost", "error"]).train == [[0, 0.8, 0.4], [1, 6e-5, 0.2]]
    assert read_curves(LOG.splitlines(), ["error", "AvgCost"]) == ([], [])


def test_nothing_to_plot_leaves_an_empty_file(tmp_path, capsys):
    (tmp_path / "log").write_text("nothing here\n")
    assert main(["plotcurve", "-i", str(tmp_path / "log"), "-o", str(tmp_path / "a.png")]) == 0
    assert capsys.readouterr().err == "No data to plot. Exiting!\n"
    assert (tmp_path / "a.png").read_bytes() == b""


def test_without_matplotlib_it_is_said_how_to_get_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    (tmp_path / "log").write_text(LOG)
    assert main(["plotcurve", "-i", str(tmp_path / "log"), "-o", str(tmp_path / "a.png")]) == 78
    assert "pip install matplotlib" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "start"),
    [(["-o", "a.png"], b"\x89PNG"), (["-o", "a.pdf"], b"%PDF"), (["--format", "svg", "-o", "a.png"], b"<?xml")],
)
def test_a_picture_is_drawn_in_the_format_asked_for(tmp_path, monkeypatch, options, start):
    pytest.importorskip("matplotlib", reason="matplotlib is an optional extra")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").write_text(LOG)
    assert plotcurve.main(["-i", "log", *options, "AvgCost", "error"]) == 0
    assert (tmp_path / options[-1]).read_bytes().startswith(start)


def test_a_log_that_is_not_there_is_a_missing_input(capsys):
    for command in (["plotcurve", "-i", "nowhere"], ["usage", "-l", "nowhere"]):
        assert main(command) == 66
        assert f"paddle {command[0]}: the log nowhere cannot be read: No such file" in capsys.readouterr().err


def test_usage_shows_the_job_and_sends_nothing(tmp_path, capsys):
    (tmp_path / "log").write_text(LOG)
    assert main(["usage", "-e", "0", "--task-name=demo", "-l", str(tmp_path / "log"), "-v"]) == 0
    assert capsys.readouterr().out == "task: demo\nexit code: 0\nduration: 9229 s\nNothing is sent to anyone.\n"
    assert main(["usage"]) == 0
    assert capsys.readouterr().out == "Nothing is sent to anyone.\n"
