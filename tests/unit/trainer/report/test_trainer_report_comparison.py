"""Two runs on one page, the mark at the best pass, and what the smoothing works on."""

import json
import re
from pathlib import Path

import pytest
from each import each
from report_jobs import EVALUATOR, LAYERS, Job, failed_job, finished_job, local_run, unborn_job
from test_trainer_report_page import HOSTILE, Page, page_of

from paddle.command import main
from trainer.report.best import find_best
from trainer.report.charts.curves import trace_costs
from trainer.report.comparison import list_differences, merge, name_runs
from trainer.report.facts import Reader

METHOD = {"learning_method": "momentum", "learning_rate": 0.001, "batch_size": 32}


def facts_of(output):
    return Reader(output).read()


def compare(one, other, *options):
    assert main(["report", str(one), str(other), *map(str, options)]) == 0
    return Page((one / "comparison.html").read_text(encoding="utf-8"))


def two_runs(folder):
    """A run of ten passes, and one of five with another rate."""
    finished_job(folder / "slow" / "output")
    job = Job(folder / "quick" / "output", trainers=1, passes=5)
    job.start(
        flags={"config": "trainer_config.py", "num_passes": "5", "use_gpu": False},
        method={**METHOD, "learning_rate": 0.01},
        layers=[*LAYERS[:-1], {**LAYERS[-1], "type": "square_error"}],
    )
    for number in range(5):
        job.run_pass(number)
    job.record("end", status=0, message="")
    return folder / "slow" / "output", folder / "quick" / "output"


# ----- The best pass


def run_of(tmp_path, costs, tests=()):
    job = Job(tmp_path).start()
    for number, cost in enumerate(costs):
        place = {"pass": number, "batch": 9, "samples": 9}
        job.record("pass", **place, cost=cost, evaluators={EVALUATOR: 0.5}, seconds=1.0, usage={})
        if number < len(tests):
            job.record("test", **place, cost=tests[number], evaluators={EVALUATOR: 0.5})
    return job


@each(
    ("costs", "tests", "best"),
    [
        ((3.0, 1.0, 2.0), (), (1, 1.0, False)),
        ((3.0, 2.0, 1.0), (0.5, 0.4, 0.6), (1, 0.4, True)),
        ((1.0, 1.0), (), (0, 1.0, False)),
        ((1.0, None, 0.5), (), (2, 0.5, False)),
        ((1.0, 0.5, 0.1), (0.9, 0.8), (1, 0.8, True)),
        ((1.0,), (), None),
        ((), (), None),
        ((None, None), (), None),
    ],
    ids=["own cost", "test", "the first of equal ones", "not finite", "last not tested", "one", "none", "no number"],
)
def test_the_best_pass_has_the_lowest_cost_of_its_test_or_else_its_own(tmp_path, costs, tests, best):
    run_of(tmp_path, costs, tests)
    assert find_best(facts_of(tmp_path).history) == best


def test_the_best_pass_is_marked_in_every_chart_and_in_the_table(tmp_path):
    run_of(tmp_path, (3.0, 2.0, 1.0, 1.5), (0.5, 0.4, 0.6, 0.7))
    text = "best is pass 1, with the lowest test cost: 0.4"
    page = page_of(tmp_path)
    html = (tmp_path / "report.html").read_text()
    assert page.words.count(text) == 2  # cost and evaluator
    assert f"B{text[1:]}." in page.words
    assert html.count('class="best"') == 2
    left = re.search(r'd="M(\S+) 0V500" class="best"', html)[1]  # two of four passes are done
    assert float(left) == pytest.approx(1000 * (2 - 1) / (4 - 1), abs=0.1)
    assert re.search(r'<tr class="marked"><th scope="row">1</th>', html)
    assert html.count('class="marked"') == 1
    assert html.count('class="ring test"') == 2


def test_a_run_without_a_best_pass_has_no_mark(tmp_path):
    Job(tmp_path).start().run_pass(0)
    page_of(tmp_path)
    assert 'class="best"' not in (tmp_path / "report.html").read_text()


# ----- Smoothing


def test_no_smoothing_is_the_choice_at_first_and_without_script_there_is_none(tmp_path):
    local_run(tmp_path)
    page_of(tmp_path)
    html = (tmp_path / "report.html").read_text()
    assert '<label class="smoothing" hidden>' in html
    assert re.findall(r'<option value="(\S+)"( selected)?>', html)[0] == ("0", " selected")


def test_the_data_of_a_chart_say_where_its_pieces_end(tmp_path):
    """A smoothed line is as much in pieces as the line."""
    failed_job(tmp_path)
    page_of(tmp_path)
    found = re.findall(r'class="data">(.*?)</script>', (tmp_path / "report.html").read_text())
    series = [one for chart in found for one in json.loads(chart)]
    noisy = [one for one in series if one["pieces"]]
    assert {one["name"] for one in noisy} == {"batches", "between lines of the log"}
    assert all(sum(one["pieces"]) == len(one["points"]) for one in noisy)
    assert max(len(one["pieces"]) for one in noisy) == 3  # attempts


