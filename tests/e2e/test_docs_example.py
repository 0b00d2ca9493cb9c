"""docs/your-own-job.md, word for word: its config and provider train, test and predict."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import textwrap
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "your-own-job.md"
PADDLE = Path(sys.executable).with_name("paddle")


def block(beginning: str) -> str:
    """The indented block of the page that begins so."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=\n*    ))+", PAGE.read_text(), re.MULTILINE)
    return next(text for text in map(textwrap.dedent, blocks) if text.lstrip("\n").startswith(beginning))


def write_data(folder: Path) -> None:
    rng = random.Random(1)
    for name, count in (("train", 300), ("test", 60)):
        rows = [[rng.random() for _ in range(3)] for _ in range(count)]
        lines = [f"{','.join(f'{value:.3f}' for value in row)},{int(row[0] > row[1])}\n" for row in rows]
        (folder / f"{name}.csv").write_text("".join(lines))
        (folder / f"{name}.list").write_text(f"data/{name}.csv\n")


def run(folder: Path, *flags: str) -> str:
    command = [PADDLE, "train", "--config=trainer_config.py", *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_the_example_trains_and_predicts(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write_data(tmp_path / "data")
    (tmp_path / "trainer_config.py").write_text(block("from paddle.trainer_config_helpers"))
    (tmp_path / "weather_provider.py").write_text(block("from paddle.trainer.PyDataProvider2"))
    run(tmp_path, "--num_passes=20", "--save_dir=output")
    tested = run(tmp_path, "--job=test", "--init_model_path=output/pass-00019")
    assert float(re.findall(r"classification_error_evaluator=(\S+)", tested)[-1]) < 0.1
    predict = ("--config_args=is_predict=1", "--init_model_path=output/pass-00019", "--predict_output_dir=.")
    run(tmp_path, "--job=test", *predict)
    lines = (tmp_path / "rank-00000").read_text().splitlines()
    assert len(lines) == 60 and all(re.fullmatch(r"[01];\S+ \S+;", line) for line in lines)
