"""`paddle elastic run` with a script of PyTorch, in three processes that check many things at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from forked import server

pytest.importorskip("torch", reason="paddle.elastic.torch is an extra (make test installs torch)")

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 100.0


def test_three_processes_of_torch(tmp_path: Path) -> None:
    """What they check stands in tests/torch_worker.py."""
    command = ["paddle", "elastic", "run", "-np", "3", sys.executable, str(ROOT / "tests/torch_worker.py")]
    with server().open(command, tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        try:
            output, log = process.communicate(LIMIT_S)
            assert process.wait(LIMIT_S) == 0, log
        finally:
            process.kill()
            process.communicate(LIMIT_S)
    assert sorted(output.splitlines()) == [f"[{rank}]<stdout>:checked" for rank in range(3)]