# ----- Two runs


def test_two_runs_have_one_page_with_the_curves_of_both(tmp_path):
    one, other = two_runs(tmp_path)
    page = compare(one, other)
    assert "slow and quick" in page.words
    for run in ("slow", "quick"):
        counts = {kind: page.words.count(f"{run}: {kind} ") for kind in ("batches", "pass", "test")}
        assert counts == {"batches": 2, "pass": 3, "test": 2}  # cost, evaluator and throughput
    rows = {row[0]: row[1:] for row in page.rows}
    assert rows["state"] == ["finished", "finished"]
    assert rows["passes done"] == ["10 of 10", "5 of 5"]
    assert rows["cost, last"] == [f"{2.41234567 / 10.5:g}, of trainer 0's 1437 samples", f"{2.41234567 / 5.5:g}"]
    assert rows["best pass"] == [f"9, with {2.6 / 10.5:g}", f"4, with {2.6 / 5.5:g}"]


def test_only_what_differs_in_the_configurations_is_listed(tmp_path):
    one, other = two_runs(tmp_path)
    assert list_differences([facts_of(output).history.start for output in (one, other)]) == [
        ["trainers", "3", "1"],
        ["--log_period", "5", "–"],
        ["--num_passes", "10", "5"],
        ["learning_rate", "0.001", "0.01"],
        [
            "layer __cost_0__",
            "multi-class-cross-entropy, 1, __fc_layer_1__ label",
            "square_error, 1, __fc_layer_1__ label",
        ],
        ["--use_gpu", "–", "false"],
    ]
    page = compare(one, other)
    assert ["learning_rate", "0.001", "0.01"] in page.rows
    assert not any(row[0] in ("batch_size", "--config", "layers") for row in page.rows)


def test_equal_configurations_are_said_to_be(tmp_path):
    for name in ("a", "b"):
        finished_job(tmp_path / name)
    assert "No difference is recorded: flags, settings, layers and parameters are equal." in (
        compare(tmp_path / "a", tmp_path / "b").words
    )


def test_the_page_links_to_the_reports_of_both_where_there_are_some(tmp_path):
    one, other = two_runs(tmp_path)
    assert main(["report", str(one)]) == 0
    page = compare(one, other)
    assert page.links == ["report.html"]
    assert str(other) in page.words
    assert main(["report", str(one), str(other), "-o", str(tmp_path / "both.html")]) == 0
    assert Page((tmp_path / "both.html").read_text()).links == ["slow/output/report.html"]


@pytest.mark.parametrize(
    ("outputs", "names"),
    [
        (("/v/a/output", "/v/b/output"), ["a", "b"]),
        (("/v/run", "/w/run"), ["v", "w"]),
        (("/v/model", "/v/model-2"), ["model", "model-2"]),
        (("/v/a", "/v/a"), ["a (first)", "a (second)"]),
        (("/v/job/output", "/v/job/output/run-1"), ["output", "run-1"]),
    ],
)
def test_runs_are_named_by_what_tells_them_apart(outputs, names):
    assert name_runs([Path(output) for output in outputs]) == names


def test_an_evaluator_that_only_one_run_has_is_drawn_alone(tmp_path):
    one, other = two_runs(tmp_path)
    charts = [trace_costs(facts_of(output)) for output in (one, other)]
    merged = merge([charts[0], charts[1][:1]], ["slow", "quick"])
    assert [len(chart.series) for chart in merged] == [6, 3]
    styles = [series.style for series in merged[0].series]
    assert styles == ["window a", "window b", "pass a", "test a", "pass b", "test b"]


@pytest.mark.parametrize("make", [unborn_job, local_run, failed_job])
def test_a_run_in_any_state_can_be_compared(tmp_path, make):
    finished_job(tmp_path / "a")
    make(tmp_path / "b")
    compare(tmp_path / "a", tmp_path / "b")


def test_hostile_names_stay_text_in_a_comparison(tmp_path):
    for name, other in (("a", "x"), ("b", "y")):
        job = Job(tmp_path / name)
        job.start(
            flags={HOSTILE: HOSTILE + other},
            method={HOSTILE: [HOSTILE, other]},
            layers=[{"name": HOSTILE, "type": HOSTILE + other}],
            config=HOSTILE + other,
        )
        numbers = {"cost": 1.0, "evaluators": {HOSTILE: 0.5} if name == "a" else HOSTILE, "samples": 3}
        job.record("pass", **{"pass": 0, "batch": 3}, **numbers, seconds=1.0, usage={})
    page = compare(tmp_path / "a", tmp_path / "b")
    assert page.tags.count("script") == 1 + sum(one.startswith("chart-") for one in page.ids)
    assert "img" not in page.tags


def test_a_run_without_records_cannot_be_compared(tmp_path, capsys):
    finished_job(tmp_path / "a")
    (tmp_path / "b").mkdir()
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert f"there are no records in {tmp_path / 'b'}" in capsys.readouterr().err
    assert not (tmp_path / "a" / "comparison.html").exists()
