"""CONF_PADDLE_GRADIENT_MIN: a three-pod job loses a pod that does not come back, or only much later.

One job loses several pods, because a job for each loss takes half a minute. Launchers look for pods that are back ten
times as often as in a user's job; nothing here depends on how long a wait is.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import three_pods
from three_pods import ends, errors_in_tests, make_launcher, open_gate, prepare, programs, shut_gate

import paddle_cluster.launcher.status
from paddle_base.runtime.errors import PeerUnreachableError
from paddle_cluster.localcluster import Cluster

pytestmark = pytest.mark.timeout(500)  # seconds; the deadlines of a test's waits together, on a busy machine
PASSES = 16
END = "training finished"
SAMPLES = re.compile(r"Pass=(\d+) Batch=\d+ samples=(\d+) ")


def start(root: Path, *delays: str, pods: int = 3, is_large: bool = False, **env: str) -> Cluster:
    """The job; a delay is of the pod that replaces one, because the first pod of each index has none.

    Args: is_large: whether only trainer 0's launcher lists all pods, as in a job of many.
    """
    settings = {"NUM_PASSES": str(PASSES), "CONF_PADDLE_GRADIENT_MIN": "1", "REJOIN_TIMEOUT": "1", **env}
    entrypoint = make_launcher(root, LOOK_S=1.0, **({"FEW": 1} if is_large else {}))
    first = {f"{delay.partition('@')[0]}@0" for delay in delays}
    return three_pods.start(root / "volume", entrypoint, pods=pods, delay=[*first, *delays], **settings)


def record_of(job: Path) -> dict:
    return json.loads((job / "output" / "job.json").read_text())


def samples_of_last_pass(job: Path, trainers: int) -> int:
    """How many samples all trainers of the last attempt trained in its last pass."""
    logs = [(job / "output" / f"node_{number}" / "train.log").read_text() for number in range(trainers)]
    return sum(int(dict(SAMPLES.findall(log))[str(PASSES - 1)]) for log in logs)


def count_samples(job: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in job.glob("[0-9]/data/train.txt"))


def check_model(job: Path, trainers: int) -> None:
    """Every pass has trained all samples, and the servers' state has come along: it counts each of them once.

    Training went on from the newest pass with the parameters alone: the optimiser's counters began again at zero.
    """
    assert samples_of_last_pass(job, trainers) == count_samples(job)
    assert errors_in_tests(job / "output" / "node_0" / "train.log")[-1][1] < 0.06
    checkpoint = job / "output" / "state" / f"pass-{PASSES - 1:05d}"
    services = json.loads((checkpoint / "job.json").read_text())["services"]
    counted = {(one["counters"]["samples"], one["counters"]["passes"]) for one in services}
    assert counted == {(PASSES * count_samples(job), PASSES)}
    steps = {one["counters"]["steps"] for one in services}
    assert len(steps) == 1 and min(steps) >= PASSES * count_samples(job) / (3 * 32), "batches of 32 on three trainers"
    assert not list((job / "output").glob("run-*")), "checkpoints of each membership would fill the volume"


def test_a_pod_that_comes_back_takes_part_in_the_next_pass_and_one_that_never_does_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job whose launchers do not list all pods; first trainer 0 is lost, then trainer 1.

    Before the others go on without trainer 0, they wait for lists: what names a shard's files is missing for a while.
    Without a list nobody knows what to train, and a job waits for the pod as by default. They waited for trainer 1, and
    ended with 69 after REJOIN_TIMEOUT.
    """
    job = prepare(tmp_path / "volume")
    shut_gate(job, 3)
    with start(tmp_path, "0@1:Pass=4 ", f"1@0:{END}", is_large=True) as cluster:
        cluster.wait_for_output(r"Pass=1 ", deadline=60, pod="2")
        shutil.move(job / "0" / "data" / "train.list", job / "train.list")
        cluster.kill("0")
        shut_gate(job, 6)
        cluster.wait_for_output(r"shard 0, .* cannot be divided among other trainers", deadline=60, pod="1")
        shutil.move(job / "train.list", job / "0" / "data" / "train.list")
        cluster.wait_for_output(r"pod 0 .* can take part again: the next pass that is saved", deadline=90, pod="1")
        cluster.wait_for_output(r"attempt 2 continues without this pod", deadline=30, pod="0")
        shut_gate(job, 9)  # by now 7 may be saved: a pass whose samples were read ahead still ends
        cluster.wait_for_output(r"attempt 2 has ended: pod", deadline=60, pod="2")
        cluster.wait_for_output(r"trainer 0 of 3, attempt 3\.", deadline=60, pod="0")
        shut_gate(job, 12)
        cluster.wait_for_output(r"Pass=10 ", deadline=60, pod="0")
        back = record_of(job)
        cluster.kill("1")
        shut_gate(job, 14)
        cluster.wait_for_output(r"trainer 0 of 2, attempt 4\.", deadline=60, pod="0")
        cluster.wait_for_output(r"Pass=13 ", deadline=60, pod="0")

        def refuse(*_: str) -> None:
            raise PeerUnreachableError("no cluster answers")

        monkeypatch.setattr(paddle_cluster.launcher.status, "list_pods_of", refuse)
        told = paddle_cluster.launcher.status.describe_job(job / "output")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert sorted(pod.exit_code for pod in result.pods) == [0, 0, 0, 137, 137]

    assert back["attempt"] == 3 and not back["absent"] and back["gradient_num"] == 3
    assert back["attempts"][1]["failure"]["program"] == "returned pod" and back["fruitless"] == 0
    for index in range(3):
        told_by = "".join(pod.output for pod in result.pods if pod.index == index)
        assert f"trainer {index} of 3, attempt 3." in told_by

    record = record_of(job)
    assert record["finished"] and record["attempt"] == 4 and record["checkpoint"] >= "pass-00009"
    assert [one["index"] for one in record["absent"]] == [1]
    missing = r"2 of 3 trainers, 2 of 3 pservers; without pod 1 \(paddle-cluster-job-1-\S+.*\) since 2"
    assert re.match(missing, told[1]), told
    assert "this Job has trained all its passes: nothing left to do" in result.pod(1).output
    said = result.pod(0).output
    assert re.search(
        rf"going on from state/{record['checkpoint']} of an earlier attempt.* was saved by 3 trainers", said
    )
    log = (job / "output" / "node_0" / "train.log").read_text()
    assert "this job has 2 trainers (without pods 1): it keeps the parameters" in log
    check_model(job, 2)
    node = job / "output" / "node_2"  # of a trainer that the last attempt did not have
    assert (node / "train.log.3").exists() and not (node / "train.log").exists()


