"""Jobs whose pods do not all run the same programs: pservers beyond the trainers, and in pods of their own."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from three_pods import ROOT, ends, errors_in_tests, open_gate, prepare, shut_gate

from localcluster import Cluster, load_job

PASSES = 6


def start(volume: Path, pods: int, **env: str) -> Cluster:
    job = dataclasses.replace(load_job(str(ROOT / "k8s" / "job.yaml")), parallelism=pods, completions=pods)
    settings = {"NUM_PASSES": str(PASSES), "PADDLE_PEER_TIMEOUT": "3", **env}
    return Cluster(job, volumes={"mfs": volume}, entrypoint=ROOT / "start.sh", env=settings, logs=volume / "pods")


def programs(cluster: Cluster, pods: int) -> list[str]:
    """What each pod runs: p, t or both."""
    lines = [str(cluster.processes(str(index))) for index in range(pods)]
    return ["p" * ("paddle pserver" in line) + "t" * ("paddle train" in line) for line in lines]


# numbers of trainers and pservers, apart; the programs of each pod, and the process that is killed
LAYOUTS = {
    "more pservers than trainers, a pserver without a trainer is killed": (2, 4, "0", ["pt", "pt", "p", "p"], "2"),
    "apart, a pserver is killed": (2, 2, "1", ["t", "t", "p", "p"], "3"),
    "apart, a trainer is killed": (2, 1, "1", ["t", "t", "p"], "1"),
}


@pytest.mark.parametrize(("trainers", "pservers", "apart", "expected", "victim"), LAYOUTS.values(), ids=LAYOUTS)
def test_pods_with_one_program_train_to_the_end_and_come_back(
    tmp_path: Path, trainers: int, pservers: int, apart: str, expected: list[str], victim: str
) -> None:
    """A program that is killed costs no pod, and the next attempt goes on with the bits of the newest checkpoint."""
    job = prepare(tmp_path, shards=trainers)
    shut_gate(job, 4)
    numbers = {"CONF_PADDLE_GRADIENT_NUM": str(trainers), "CONF_PADDLE_PSERVER_NUM": str(pservers)}
    with start(tmp_path, len(expected), **numbers, CONF_PADDLE_PSERVER_APART=apart) as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="1")
        assert programs(cluster, len(expected)) == expected
        cluster.kill(victim, process="paddle (train|pserver)")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert [pod.exit_code for pod in result.pods] == [0] * len(expected)
    record = json.loads((job / "output" / "job.json").read_text())
    assert record["finished"] and record["attempt"] >= 2 and record["checkpoint"]
    assert (record["gradient_num"], record["pserver_num"]) == (trainers, pservers)
    name = f"trainer {victim}" if int(victim) < trainers else f"pserver pod {victim}"
    assert re.search(
        rf"first failure reported: {name} on .*was killed by SIGKILL", result.pod(0).output.replace("\n", " ")
    )
    for index, kind in enumerate(expected):
        node = job / "output" / f"node_{index}"
        assert [(node / f"{name}.log").exists() for name in ("server", "train")] == ["p" in kind, "t" in kind]
    assert errors_in_tests(job / "output" / "node_0" / "train.log")[-1][1] < 0.06


def test_a_pserver_pod_that_is_replaced_serves_the_next_attempt(tmp_path: Path) -> None:
    job = prepare(tmp_path, shards=1)
    shut_gate(job, 4)
    numbers = {"CONF_PADDLE_GRADIENT_NUM": "1", "CONF_PADDLE_PSERVER_NUM": "2"}
    with start(tmp_path, 2, **numbers) as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="0")
        cluster.kill("1")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert [pod.exit_code for pod in result.pods] == [0, 137, 0]
    assert "going on from state/pass-0000" in result.pod(0).output


def test_a_job_that_is_deleted_saves_before_its_pservers_end(tmp_path: Path) -> None:
    """A pserver that ended at once would leave its trainers nothing to make the checkpoint of."""
    job = prepare(tmp_path, shards=1)
    shut_gate(job, 3)
    numbers = {"CONF_PADDLE_GRADIENT_NUM": "1", "CONF_PADDLE_PSERVER_NUM": "1", "CONF_PADDLE_PSERVER_APART": "1"}
    with start(tmp_path, 2, **numbers, NUM_PASSES="1000") as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="0")
        open_gate(job)
        cluster.wait_for_output(r"Pass=4 ", deadline=60, pod="0")
        cluster.stop(grace=60)
        result = cluster.wait(deadline=100)
    assert [pod.exit_code for pod in result.pods] == [143, 143], ends(result)
    assert "the pserver serves until the trainers have saved" in result.pod(1).output
    assert "checkpoint" in result.pod(0).output.partition("SIGTERM: the trainer gets SIGTERM")[2].lower()
