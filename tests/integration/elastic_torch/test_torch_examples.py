"""The examples of PyTorch under `paddle elastic run`, as their first lines say."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from forked import server

pytest.importorskip("torch", reason="paddle.elastic.torch is an extra (make test installs torch)")

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples/allreduce/torch"
LIMIT_S = 100.0


@pytest.mark.parametrize(("script", "goal"), [("digits.py", 0.02), ("digits_elastic.py", 0.02), ("characters.py", 1.5)])
def test_the_example_learns(tmp_path: Path, script: str, goal: float) -> None:
    (command,) = re.findall(
        rf"^(paddle elastic run .*) python {script} \[EPOCHS\]$", (EXAMPLES / script).read_text(), re.M
    )
    command = command.replace("../discover.sh", str(EXAMPLES.parent / "discover.sh"))
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    ended = server().run(
        [*command.split(), sys.executable, str(EXAMPLES / script)], tmp_path, environ, merged=True, timeout=LIMIT_S
    )
    assert ended.returncode == 0, ended.stdout
    last = re.findall(r"^\[0\]<stdout>:epoch \d+: 2 workers, (?:error|loss) (.*)$", ended.stdout, re.M)[-1]
    assert float(last) < goal