def test_pods_with_a_pserver_alone_are_missed_less_and_take_the_place_of_a_lost_trainer(tmp_path: Path) -> None:
    """CONF_PADDLE_GRADIENT_MIN may be all trainers. Parameters and state of the lost pservers come from the volume.

    Before that, a pserver without a trainer is killed: that costs no pod, and the next attempt goes on with all pods.
    """
    job = prepare(tmp_path / "volume", shards=2)
    shut_gate(job, 4)
    numbers = {"CONF_PADDLE_GRADIENT_NUM": "2", "CONF_PADDLE_PSERVER_NUM": "4", "CONF_PADDLE_GRADIENT_MIN": "2"}
    with start(tmp_path, f"3@1:{END}", f"0@1:{END}", pods=4, **numbers) as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="1")
        assert programs(cluster, job, 4) == ["pt", "pt", "p", "p"]
        cluster.kill("2", process="paddle pserver")
        cluster.wait_for_output(r"trainer 1 of 4, attempt 2\.", deadline=60, pod="1")
        shut_gate(job, 7)
        cluster.wait_for_output(r"Pass=5 ", deadline=60, pod="1")
        cluster.kill("3")
        shut_gate(job, 10)
        cluster.wait_for_output(r"2 of 2 trainers, 3 of 4 pservers; without pod 3 ", deadline=60, pod="0")
        cluster.wait_for_output(r"Pass=8 ", deadline=60, pod="1")
        cluster.kill("0")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert sorted(pod.exit_code for pod in result.pods) == [0, 0, 0, 0, 137, 137]
    record = record_of(job)
    assert (record["attempt"], record["gradient_num"], record["pserver_num"]) == (4, 2, 2)
    assert record["checkpoint"] >= "pass-00007" and [one["index"] for one in record["absent"]] == [0, 3]
    failure = record["attempts"][0]["failure"]
    assert (failure["program"], failure["signal"]) == ("pserver", "SIGKILL"), failure
    lost = r"first failure reported: pserver pod 2 on .*was killed by SIGKILL"
    assert re.search(lost, result.pod(1).output.replace("\n", " "))
    assert "trainer 1 of 2, attempt 4." in result.pod(2).output and "files of shard 0 to" in result.pod(2).output
    log = (job / "output" / "node_0" / "train.log.3").read_text()
    assert "divided anew" in log  # pod 3 was missing from then on
    check_model(job, 2)


def test_a_job_shrinks_twice_and_one_of_the_lost_comes_back(tmp_path: Path) -> None:
    """In between, a program that is killed is started again with those that are there, at once; ids and shards stay.

    Of a job whose launchers list all pods; trainer 2 comes back, and trainer 0 never does.
    """
    job = prepare(tmp_path / "volume")
    shut_gate(job, 4)
    with start(tmp_path, "2@1:Pass=10 ", f"0@1:{END}") as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="1")
        cluster.kill("2")
        shut_gate(job, 7)
        cluster.wait_for_output(r"trainer 1 of 2, attempt 2\.", deadline=60, pod="1")
        cluster.wait_for_output(r"Pass=5 ", deadline=60, pod="1")
        cluster.kill("1", process="paddle train")
        shut_gate(job, 9)
        cluster.wait_for_output(r"trainer 1 of 2, attempt 3\.", deadline=60, pod="1")
        record = record_of(job)
        cluster.wait_for_output(r"Pass=7 ", deadline=60, pod="1")
        cluster.kill("0")
        shut_gate(job, 11)
        cluster.wait_for_output(r"trainer 0 of 1, attempt 4\.", deadline=60, pod="1")
        cluster.wait_for_output(r"pod 2 .* can take part again: the next pass that is saved", deadline=90, pod="1")
        shut_gate(job, 13)
        cluster.wait_for_output(r"attempt 4 has ended: pod 2 ", deadline=60, pod="1")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert record["attempt"] == 3 and record["checkpoint"] and [one["index"] for one in record["absent"]] == [2]
    said = result.pod(1).output
    seen = next(pod for pod in result.pods if pod.index == 0).output  # of the other trainer of the third attempt
    third = seen.partition("attempt 2.")[2].partition("was killed by SIGKILL")[2].partition("attempt 3.")[0]
    assert third and "(REJOIN_TIMEOUT) at least 1 trainers" not in third
    assert "divided anew" not in (job / "output" / "node_0" / "train.log.3").read_text(), "of two trainers, to the bits"
    record = record_of(job)
    assert record["finished"] and record["attempt"] == 5 and record["gradient_num"] == 2
    assert [one["index"] for one in record["absent"]] == [0]
    assert re.search(r"1 of 3 trainers, 1 of 3 pservers; without pod 0 .* since .*, pod 2 .* since ", said)
    assert "trainer 1 of 2, attempt 5." in said + result.pod(2).output
    check_model(job, 2)
