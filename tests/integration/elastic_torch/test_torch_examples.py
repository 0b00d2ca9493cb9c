"""The examples of PyTorch with two workers."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import sys
from pathlib import Path

import pytest
from forked import server

from paddle_cluster.elastic import launch

pytest.importorskip("torch", reason="paddle.elastic.torch is an extra (make test installs torch)")

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples/allreduce/torch"
LIMIT_S = 100.0
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def read_command(script: str) -> str:
    """Returns the command that the first lines of a script say."""
    (command,) = re.findall(
        rf"^(paddle elastic run .*) python {script} \[EPOCHS\]$", (EXAMPLES / script).read_text(), re.M
    )
    return command


def read_last(output: str) -> float:
    return float(re.findall(r"^(?:\[0\]<stdout>:)?epoch \d+: 2 workers, (?:error|loss) (.*)$", output, re.M)[-1])


def test_the_example_learns_by_the_command_of_its_first_lines(tmp_path: Path) -> None:
    command = read_command("digits_elastic.py").replace("../discover.sh", str(EXAMPLES.parent / "discover.sh"))
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **ONE_THREAD}
    program = [*command.split(), sys.executable, str(EXAMPLES / "digits_elastic.py")]
    ended = server().run(program, tmp_path, environ, merged=True, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stdout
    assert read_last(ended.stdout) < 0.02


def play(script: Path) -> str:
    """Returns what a script writes."""
    sys.argv = [str(script)]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        runpy.run_path(str(script), run_name="__main__")
    return output.getvalue()


@pytest.mark.parametrize(("script", "goal"), [("digits.py", 0.02), ("characters.py", 1.5)])
def test_the_example_learns(script: str, goal: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers are forks of this process, which has imported torch already."""
    for name, value in ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    assert read_command(script) == "paddle elastic run -np 2"
    assert read_last(launch.run(play, (EXAMPLES / script,), num_proc=2, hosts="localhost:2")[0]) < goal
