"""The programs of examples/v2: each trains, tests, saves, loads and predicts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "v2"

# program -> a measure in its output, and the most that it may be at the end
LEARNT = {
    "housing": (r"test cost ([\d.]+)", 0.1),
    "digits": (r"([\d.]+) % wrong", 5),
    "images": (r"([\d.]+) % wrong", 89),
    "word_vectors": (r"test cost ([\d.]+)", 1),
    "sentiment": (r"([\d.]+) % wrong", 10),
    "recommendation": (r"test cost ([\d.]+)", 3),
    "role_labels": (r"wrong labels ([\d.]+)", 0.05),
    "translation": (r"test cost ([\d.]+)", 8),
}


def test_each_program_is_tried():
    assert {path.stem for path in PROGRAMS.glob("*.py")} == set(LEARNT)


@pytest.mark.parametrize("program", LEARNT)
def test_a_program_learns_saves_and_predicts(program, tmp_path):
    ended = subprocess.run(
        [sys.executable, PROGRAMS / f"{program}.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    measure, most = LEARNT[program]
    assert float(re.findall(measure, ended.stdout)[-1]) <= most, ended.stdout
    assert list(tmp_path.glob("*.tar*"))
