"""Driver and workers together: a training loop that loses a worker and gets another one, step by step."""

from __future__ import annotations

import sys
from pathlib import Path

import elastic_training
from test_elastic_run import run


def test_a_loop_goes_on_when_a_worker_dies_and_when_another_one_comes(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost:2\n")
    flags = ["-np", "2", "--min-np", "1", "--host-discovery-script", "cat hosts"]
    status, lines, log = run(tmp_path, *flags, worker=[sys.executable, elastic_training.__file__, "8"])
    assert status == 0, log
    assert lines == [f"[{rank}]<stdout>:3 workers, steps lost or counted twice: 0" for rank in range(3)]
    assert "generation 3 has 3 workers" in log
