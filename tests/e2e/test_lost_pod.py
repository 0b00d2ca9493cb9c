"""Losses of a three-pod job that `python -m chaos` does not inject: of its record, in vain, and for good reasons.

That everyone notices the loss of a program or of a pod, by name, and that the next attempt goes on to the same bits, is
proven in every trial of `make chaos-short` (tests/chaos/verdict.py).
"""

from __future__ import annotations

import json
import re
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


def test_attempts_in_vain_end_the_job_with_a_report(tmp_path: Path) -> None:
    """Each pod would else be replaced up to backoffLimit, for something that fails in the same way every time."""
    job = prepare(tmp_path)
    with (job / "digits" / "trainer_config.py").open("a") as script:
        script.write("\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    with start(tmp_path, RESTARTS="1") as cluster:
        result = cluster.wait(deadline=60)
    assert result.outcome.reason == "PodFailurePolicy" and result.exit_status == 78, ends(result)
    for pod in result.pods[:3]:
        report = pod.output.partition("giving up: 2 attempts in a row")[2]
        lines = re.findall(r"attempt [12]\..*from the beginning: trainer \d on .*was killed by SIGKILL", report)
        assert len(lines) == 2
    assert "this Job has given up" in (result.cause.output if result.cause else "")


def test_a_bad_shard_fails_the_job_at_once_and_everyone_names_it(tmp_path: Path) -> None:
    """A retry cannot mend it: exit status 65 of one pod fails the Job, and the others say which trainer and why."""
    job = prepare(tmp_path)
    with (job / "2" / "data" / "train.txt").open("a") as shard:
        shard.write("not,a,digit\n")
    with start(tmp_path) as cluster:
        result = cluster.wait(deadline=60)
    assert result.outcome.reason == "PodFailurePolicy", ends(result)
    assert result.pod(2).exit_code == 65
    assert len(result.pods) == 3, "no pod was replaced"
    assert not list((job / "output").glob("pass-*"))
