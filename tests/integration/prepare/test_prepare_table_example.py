"""examples/table: a table becomes numbers, a network, and predictions beside the rows of a new table."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from each import each

from paddle_cluster.prepare.program import main

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/table"
COLUMNS = [
    {"name": "id", "kind": "number", "mean": 3.0, "std": 1.0, "missing": 0, "skipped": True},
    {"name": "soil pH", "kind": "number", "mean": 6.0, "std": 2.0, "missing": 0},
    {"name": "rain", "kind": "number", "mean": 1.0, "std": 1.0, "missing": 3},
    {"name": "city", "kind": "text", "values": {"Paris": 2, "Berlin": 1}, "missing": 1},
    {"name": "person", "kind": "text", "values": None, "missing": 0},
    {"name": "quality", "kind": "number", "mean": 10.0, "std": 4.0, "missing": 0, "values": {"6": 1, "14": 1}},
]
ABOUT = {"delimiter": ",", "missing_words": ["NA"], "label": "quality", "task": "number", "columns": COLUMNS}
Make = Callable[..., Any]


@pytest.fixture
def make_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a table from columns.json with some other entries."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    module: dict[str, Any] = {}
    exec((EXAMPLE / "table.py").read_text(), module)

    def make(**changes: Any) -> Any:
        (tmp_path / "columns.json").write_text(json.dumps({**ABOUT, **changes}))
        return module["Table"](tmp_path / "columns.json")

    return make


def test_a_row_has_scaled_numbers_marks_of_missing_ones_and_a_number_for_each_word(make_table: Make) -> None:
    table = make_table()
    rows = {
        "whole": ["7", "8", "2", "Berlin", "Ann", "14"],
        "missing": ["8", " ", "NA", "", "", ""],
        "unknown word": ["", "6", "1", "Rome", "Bob", "NA"],
    }
    assert {name: table.encode(row) for name, row in rows.items()} == {
        "whole": [1.0, 1.0, 0.0, 1.0, 0.0],
        "missing": [0.0, 0.0, 1.0, 0.0, 0.0],
        "unknown word": [0.0, 0.0, 0.0, 0.0, 0.0],
    }
    assert table.width == 5


def test_a_label_is_scaled_or_a_class_and_a_prediction_is_its_inverse(make_table: Make) -> None:
    numbers, classes = make_table(), make_table(task="classes")
    assert [numbers.encode_label(label) for label in ("14", "NA", "")] == [[1.0], None, None]
    assert numbers.decode_label(-0.5) == "8"
    assert [classes.encode_label(label) for label in ("14", "6", "NA", "7")] == [0, 1, None, None]
    assert classes.decode_label(1.0) == "6"


FAULTS = {
    "no label": ({"label": None}, "names no label: run prepare with --csv_label=COLUMN"),
    "too many classes": ({"label": "person", "task": "classes"}, "more than 1,000 classes"),
    "nothing to learn from": ({"columns": [COLUMNS[0], COLUMNS[5]]}, "no columns to learn from"),
}


@each("name", FAULTS)
def test_a_columns_json_of_which_nothing_can_be_learnt_is_refused(make_table: Make, name: str) -> None:
    changes, fault = FAULTS[name]
    with pytest.raises(ValueError, match=fault):
        make_table(**changes)


NEW = {
    "all columns in order": "id,soil pH,rain,city,person,quality\n1,6,2,Paris,Ann,\n",
    "no header": "1,6,2,Paris,Ann,\n",
    "another order, and other columns": "city,x,rain,person,soil pH\nParis,9,2,Ann,6\n",
    "byte order mark and blank lines": "\ufeff\ncity,rain,soil pH,person\n\nParis,2,6,Ann\n",
}


@each("name", NEW)
def test_a_new_table_may_have_another_order_and_lack_the_label_and_ids(
    make_table: Make, tmp_path: Path, name: str
) -> None:
    (tmp_path / "new.csv").write_text(NEW[name], encoding="utf-8")
    found = [row for _, row in make_table().read_new(tmp_path / "new.csv") if row is not None]
    assert [row[1:5] for row in found] == [["6", "2", "Paris", "Ann"]]


HEAD = "soil pH,rain,city,person\n"
MISFITS = {
    "a column is missing": ("rain,city,person\n", "line 1: the header has no 'soil pH'; the training had 'soil pH', "),
    "another delimiter": ("6;1;Paris;x;\n", "line 1: the row has 1 instead of 6 columns, with ',' between them"),
    "a short row": (HEAD + "6,1,Paris,a\n6,1,Paris\n", "line 3: the row has 3 instead of 4 columns"),
    "no number": (
        HEAD + "6,1,Paris,a\nwet,1,Paris,a\n",
        "line 3: the column 'soil pH' has 'wet', which is not a number",
    ),
    "inf": (HEAD + "6,inf,Paris,a\n", "line 2: the column 'rain' has 'inf', which is not a number"),
    "after a field of two lines": (HEAD + '6,1,"a\nb",\n6,-,c,\n', "line 4: the column 'rain' has '-'"),
    "a label that is no number": (HEAD.strip() + ",quality\n6,1,Rome,a,good\n", "line 2: the column 'quality' has"),
}


@each("name", MISFITS)
def test_a_new_table_that_does_not_fit_is_told_the_line_and_the_remedy(
    make_table: Make, tmp_path: Path, name: str
) -> None:
    text, fault = MISFITS[name]
    (tmp_path / "new.csv").write_text(text)
    with pytest.raises(ValueError) as caught:
        list(make_table().read_new(tmp_path / "new.csv"))
    assert fault in str(caught.value)


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )


def train(tmp_path: Path, *flags: str) -> tuple[list[list[str]], str]:
    """Prepare and train on a table of numbers and words with missing values; return rows of predictions, and stderr."""
    draw = Random(3)
    lines = ["id,area,city,size,price"]
    for number in range(400):
        area, city = draw.uniform(20, 100), draw.choice(["Oslo", "Rome"])
        shown = draw.choice(["NA", "", "nan"]) if number % 9 == 0 else f"{area:.1f}"
        size = "large" if area > 60 else "small"
        lines.append(f"{number},{shown},{city},{size},{1000 * area + 40000 * (city == 'Oslo'):.0f}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    where = [f"--data_path={tmp_path / 't.csv'}", f"--out_dir={tmp_path / 'job'}", "--split_count=1"]
    assert main(["--data_source=csv", "--train_config_dir=table", "--csv_skip=id", *where, *flags]) == 0
    trained = run(
        *["-m", "paddle", "train", "--config=../table/trainer_config.py", "--num_passes=12", "--save_dir=../output"],
        cwd=tmp_path / "job/0",
    )
    assert trained.returncode == 0, trained.stderr
    (tmp_path / "job/0/data/columns.json").rename(tmp_path / "job/output/columns.json")
    told = run("../table/predict.py", "../output/pass-00011", "data/test.csv", cwd=tmp_path / "job/0")
    assert told.returncode == 0, told.stderr
    return list(csv.reader(told.stdout.splitlines())), told.stderr


def test_a_number_is_predicted_beside_each_row_better_than_by_the_mean(tmp_path: Path) -> None:
    """Before, the page's block ended with KeyError: 'values', or with a TypeError of NoneType."""
    (header, *rows), said = train(tmp_path, "--csv_label=price")
    assert header == ["id", "area", "city", "size", "price", "predicted"]
    assert len(rows) == 40
    words = said.split()
    assert said.startswith("40 rows: RMSE ")
    assert float(words[3].rstrip(";")) < 0.6 * float(words[-1])
    (tmp_path / "new.csv").write_text("city,size,area\nOslo,large,x\n")
    refused = run(tmp_path / "job/table/predict.py", tmp_path / "job/output/pass-00011", "new.csv", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (65, "")
    assert refused.stderr.startswith("new.csv: line 2: the column 'area' has 'x', which is not a number; ")


ARGUMENTS = {
    "no table": (["output/pass-00000", "nosuch.csv"], 66, "there is no file nosuch.csv; correct its name"),
    "the folder of the passes": (["output", "new.csv"], 66, "columns.json is missing; copy data/columns.json of the"),
    "one argument": (["output"], 64, "python predict.py MODEL TABLE > predictions.csv"),
}


@each("name", ARGUMENTS)
def test_wrong_arguments_are_named_with_their_status(tmp_path: Path, name: str) -> None:
    """`predict.py output new.csv` said that new.csv does not exist; all faults had the status 1."""
    arguments, status, message = ARGUMENTS[name]
    (tmp_path / "output").mkdir()
    (tmp_path / "output/columns.json").write_text(json.dumps(ABOUT))
    (tmp_path / "new.csv").write_text("x\n")
    told = run(EXAMPLE / "predict.py", *arguments, cwd=tmp_path)
    assert (told.returncode, told.stdout) == (status, "")
    assert message in told.stderr


def test_a_new_table_of_latin_1_is_read_as_prepare_reads_it(make_table: Make, tmp_path: Path) -> None:
    """It ended with `'utf-8' codec can't decode byte 0xe4`, though prepare had taken such a table."""
    table = make_table(label="quality")
    (tmp_path / "new.csv").write_bytes((HEAD + "6,1,Orl\xe9ans,a\n").encode("latin-1"))
    assert [row[3] for _, row in table.read_new(tmp_path / "new.csv") if row] == ["Orl\xe9ans"]


def test_a_class_is_predicted_by_its_name_with_precision_and_recall_of_each(tmp_path: Path) -> None:
    (header, *rows), said = train(tmp_path, "--csv_label=size")
    assert header[-2:] == ["predicted", "probability"]
    assert sum(row[-2] == row[3] for row in rows) > 0.8 * len(rows)
    assert [line.split(":")[0] for line in said.splitlines()] == ["40 rows", "large", "small"]
    assert "precision" in said
