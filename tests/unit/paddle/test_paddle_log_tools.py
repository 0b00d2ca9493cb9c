"""What reads the log: curves over the passes, and the duration of a job."""

import errno
import itertools
import json
import math
import os
import sys

import pytest

from paddle.command import main
from paddle.utils import log_lines, plotcurve, usage
from paddle.utils.plotcurve import read_curves
from paddle.utils.tensorboard import list_scalars
from paddle_base.runtime.errors import VolumeError
from trainer.records.records import read_records

LOG = """I0406 21:26:20.325584  3832 Util.cpp:166] commandline: paddle train
I0406 21:26:21.325584  3832 TrainerInternal.cpp:165]  Batch=100 samples=100 AvgCost=0.9 CurrentCost=0.9 Eval: error=0.5
.I0406 21:26:21.325584  3832 TrainerInternal.cpp:181]  Pass=0 Batch=150 samples=150 AvgCost=0.8 Eval: error=0.4
I0406 21:26:22.325584  3832 Tester.cpp:115]  Test samples=50 cost=0.7 Eval: error=0.3
I0406 21:26:22.325584  3832 Tester.cpp:115]  Test samples=50 cost=0.1 Eval: error=0.1
.I0406 23:59:59.325584  3832 TrainerInternal.cpp:181]  Pass=1 Batch=150 samples=150 AvgCost=6e-05 Eval: error=0.2
I0407 00:00:09.325584  3832 Tester.cpp:115]  Test samples=50 cost=0.6 Eval: error=nan
"""


def test_the_cost_of_the_tests_is_drawn_with_that_of_the_passes():
    assert read_curves(LOG.splitlines(), ["AvgCost"]) == ([[0, 0.8], [1, 6e-5]], [[0, 0.7], [1, 0.6]])


def test_an_evaluator_has_both_and_a_test_belongs_to_the_pass_before_it():
    train, test = read_curves(LOG.splitlines(), ["error"])
    assert train == [[0, 0.4], [1, 0.2]]
    assert test[0] == [0, 0.3]
    assert test[1][0] == 1 and math.isnan(test[1][1])


def test_keys_are_fragments_in_any_order():
    assert read_curves(LOG.splitlines(), ["Avg.ost", "rror"]).train == [[0, 0.8, 0.4], [1, 6e-5, 0.2]]
    assert read_curves(LOG.splitlines(), ["error", "AvgCost"]).train == [[0, 0.4, 0.8], [1, 0.2, 6e-5]]


@pytest.mark.parametrize("keys", [["accuracy"], ["AvgCost", "accuracy"], ["accuracy", "loss"], ["Batc"]], ids=" ".join)
def test_a_key_that_is_not_there_is_named_with_those_that_are_and_nothing_is_written(tmp_path, capsys, keys):
    (tmp_path / "log").write_text(LOG)
    assert main(["plotcurve", "-i", str(tmp_path / "log"), "-o", str(tmp_path / "a.png"), *keys]) == 1
    missing = ", ".join(key for key in keys if key != "AvgCost")
    said = f"paddle plotcurve: {tmp_path}/log has no {missing}; it has AvgCost, error, cost\n"
    assert capsys.readouterr() == ("", said)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_picture_without_a_directory_is_refused_before_the_log_is_read(tmp_path, capsys):
    """The log may come from a training, which took hours before the line."""
    target = f"{tmp_path}/no/a.png"
    assert main(["plotcurve", "-i", "/no/such/log", "-o", target]) == 74
    assert f"cannot be written to {target}: there is no directory {tmp_path}/no" in capsys.readouterr().err


def test_a_log_without_a_pass_leaves_no_file(tmp_path, capsys):
    (tmp_path / "log").write_text("nothing here\n")
    for target in (["-o", str(tmp_path / "a.png")], []):
        assert main(["plotcurve", "-i", str(tmp_path / "log"), *target]) == 1
        out, err = capsys.readouterr()
        assert (out, "has no line of a pass" in err) == ("", True)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("before", [None, b"earlier"])
def test_a_picture_that_does_not_fit_on_the_volume_leaves_what_was_there(tmp_path, monkeypatch, before):
    """An earlier picture was empty afterwards."""
    if before:
        (tmp_path / "a.png").write_bytes(before)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(VolumeError, match=r"the picture: cannot write .*a\.png: No space left on device; make room"):
        plotcurve.write(str(tmp_path / "a.png"), b"picture")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == ([before] if before else [])


def drawn(curves, keys):
    """The axes of a picture."""
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is an optional extra")
    pyplot.switch_backend("Agg")
    figure, axes = pyplot.subplots()
    plotcurve.fill(axes, curves, keys)
    figure.canvas.draw()
    pyplot.close(figure)
    return axes


