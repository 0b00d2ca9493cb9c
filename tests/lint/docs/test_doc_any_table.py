"""docs/any-table.md: a new table that does not fit ends with one line, which says what is wrong and where."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from docpages.blocks import ROOT

FILE = re.compile(r"^cat > (\S+) <<'END'\n(.*?)^END$", re.MULTILINE | re.DOTALL)
FILES = dict(FILE.findall((ROOT / "docs/any-table.md").read_text(encoding="utf-8")))
HEADER = "soil pH,rain,city,quality\n"
ORDER = "; give the columns in this order, with ',' between them: soil pH,rain,city,quality (quality may be empty)"
EMPTY = ", which is not a number; leave a field empty if its number is unknown"
COLUMNS = [
    {"name": "soil pH", "kind": "number", "mean": 6.0, "std": 2.0},
    {"name": "rain", "kind": "number", "mean": 0.0, "std": 1.0},
    {"name": "city", "kind": "text", "values": {"Berlin": 2, "Paris": 1}},
    {"name": "quality", "kind": "number", "mean": 0.5, "std": 0.5, "values": {"0": 1, "1": 1}},
]


def write_table(folder: Path, text: str) -> Path:
    """Writes the statistics of a training and a new table; returns the new table."""
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data/columns.json").write_text(json.dumps({"delimiter": ",", "columns": COLUMNS}))
    (folder / "new.csv").write_text(text, encoding="utf-8")
    return folder / "new.csv"


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[list[str]]]:
    """Reads the text of a new table with the page's provider."""
    provider: dict[str, Any] = {}
    exec(FILES["table_provider.py"], provider)
    monkeypatch.chdir(tmp_path)
    return lambda text: list(provider["read_rows"](write_table(tmp_path, text), "quality"))


def test_a_new_table_may_lack_the_header_labels_and_numbers(read: Callable[[str], list[list[str]]]) -> None:
    for name, text in {
        "with a header": HEADER + "6.5,,Berlin,\n",
        "without a header": "6.5,,Berlin,\n",
        "with a byte order mark and a blank line": "\ufeff" + HEADER + "\n6.5,,Berlin,\n",
    }.items():
        assert read(text) == [["6.5", "", "Berlin", ""]], name


FAULTS = {
    "no label": ("soil pH,rain,city\n6,1,Paris\n", "line 1: the header has no 'quality'" + ORDER),
    "another column": ("id," + HEADER, "line 1: the header also has 'id'" + ORDER),
    "other words": ("pH,rain,city,quality\n", "line 1: the header has no 'soil pH'" + ORDER),
    "another order": ("rain,soil pH,city,quality\n", "line 1: the header has the columns in another order" + ORDER),
    "another delimiter": ("6;1;Paris;\n", "line 1: the row has 1 instead of 4 columns" + ORDER),
    "a short row": (HEADER + "6,1,Paris,\n6,1,Paris\n", "line 3: the row has 3 instead of 4 columns" + ORDER),
    "n/a": (HEADER + "6,1,Paris,\nn/a,1,Paris,\n", "line 3: the column 'soil pH' has 'n/a'" + EMPTY),
    "nan": (HEADER + "6,nan,Paris,\n", "line 2: the column 'rain' has 'nan'" + EMPTY),
    "after a field of two lines": (HEADER + '6,1,"a\nb",\n6,-,c,\n', "line 4: the column 'rain' has '-'" + EMPTY),
}


def test_a_new_table_that_does_not_fit_is_told_the_line_and_the_remedy(read: Callable[[str], list[list[str]]]) -> None:
    said = {}
    for name, (text, _) in FAULTS.items():
        with pytest.raises(ValueError) as caught:
            read(text)
        said[name] = str(caught.value)
    assert said == {name: fault for name, (_, fault) in FAULTS.items()}


def test_the_command_ends_with_one_line_before_it_predicts(tmp_path: Path) -> None:
    """Before, the provider's IndexError or ValueError ended the command, with lines of Python code."""
    for name in ("table_provider.py", "predict.sh"):
        (tmp_path / name).write_text(FILES[name])
    new = write_table(tmp_path, HEADER + "6,n/a,Paris,\n")
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-e", "predict.sh", new, "quality"],
        cwd=tmp_path, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{new}: line 2: the column 'rain' has 'n/a'{EMPTY}\n"
    assert not (tmp_path / "new.list").exists()
