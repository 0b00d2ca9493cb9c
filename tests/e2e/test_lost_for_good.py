"""CONF_PADDLE_GRADIENT_MIN: a three-pod job loses a pod that does not come back, or only much later."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
from test_lost_pod import make_few
from three_pods import ROOT, ends, errors_in_tests, open_gate, prepare, shut_gate

import launcher.status
from localcluster import Cluster, load_job
from runtime.errors import PeerUnreachableError

pytestmark = pytest.mark.timeout(400)  # seconds; the deadlines of a test's waits together, on a busy machine
PASSES = 14
END = "training finished"
SAMPLES = re.compile(r"Pass=(\d+) Batch=\d+ samples=(\d+) ")


def start(volume: Path, *delays: str, pods: int = 3, entrypoint: Path = ROOT / "start.sh", **env: str) -> Cluster:
    """The job; a delay is of the pod that replaces one, because the first pod of each index has none."""
    job = dataclasses.replace(load_job(str(ROOT / "k8s" / "job.yaml")), parallelism=pods, completions=pods)
    settings = {"NUM_PASSES": str(PASSES), "PADDLE_PEER_TIMEOUT": "3", "CONF_PADDLE_GRADIENT_MIN": "1"}
    first = {f"{delay.partition('@')[0]}@0" for delay in delays}
    return Cluster(
        job,
        volumes={"mfs": volume},
        entrypoint=entrypoint,
        env={**settings, "REJOIN_TIMEOUT": "3", **env},
        logs=volume.with_name("pods"),
        delay=[*first, *delays],
    )


def record_of(job: Path) -> dict:
    return json.loads((job / "output" / "job.json").read_text())


def samples_of_last_pass(job: Path, trainers: int) -> int:
    """How many samples all trainers of the last attempt trained in its last pass."""
    logs = [(job / "output" / f"node_{number}" / "train.log").read_text() for number in range(trainers)]
    return sum(int(dict(SAMPLES.findall(log))[str(PASSES - 1)]) for log in logs)


def count_samples(job: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in job.glob("[0-9]/data/train.txt"))


@pytest.mark.parametrize("many", [False, True], ids=["few pods", "many pods"])
@pytest.mark.parametrize("lost", ["1", "0"], ids=["another trainer's", "trainer 0's"])
def test_the_others_finish_without_a_pod_that_never_comes_back(
    tmp_path: Path, lost: str, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They waited for it, and ended with 69 after REJOIN_TIMEOUT. All samples are trained in every pass."""
    job = prepare(tmp_path / "volume")
    shut_gate(job, 6)
    script = make_few(tmp_path, 1) if many else ROOT / "start.sh"
    first = "1" if lost == "0" else "0"
    with start(tmp_path / "volume", f"{lost}@{first}:{END}", entrypoint=script) as cluster:
        cluster.wait_for_output(r"Pass=3 ", deadline=60, pod="2")
        cluster.kill(lost)
        shut_gate(job, 9)
        cluster.wait_for_output(r"trainer 0 of 2, attempt 2\.", deadline=60, pod=first)
        cluster.wait_for_output(r"Pass=7 ", deadline=60, pod=first)

        def refuse(*_: str) -> None:
            raise PeerUnreachableError("no cluster answers")

        monkeypatch.setattr(launcher.status, "list_pods_of", refuse)
        told = launcher.status.describe_job(job / "output")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert sorted(pod.exit_code for pod in result.pods) == [0, 0, 0, 137]
    record = record_of(job)
    assert record["finished"] and record["attempt"] == 2 and record["start_pass"] >= 3
    assert [one["index"] for one in record["absent"]] == [int(lost)]
    missing = rf"2 of 3 trainers, 2 of 3 pservers; without pod {lost} \(paddle-cluster-job-{lost}-\S+.*\) since 2"
    assert re.match(missing, told[1]), told
    assert "this Job has trained all its passes: nothing left to do" in result.pod(int(lost)).output
    assert "WARNING: " in result.pod(int(first)).output and "only the parameters are" in result.pod(int(first)).output
    assert samples_of_last_pass(job, 2) == count_samples(job)
    assert errors_in_tests(job / "output" / "node_0" / "train.log")[-1][1] < 0.06
    node = job / "output" / "node_2"  # of a trainer that the last attempt did not have
    assert (node / "train.log.1").exists() and not (node / "train.log").exists()


@pytest.mark.parametrize("many", [False, True], ids=["few pods", "many pods"])
@pytest.mark.parametrize("lost", ["1", "0"], ids=["another trainer's", "trainer 0's"])
def test_a_pod_that_comes_back_takes_part_in_the_next_pass(tmp_path: Path, lost: str, many: bool) -> None:
    job = prepare(tmp_path / "volume")
    shut_gate(job, 4)
    first = "1" if lost == "0" else "0"
    script = make_few(tmp_path, 1) if many else ROOT / "start.sh"
    with start(tmp_path / "volume", rf"{lost}@{first}:Pass=6 ", entrypoint=script) as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="2")
        cluster.kill(lost)
        shut_gate(job, 8)
        cluster.wait_for_output(rf"pod {lost} .*: back; the next pass that is saved", deadline=90, pod=first)
        cluster.wait_for_output(r"attempt 2 goes on without this pod", deadline=30, pod=lost)
        shut_gate(job, 9)
        cluster.wait_for_output(r"attempt 2 has ended: pod", deadline=60, pod="2")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert sorted(pod.exit_code for pod in result.pods) == [0, 0, 0, 137]
    record = record_of(job)
    assert record["finished"] and record["attempt"] == 3 and not record["absent"] and record["gradient_num"] == 3
    assert record["attempts"][1]["failure"]["program"] == "returned pod" and record["fruitless"] == 0
    for index in range(3):
        assert f"trainer {index} of 3, attempt 3." in result.pod(index).output
        assert (job / "output" / f"node_{index}" / "train.log").exists()
    assert "attempt 2 has ended: pod" in result.pod(2).output
    assert samples_of_last_pass(job, 3) == count_samples(job)
    assert not list((job / "output").glob("run-*")), "checkpoints of each membership would fill the volume"
    assert errors_in_tests(job / "output" / "node_0" / "train.log")[-1][1] < 0.06


