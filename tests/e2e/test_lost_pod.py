"""A loss of a three-pod job that `python -m chaos` does not inject: of launcher 0 with the job's record.

That everyone notices the loss of a program or of a pod, by name, and that the next attempt goes on to the same bits, is
proven in every trial of `make chaos-short` (tests/chaos/verdict.py). What a launcher does after attempts in vain, and
after a failure that no retry mends, is proven in tests/integration/launcher/test_launcher_processes.py.
"""

from __future__ import annotations

import json
from pathlib import Path

from three_pods import ends, open_gate, prepare, shut_gate, start


def test_a_record_that_is_lost_with_launcher_0_costs_neither_time_nor_passes(tmp_path: Path) -> None:
    """The other launchers waited for an attempt of a higher number than any that came, until START_TIMEOUT."""
    job = prepare(tmp_path)
    shut_gate(job, 4)
    with start(tmp_path, START_TIMEOUT="600", NUM_PASSES="8") as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="1")
        (job / "output" / "job.json").unlink()
        cluster.kill("0")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert sorted(pod.exit_code for pod in result.pods) == [0, 0, 0, 137]
    record = json.loads((job / "output" / "job.json").read_text())
    assert record["finished"] and record["attempt"] >= 2 and record["checkpoint"]
    assert not list((job / "output").glob("run-*"))