def test_a_picture_has_titles_a_test_curve_of_the_cost_and_every_point():
    axes = drawn(read_curves(LOG.splitlines(), ["AvgCost"]), ["AvgCost"])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("pass", "AvgCost")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["AvgCost", "Test cost"]
    assert [list(line.get_ydata()) for line in axes.lines] == [[0.8, 6e-5], [0.7, 0.6]]


@pytest.mark.parametrize("passes", [1, 2, 3, 5, 10, 37, 1000])
def test_the_ticks_of_the_passes_are_whole(passes):
    axes = drawn(plotcurve.PassCurves([[float(number), 0.5] for number in range(passes)], []), ["AvgCost"])
    low, high = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert ticks and all(tick == int(tick) for tick in ticks)


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 25, 40])
def test_the_colours_of_all_curves_differ(count):
    colours = plotcurve.choose_colours(count)
    distances = [math.dist(one, other) for one, other in itertools.combinations(colours, 2)]
    assert len(colours) == count
    assert min(distances, default=1) > 0.05


def test_twelve_curves_are_drawn_in_twelve_colours():
    keys = [f"measure{number}" for number in range(6)]
    rows = [[float(number), *map(float, range(6))] for number in range(3)]
    axes = drawn(plotcurve.PassCurves(rows, rows), keys)
    assert len({line.get_color() for line in axes.lines}) == 12


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


# ----- Records in place of a log


def record(kind, number, batch, cost, error, time=1000.0):
    window = {"window_cost": cost / 2, "window_evaluators": {"error": error}} if kind == "batch" else {}
    numbers = {"samples": 4 * batch, "cost": cost, "evaluators": {"error": error}, **window}
    return {"kind": kind, "time": time, "attempt": "", "pass": number, "batch": batch, **numbers}


RECORDS = [
    {"kind": "start", "time": 999.0, "attempt": "1.a", "pass": 0, "batch": 0, "flags": {}},
    record("batch", 0, 5, 0.9, 0.5),
    record("pass", 0, 10, 0.8, 0.4, 1001.5),
    record("test", 0, 10, 0.7, 0.3),
    record("pass", 1, 10, 0.75, 0.35),
    {"kind": "start", "time": 1002.0, "attempt": "2.b", "pass": 1, "batch": 0, "flags": {}},
    record("batch", 1, 5, 0.5, None, 1003.0),
    record("pass", 1, 10, 6e-05, 0.2),
    {
        "kind": "test",
        "time": 1004.0,
        "attempt": "2.b",
        "pass": 1,
        "batch": 10,
        "cost": None,
        "evaluators": {"error": 0.1},
    },
    {"kind": "end", "time": 1005.0, "attempt": "2.b", "status": 0, "message": ""},
    {"kind": "news", "time": 1005.0},
]


@pytest.fixture
def output(tmp_path):
    """An output directory whose second attempt has trained pass 1 again, and died in the middle of a line."""
    lines = "".join(json.dumps(one) + "\n" for one in RECORDS)
    (tmp_path / "records.jsonl").write_text(lines + '{"kind": "batch", "pass"')
    return tmp_path


@pytest.mark.parametrize("name", ["", "records.jsonl"])
def test_records_draw_what_their_log_would_without_what_was_undone(output, name):
    lines = plotcurve.read_lines(str(output / name))
    train, test = read_curves(lines, ["AvgCost"])
    assert (train, test[0]) == ([[0, 0.8], [1, 6e-5]], [0, 0.7])
    assert read_curves(lines, ["error"]) == ([[0, 0.4], [1, 0.2]], [[0, 0.3], [1, 0.1]])
    costs = read_curves(lines, ["[Cc]ost", "error"]).test
    assert costs[0] == [0, 0.7, 0.3] and math.isnan(costs[1][1])


def test_records_may_come_from_stdin(output, monkeypatch):
    monkeypatch.setattr(sys, "stdin", (output / "records.jsonl").open())
    with sys.stdin:
        assert read_curves(plotcurve.read_lines(None), ["error"]).train == [[0, 0.4], [1, 0.2]]


@pytest.mark.parametrize("odd", [10**400, "NaN", None, [1]], ids=lambda odd: str(odd)[:5])
def test_a_cost_that_is_no_number_is_no_point(tmp_path, odd):
    whole = json.dumps(record("pass", 0, 10, odd, 0.5)).replace('"NaN"', "NaN")
    (tmp_path / "records.jsonl").write_text(whole)
    assert [one.tag for one in list_scalars(read_records(tmp_path))] == ["error"]
    assert math.isnan(read_curves(plotcurve.read_lines(str(tmp_path)), ["AvgCost"]).train[0][1])


@pytest.mark.parametrize("command", [["status"], ["report"], ["plotcurve", "-i"]])
def test_a_place_that_may_not_be_looked_into_is_said(tmp_path, capsys, monkeypatch, command):
    def refuse(path, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "stat", refuse)
    assert main([*command, str(tmp_path / "closed/output")]) == 66
    assert str(tmp_path) in capsys.readouterr().err


