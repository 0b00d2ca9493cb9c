"""Every command of README and docs/ that needs no cluster, page by page, as it stands there."""

import fcntl
import json
import os
import re
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from docpages.blocks import ROOT, blocks_of, has_commands, script
from docpages.project import copy_project, preparation, programs_in, run_script, state_of

ALL_PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
PAGES = [path for path in ALL_PAGES if has_commands(blocks_of(path), "machine")]
SMALL = {"docs/examples.md": {"SYNTHETIC_ROWS": "150"}}  # made-up data; the rest of what the pages do is small anyway


def check_readme(_: Path, output: str) -> None:
    """README.md: `make demo-tasks` has its events, and a table of tasks in which no sample is missing."""
    assert float(re.findall(r"test error (\S+) %", output)[-1]) < 6
    rows = re.findall(r"^ +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)$", output, re.MULTILINE)
    assert {row[1] for row in rows} == {"72"}, "all tasks of every pass"
    assert {row[4] for row in rows} == {"1438"}, "all samples of every pass"
    assert any(int(row[3]) for row in rows), "a frozen and a killed trainer's tasks are repeated"
    for what in ("3 trainers", "kill -9 of the master", "kill -9 of a parameter server", "2 trainers"):
        assert f"done: {what}" in output


def check_predictions(home: Path, _: str) -> None:
    """docs/your-own-job.md: the network has learnt, and predicts a class and two probabilities a sample."""
    log = (home / "weather/train.log").read_text()
    assert float(re.findall(r"classification_error_evaluator=(\S+)", log)[-1]) < 0.1
    lines = (home / "weather/rank-00000").read_text().splitlines()
    assert len(lines) == 100
    assert all(re.fullmatch(r"[01];\S+ \S+;", line) for line in lines)


def check_any_table(home: Path, output: str) -> None:
    """docs/any-table.md: the network predicts numbers, classes, and rows without label and ids."""
    head, *rows = (home / "houses/predictions.csv").read_text().splitlines()
    assert (head, len(rows)) == ("id,rooms,area,city,price,predicted", 100)
    error, alone = re.findall(r"RMSE (\S+); the mean of the training alone has (\S+)", output)[0]
    assert float(error) < 0.3 * float(alone)
    assert float(re.findall(r"rows: (\S+)% right", output)[0]) > 90
    large, small = (int(line.split(",")[-1]) for line in output.splitlines()[-2:])
    assert large > 2 * small


def check_own_texts(_: Path, output: str) -> None:
    """docs/own-texts.md: classes have their names in predictions and measures, alone and with three pods."""
    assert "delivery\tmy parcel is late\nlogin\tthe password please\npraise\tit is great\n" in output
    recalls = [float(number) for number in re.findall(r"sales\.recall ([0-9.]+)", output)]
    assert len(recalls) >= 2
    assert min(recalls) > 0.5


def check_own_images(home: Path, output: str) -> None:
    """docs/own-images.md: classes have their names in predictions and measures, alone and with three pods."""
    assert "100 images in folders of classes: " in output
    assert float(re.findall(r"folders of classes: (\S+)% right", output)[0]) > 90
    head, *rows = (home / "shapes/predictions.csv").read_text().splitlines()
    assert (head, len(rows)) == ("image,predicted,probability", 100)
    assert len(re.findall(r"triangle\.recall ([0-9.]+)", output)) >= 2


def check_resumed(_: Path, output: str) -> None:
    """docs/resume.md: the job goes on with state and parameters of the job before it, in its directory."""
    assert "going on from state/pass-00009 of an earlier Job" in output
    assert "only the parameters" not in output
    assert "moves to" not in output


def check_elastic(_: Path, output: str) -> None:
    assert "job job: done, all 10 passes, and the model is saved" in output


def check_serve(_: Path, output: str) -> None:
    """docs/serve.md: the service answers a sample and a list of samples, and ends."""
    one, two = (json.loads(line) for line in output.splitlines() if line.startswith('{"code"'))
    assert one["code"] == two["code"] == 0
    assert abs(one["data"][0][0] - 0.375) < 0.1
    assert [round(rows[0][0]) for rows in two["data"]] == [0, 1]
    assert "\nok\n" in output


CHECKS: dict[str, Callable[[Path, str], None]] = {
    "README.md": check_readme,
    "docs/any-table.md": check_any_table,
    "docs/tasks.md": check_elastic,
    "docs/your-own-job.md": check_predictions,
    "docs/own-images.md": check_own_images,
    "docs/own-texts.md": check_own_texts,
    "docs/resume.md": check_resumed,
    "docs/serve.md": check_serve,
}
# what the commands for PyTorch write
TORCH_OUTPUT = {
    "README.md": r"^\[0\]<stdout>:epoch \d+: 2 workers, ",
    "docs/worker-script.md": r"^\[0\]<stdout>:epoch \d+: 2 workers, ",
    "docs/export.md": r"^chances tensor\(\[\[",
}


def test_the_pages_that_are_checked_are_there() -> None:
    assert {str(path.relative_to(ROOT)) for path in PAGES} >= {*CHECKS, *SMALL}


@pytest.fixture(scope="session")
def make_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, bool], Path]:
    """Makes a project, in which the digits job has run if so wanted; both are made once, for all workers of pytest."""
    own = tmp_path_factory.getbasetemp()
    made = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "projects"
    made.mkdir(exist_ok=True)

    def make(target: Path, has_digits: bool) -> Path:
        kind = "digits" if has_digits else "fresh"
        with (made / f"{kind}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (made / f"{kind}.done").exists():
                project = copy_project(made / kind)
                if has_digits:
                    run_script(preparation("digits"), project, {})
                (made / f"{kind}.done").touch()
        # not by shutil, which takes half a second of processor time
        subprocess.run(["cp", "-a", made / kind, target], check=True)
        return target

    return make


@pytest.mark.timeout(400)  # a page trains several times; some machines are busy
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_commands_of_the_page_work(page: Path, tmp_path: Path, make_project: Callable[[Path, bool], Path]) -> None:
    name, state = str(page.relative_to(ROOT)), state_of(page.read_text(encoding="utf-8"))
    project = make_project(tmp_path / "project", state == "digits")
    before = preparation(state) if state != "digits" else ""
    output = run_script(before + script(blocks_of(page), "machine"), project, SMALL.get(name, {}))
    assert programs_in(project) == [], "the commands of the page leave programs behind"
    if name in CHECKS:
        CHECKS[name](tmp_path / "project-home", output)


@pytest.mark.skipif(find_spec("torch") is None, reason="paddle.elastic.torch is an extra (make test installs torch)")
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "page", [path for path in ALL_PAGES if has_commands(blocks_of(path), "torch")], ids=lambda path: path.name
)
def test_the_commands_for_pytorch_work(page: Path, tmp_path: Path, make_project: Callable[[Path, bool], Path]) -> None:
    name, state = str(page.relative_to(ROOT)), state_of(page.read_text(encoding="utf-8"))
    project = make_project(tmp_path / "project", False)
    output = run_script(preparation(state) + script(blocks_of(page), "torch"), project, {})
    assert programs_in(project) == [], "the commands of the page leave programs behind"
    assert re.search(TORCH_OUTPUT[name], output, re.MULTILINE), output
