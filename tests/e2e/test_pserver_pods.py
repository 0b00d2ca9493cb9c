"""Jobs whose pods do not all run the same programs: pservers and trainers in pods of their own.

test_lost_for_good.py has a job with more pservers than trainers, and test_stale_volume.py one with fewer.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from three_pods import ends, errors_in_tests, open_gate, prepare, programs, shut_gate, start


def test_pods_with_one_program_train_to_the_end_and_come_back(tmp_path: Path) -> None:
    """A program that is killed costs no pod, a pod that is killed is replaced, and the next attempt goes on."""
    job = prepare(tmp_path, shards=2)
    shut_gate(job, 3)
    numbers = {"CONF_PADDLE_GRADIENT_NUM": "2", "CONF_PADDLE_PSERVER_NUM": "2", "CONF_PADDLE_PSERVER_APART": "1"}
    with start(tmp_path, pods=4, NUM_PASSES="12", **numbers) as cluster:
        cluster.wait_for_output(r"Pass=1 ", deadline=60, pod="1")
        assert programs(cluster, job, 4) == ["t", "t", "p", "p"]
        cluster.kill("3", process="paddle pserver")
        cluster.wait_for_output(r"trainer 1 of 4, attempt 2\.", deadline=60, pod="1")
        shut_gate(job, 6)
        cluster.wait_for_output(r"Pass=4 ", deadline=60, pod="1")
        cluster.kill("1", process="paddle train")
        cluster.wait_for_output(r"trainer 1 of 4, attempt 3\.", deadline=60, pod="1")
        shut_gate(job, 9)
        cluster.wait_for_output(r"Pass=7 ", deadline=60, pod="1")
        cluster.kill("3")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert [pod.exit_code for pod in result.pods] == [0, 0, 0, 137, 0], ends(result)
    record = json.loads((job / "output" / "job.json").read_text())
    assert record["finished"] and record["attempt"] >= 4 and record["checkpoint"] >= "pass-00006"
    assert (record["gradient_num"], record["pserver_num"]) == (2, 2)
    lost = [(one["failure"]["program"], one["failure"]["signal"]) for one in record["attempts"][:3]]
    assert lost == [("pserver", "SIGKILL"), ("trainer", "SIGKILL"), ("pod", "")]
    said = result.pod(0).output
    for name in ("pserver pod 3", "trainer 1"):
        first = rf"first failure reported: {name} on .*was killed by SIGKILL"
        assert re.search(first, said.replace("\n", " ")), said[-3000:]
    assert "going on from state/pass-0000" in said
    assert errors_in_tests(job / "output" / "node_0" / "train.log")[-1][1] < 0.06


def test_a_job_that_is_deleted_saves_before_its_pservers_end(tmp_path: Path) -> None:
    """A pserver that ended at once would leave its trainers nothing to make the checkpoint of."""
    job = prepare(tmp_path, shards=1)
    shut_gate(job, 3)
    numbers = {"CONF_PADDLE_GRADIENT_NUM": "1", "CONF_PADDLE_PSERVER_NUM": "1", "CONF_PADDLE_PSERVER_APART": "1"}
    with start(tmp_path, pods=2, **numbers, NUM_PASSES="1000") as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="0")
        open_gate(job)
        cluster.wait_for_output(r"Pass=4 ", deadline=60, pod="0")
        cluster.stop(grace=60)
        result = cluster.wait(deadline=100)
    assert [pod.exit_code for pod in result.pods] == [143, 143], ends(result)
    assert "the pserver serves until the trainers have saved" in result.pod(1).output
    assert "checkpoint" in result.pod(0).output.partition("SIGTERM: the trainer gets SIGTERM")[2].lower()