def test_a_pod_with_a_pserver_alone_takes_the_place_of_a_lost_trainer(tmp_path: Path) -> None:
    job = prepare(tmp_path / "volume", shards=2)
    shut_gate(job, 5)
    numbers = {"CONF_PADDLE_GRADIENT_NUM": "2", "CONF_PADDLE_PSERVER_NUM": "3"}
    with start(tmp_path / "volume", f"0@1:{END}", **numbers) as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="1")
        cluster.kill("0")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    record = record_of(job)
    assert (record["gradient_num"], record["pserver_num"]) == (2, 2) and record["start_pass"] >= 2
    assert "trainer 1 of 2, attempt 2." in result.pod(2).output and "files of shard 0 to" in result.pod(2).output
    assert samples_of_last_pass(job, 2) == count_samples(job)


def test_a_lost_pod_with_a_pserver_alone_costs_no_trainer(tmp_path: Path) -> None:
    """CONF_PADDLE_GRADIENT_MIN may be all trainers. The lost pserver's parameters come from the newest pass."""
    job = prepare(tmp_path / "volume", shards=2)
    shut_gate(job, 5)
    numbers = {"CONF_PADDLE_GRADIENT_NUM": "2", "CONF_PADDLE_PSERVER_NUM": "3", "CONF_PADDLE_GRADIENT_MIN": "2"}
    with start(tmp_path / "volume", f"2@0:{END}", **numbers) as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="1")
        cluster.kill("2")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    record = record_of(job)
    assert (record["gradient_num"], record["pserver_num"]) == (2, 2) and record["start_pass"] >= 2
    assert "2 of 2 trainers, 2 of 3 pservers; without pod 2 " in result.pod(0).output
    assert samples_of_last_pass(job, 2) == count_samples(job)
    assert errors_in_tests(job / "output" / "node_0" / "train.log")[-1][1] < 0.06


def test_a_job_shrinks_twice_and_one_of_the_lost_comes_back(tmp_path: Path) -> None:
    job = prepare(tmp_path / "volume")
    shut_gate(job, 4)
    with start(tmp_path / "volume", "2@0:Pass=9 ", f"1@0:{END}") as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="0")
        cluster.kill("2")
        shut_gate(job, 7)
        cluster.wait_for_output(r"trainer 1 of 2, attempt 2\.", deadline=60, pod="1")
        cluster.wait_for_output(r"Pass=5 ", deadline=60, pod="1")
        cluster.kill("1")
        shut_gate(job, 10)
        cluster.wait_for_output(r"trainer 0 of 1, attempt 3\.", deadline=60, pod="0")
        cluster.wait_for_output(r"pod 2 .*: back; the next pass that is saved", deadline=90, pod="0")
        shut_gate(job, 12)
        cluster.wait_for_output(r"attempt 3 has ended: pod 2 ", deadline=60, pod="0")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    record = record_of(job)
    assert record["finished"] and record["attempt"] == 4 and record["gradient_num"] == 2
    assert [one["index"] for one in record["absent"]] == [1]
    said = result.pod(0).output
    assert re.search(r"1 of 3 trainers, 1 of 3 pservers; without pod 1 .* since .*, pod 2 .* since ", said)
    assert "trainer 1 of 2, attempt 4." in said + result.pod(2).output
    assert samples_of_last_pass(job, 2) == count_samples(job)
    assert errors_in_tests(job / "output" / "node_0" / "train.log")[-1][1] < 0.06


def test_a_failure_in_an_attempt_without_a_pod_costs_no_wait_for_it(tmp_path: Path) -> None:
    """A program that is killed is started again, with those that are there, at once; ids and shards stay."""
    job = prepare(tmp_path / "volume")
    shut_gate(job, 4)
    with start(tmp_path / "volume", f"2@0:{END}", REJOIN_TIMEOUT="8") as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="0")
        cluster.kill("2")
        shut_gate(job, 8)
        cluster.wait_for_output(r"Pass=6 ", deadline=60, pod="1")
        cluster.kill("1", process="paddle train")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    record = record_of(job)
    assert record["finished"] and record["attempt"] == 3 and record["checkpoint"]  # of two trainers, to the bits
    assert [one["index"] for one in record["absent"]] == [2]
    after = result.pod(0).output.partition("attempt 2.")[2]
    assert "2 of 3 trainers, 2 of 3 pservers; without pod 2 " in after
    assert "(REJOIN_TIMEOUT) at least 1 trainers" not in after.partition("was killed by SIGKILL")[2]


def test_shards_without_lists_are_waited_for(tmp_path: Path) -> None:
    """A list is what names a shard's files; without one nobody knows what to train, and the job waits as by default."""
    job = prepare(tmp_path / "volume")
    shut_gate(job, 4)
    with start(tmp_path / "volume", "1@0:cannot be divided") as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="0")
        shutil.move(job / "1" / "data" / "train.list", job / "train.list")
        cluster.kill("1")
        cluster.wait_for_output(r"shard 1, .* cannot be divided among other trainers", deadline=60, pod="0")
        shutil.move(job / "train.list", job / "1" / "data" / "train.list")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
