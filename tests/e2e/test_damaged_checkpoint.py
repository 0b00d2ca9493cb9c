"""A three-pod job whose newest checkpoint has a changed bit: it goes on from the one before it, and ends."""

from __future__ import annotations

import json
from pathlib import Path

from three_pods import ROOT, ends, prepare

from localcluster import Cluster, Result, load_job


def run(volume: Path, passes: int) -> Result:
    job = load_job(str(ROOT / "k8s" / "job.yaml"))
    env = {"NUM_PASSES": str(passes), "RESTARTS": "0"}
    with Cluster(job, volumes={"mfs": volume}, entrypoint=ROOT / "start.sh", env=env, logs=volume / "pods") as cluster:
        return cluster.wait(deadline=200)


def test_a_changed_bit_of_the_newest_checkpoint_costs_one_attempt_and_no_job(tmp_path: Path) -> None:
    """It trained on with other numbers, and nothing said so; RESTARTS=0 shows that it is no attempt in vain."""
    output = prepare(tmp_path) / "output"
    assert run(tmp_path, 3).outcome.is_complete
    state = output / "state"
    damaged = max((state / "pass-00002" / "parameters").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    result = run(tmp_path, 5)
    assert result.outcome.is_complete, ends(result)
    assert [pod.exit_code for pod in result.pods] == [0, 0, 0]
    record = json.loads((output / "job.json").read_text())
    assert [one["origin"] for one in record["attempts"]] == ["pass-00002", "pass-00001"] and record["finished"]
    said = result.pod(0).output
    assert said.count("pass-00002.damaged now; the next attempt goes on from an older save") >= 1
    assert {"pass-00002.damaged", "pass-00004"} <= {path.name for path in state.iterdir()}
    assert not list(output.glob("**/.pass-*"))