def test_a_directory_without_records_is_said(tmp_path, capsys):
    assert main(["plotcurve", "-i", str(tmp_path)]) == 66
    assert f"the log {tmp_path / 'records.jsonl'} cannot be read" in capsys.readouterr().err


def test_scalars_are_the_records_with_steps_that_count_batches(output):
    found = [tuple(one) for one in list_scalars(read_records(output))]
    assert found == [
        ("batches", "cost", 5, 0.45, 1000.0),
        ("batches", "error", 5, 0.5, 1000.0),
        ("passes", "cost", 10, 0.8, 1001.5),
        ("passes", "error", 10, 0.4, 1001.5),
        ("tests", "cost", 10, 0.7, 1000.0),
        ("tests", "error", 10, 0.3, 1000.0),
        ("batches", "cost", 15, 0.25, 1003.0),
        ("passes", "cost", 20, 6e-05, 1000.0),
        ("passes", "error", 20, 0.2, 1000.0),
        ("tests", "error", 20, 0.1, 1004.0),
    ]


def test_event_files_are_written_anew_each_time(output, capsys):
    for _ in range(2):
        assert main(["tensorboard", str(output)]) == 0
        assert f"10 numbers were written to {output / 'tensorboard'}" in capsys.readouterr().out
        files = sorted(path.relative_to(output / "tensorboard").parts[0] for path in output.glob("tensorboard/*/*"))
        assert files == ["batches", "passes", "tests"]


def test_event_files_of_the_user_stay(output, tmp_path, monkeypatch):
    """All files of the name events.out.tfevents.* were removed from the directory, also before an error."""
    own = tmp_path / "logs" / "tests" / "events.out.tfevents.1.host"
    own.parent.mkdir(parents=True)
    own.write_text("of the user")
    command = ["tensorboard", str(output), f"--logdir={tmp_path / 'logs'}"]
    assert main(command) == 0
    before = sorted(tmp_path.glob("logs/*/*"))
    assert len(before) == 4 and own.read_text() == "of the user"
    monkeypatch.setattr("tensorboardX.SummaryWriter.close", full)
    assert main(command) == 74
    assert sorted(tmp_path.glob("logs/*/*")) == before


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nowhere"], 66, "nowhere has no records.jsonl with a batch, pass or test in it"),
        ([], 64, "the following arguments are required: output"),
        (
            [".", "--logdir=records.jsonl/x"],
            74,
            "the event files cannot be written to records.jsonl/x: Not a directory",
        ),
    ],
)
def test_what_keeps_event_files_from_being_written_is_said(output, monkeypatch, capsys, arguments, status, said):
    monkeypatch.chdir(output)
    assert main(["tensorboard", *arguments]) == status
    assert said in capsys.readouterr().err


def test_without_tensorboardx_it_is_said_how_to_get_it(output, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert main(["tensorboard", str(output)]) == 78
    assert "pip install tensorboardX" in capsys.readouterr().err


PASSES = "\ufeffI0406 21:26:20.3 1 a.cpp:1]  Pass=0 Batch=1 name=\u0085b AvgCost=0.8\nPass=1 Batch=1 AvgCost=0.7\r\n"


@pytest.mark.parametrize("is_stdin", [False, True], ids=["file", "stdin"])
def test_only_a_line_end_divides_lines_and_no_byte_is_a_traceback(tmp_path, monkeypatch, is_stdin):
    """U+0085 divided the line of a pass; bytes from stdin that are not UTF-8 were a traceback."""
    (tmp_path / "log").write_bytes(PASSES.encode() + b"\xff\xfe\n")
    with (tmp_path / "log").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        lines = plotcurve.read_lines(None if is_stdin else str(tmp_path / "log"))
    assert read_curves(lines, ["AvgCost"]).train == [[0, 0.8], [1, 0.7]]


def test_the_duration_counts_from_a_first_line_with_a_byte_order_mark(tmp_path):
    (tmp_path / "log").write_text(PASSES + "x\u0085I0406 21:28:20.3 no line\nI0406 21:26:29.3 1 a.cpp:1] end\n")
    assert usage.measure_log(str(tmp_path / "log")) == 9


@pytest.mark.parametrize("command", [["plotcurve", "-o", "/dev/null", "-i"], ["usage", "-l"]], ids=lambda one: one[0])
def test_a_log_without_end_is_refused(monkeypatch, capsys, command):
    monkeypatch.setattr(log_lines, "MOST_LOG_BYTES", 1 << 20)
    assert main([*command, "/dev/zero"]) == 65
    assert "the log /dev/zero has more than 1 MiB" in capsys.readouterr().err
