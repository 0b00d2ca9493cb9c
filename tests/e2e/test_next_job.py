"""Jobs one after the other on the volume of an earlier one: they go on from its passes, or start afresh.

That a job goes on from the newest pass, in one attempt, is proven by docs/resume.md, whose commands
test_docs_commands.py runs.
"""

from __future__ import annotations

import json
from pathlib import Path

from three_pods import ends, prepare, start

from paddle_cluster.localcluster import Result


def run(volume: Path, passes: int, **env: str) -> Result:
    with start(volume, NUM_PASSES=str(passes), **env) as cluster:
        return cluster.wait(deadline=100)


def change_a_bit(state: Path) -> None:
    """Change one bit of the largest parameter of a checkpoint."""
    damaged = max((state / "parameters").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)


def test_a_later_job_goes_on_also_past_a_damaged_checkpoint_and_another_starts_afresh(tmp_path: Path) -> None:
    """A changed bit of the newest checkpoint costs one attempt and no job.

    It trained on with other numbers, and nothing said so; RESTARTS=0 shows that it is no attempt in vain. S19: in the
    original the next run mixed its passes with the first one's and overwrote the logs.
    """
    output = prepare(tmp_path) / "output"
    first = run(tmp_path, 2)
    assert first.outcome.is_complete, ends(first)

    change_a_bit(output / "state" / "pass-00001")
    result = run(tmp_path, 3, RESTARTS="0")
    assert result.outcome.is_complete, ends(result)
    assert [pod.exit_code for pod in result.pods] == [0, 0, 0]
    record = json.loads((output / "job.json").read_text())
    assert [one["origin"] for one in record["attempts"]] == ["pass-00001", "pass-00000"] and record["finished"]
    said = result.pod(0).output
    assert "going on from state/pass-00001 of an earlier Job" in said
    assert "only the parameters" not in said
    assert said.count("pass-00001.damaged now; the next attempt goes on from an older save") >= 1
    assert {"pass-00001.damaged", "pass-00002"} <= {path.name for path in (output / "state").iterdir()}
    assert (output / "pass-00002" / "done").exists() and not (output / "run-1").exists()
    assert not list(output.glob("**/.pass-*"))

    afresh = run(tmp_path, 2)
    assert afresh.outcome.is_complete, ends(afresh)
    assert "an earlier Job has trained 3 passes, and 2 are wanted; it moves to" in afresh.pod(0).output
    for directory, passes in ((output, 2), (output / "run-1", 3)):
        assert len(list(directory.glob("pass-*/done"))) == passes
        assert len(list(directory.glob("node_*/train.log"))) == 3
