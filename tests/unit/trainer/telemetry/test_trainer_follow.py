"""`paddle follow`: what a program prints as `Pass=0 Batch=10 AvgCost=0.5` is reported as the progress of a trainer."""

import io
import json
import math

import pytest
from each import each

from paddle_cluster.launcher.status import describe_job
from trainer.records.records import read_records
from trainer.telemetry import follow
from trainer.telemetry.follow import LONGEST, Line, main, parse_line, read_lines


@pytest.fixture
def report(tmp_path, monkeypatch):
    """A function that reports lines, and returns the directory of trainer 0."""

    def report(text, *flags, attempt="1-abc"):
        monkeypatch.setenv("PADDLE_OUTPUT", str(tmp_path))
        monkeypatch.setenv("PADDLE_ATTEMPT", attempt)
        monkeypatch.setattr(follow.sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main([str(tmp_path), *flags]) == 0
        return tmp_path

    return report


def places(output, kind):
    return [(one["pass"], one["batch"], one["cost"]) for one in read_records(output) if one["kind"] == kind]


def test_the_lines_of_a_program_are_its_progress(report):
    """`paddle status` said that the program of ENTRY reports no progress, whatever it printed."""
    lines = [
        "Pass=0 Batch=1 AvgCost=0.5 samples=32 Passes=2 accuracy=0.25",
        "epoch done",
        "Pass=0 Batch=2 AvgCost=0.25",
    ]
    output = report("\n".join([*lines, "Pass=1, Batch=1, AvgCost=0.125, samples=32, Passes=2", "Exit=0", ""]))
    assert places(output, "batch") == [(0, 1, 0.5), (0, 2, 0.25), (1, 1, 0.125)]
    assert places(output, "pass") == [(0, 2, 0.25), (1, 1, 0.125)]
    told = describe_job(output)[0]
    assert told.startswith("finished: pass 1 of passes 0 to 1, batch 1, 100% of the pass, 100% of the job")
    assert ", cost 0.125, said" in told
    records = read_records(output)
    assert records[1]["evaluators"] == {"accuracy": 0.25} and records[0]["trainers"] == 1
    page = (output / "report.html").read_text()
    assert "0.125" in page and "0.25" in page


def test_another_trainer_writes_its_own_progress_alone(report):
    output = report("Pass=0 Batch=1 AvgCost=0.5\n", "--trainer_id=1", "--trainers=2")
    assert json.loads((output / "node_1/progress.json").read_text())["batch"] == 1
    assert [path.name for path in output.iterdir()] == ["node_1"]


@pytest.mark.parametrize(
    ("end", "status"), [("Exit=0", "finished"), ("Exit=3", "failed"), ("Exit=143", "stopped"), ("", "finished")]
)
def test_the_end_of_the_program_is_told(report, end, status):
    output = report(f"Pass=0 Batch=1 AvgCost=0.5\n{end}\n")
    assert json.loads((output / "progress.json").read_text())["status"] == status
    assert bool(places(output, "pass")) == (status == "finished")


def test_a_program_that_reports_itself_is_left_alone(report, tmp_path):
    """A program of paddle.v2 writes more than its lines say, and may print such lines, too."""
    (tmp_path / "node_0").mkdir()
    own = json.dumps({"attempt": "2-abc", "batch": 7})
    (tmp_path / "node_0/progress.json").write_text(own)
    report("Pass=0 Batch=1 AvgCost=0.5\n", attempt="2-abc")
    assert (tmp_path / "node_0/progress.json").read_text() == own and len([*tmp_path.iterdir()]) == 1
    report("Pass=0 Batch=1 AvgCost=0.5\n", attempt="3-abc")
    assert json.loads((tmp_path / "node_0/progress.json").read_text())["attempt"] == "3-abc"


def test_a_program_without_such_lines_leaves_nothing(report, tmp_path):
    report("epoch 1 loss 0.5\nAvgCost=0.5\n")
    assert not [*tmp_path.iterdir()]


@each(
    "text, expected",
    [
        ("Pass=0 Batch=10", Line(0, 10, math.nan, 0, 0, {})),
        ("Pass=3 Batch=1 AvgCost=-1e-3 a.b=.5 c=7", Line(3, 1, -0.001, 0, 0, {"a.b": ".5", "c": "7"})),
        ("Pass=0 Batch=1 AvgCost=0.5 samples=12,Passes=4;err=nan", Line(0, 1, 0.5, 12, 4, {"err": "nan"})),
        ("Pass=0 Batch=1 AvgCost=1.2.3 samples=-4 Passes=1e3", Line(0, 1, math.nan, 0, 0, {})),
        (
            "Pass=0 Batch=1 " + " ".join(f"m{n}=1" for n in range(99)),
            Line(0, 1, math.nan, 0, 0, {f"m{n}": "1" for n in range(16)}),
        ),
        ("Pass=0 Batch=1 x=<script> __import__('os')=1 y=1\x00", Line(0, 1, math.nan, 0, 0, {})),
        (" Pass=0 Batch=1", None),
        ("Pass=0", None),
        ("Pass=1234567890 Batch=1", None),
        ("Pass=0 Batch=1.5", None),
        ("Pass=0 Batch=1x", None),
        ("Pass=-1 Batch=1", None),
        ("Pass=٣ Batch=1", None),
    ],
)
def test_a_line_is_read_within_bounds(text, expected):
    assert repr(parse_line(text)) == repr(expected)  # nan is equal to nothing


def test_a_long_line_is_skipped_as_a_whole():
    """Its rest must not count as a line of its own."""
    tail = "Pass=0 Batch=9"
    long = [b"x" * LONGEST + tail.encode(), b"x" * (2 * LONGEST), b"y" * (LONGEST - 1)]
    found = list(read_lines(io.BytesIO(b"\n".join([b"a", *long, b"b\r", b"c"]))))
    assert found == ["a", "y" * (LONGEST - 1), "b", "c"]


def test_numbers_that_go_back_do_no_harm(report):
    lines = ["Pass=5 Batch=9 samples=90 AvgCost=1", "Pass=5 Batch=3 samples=30 AvgCost=1", "Pass=2 Batch=1 AvgCost=nan"]
    output = report("\n".join(lines))
    assert json.loads((output / "progress.json").read_text())["pass"] == 2
    assert (output / "report.html").exists()


def test_a_rank_outside_the_job_is_refused(tmp_path, capsys):
    assert main([str(tmp_path), "--trainer_id=3", "--trainers=3"]) == 64
    assert "--trainer_id=3: expected a rank below --trainers=3" in capsys.readouterr().err
