"""examples/v2/digits.ipynb, executed by nbconvert in a kernel of its own."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def outputs_of(cell: dict[str, object]) -> list[dict[str, object]]:
    return list(cell.get("outputs", []))  # type: ignore[call-overload]


def test_the_notebook_trains_and_draws_the_curve_of_its_cost(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples/v2/digits.ipynb", tmp_path)  # its kernel runs in the folder of the notebook
    command = [sys.executable, "-m", "nbconvert", "--execute", "--to=notebook", "--output-dir=.", "--output=done.ipynb"]
    done = subprocess.run(
        [*command, "--ExecutePreprocessor.timeout=120", "digits.ipynb"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    cells = {one["id"]: one for one in json.loads((tmp_path / "done.ipynb").read_text())["cells"]}
    assert any("image/png" in one.get("data", {}) for one in outputs_of(cells["train"])), "no curve is drawn"
    text = "".join("".join(one.get("text", [])) for one in outputs_of(cells["test"]))
    assert float(re.search(r"([0-9.]+) % wrong", text)[1]) < 15
    assert {"digits.tar", "digits.topology"} <= {path.name for path in tmp_path.iterdir()}
