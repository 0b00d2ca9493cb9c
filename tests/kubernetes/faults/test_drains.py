"""Drains with 30 s of grace lose at most the current batch; disruption budgets, names of pods, fewer trainers."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from infrastructure import limit_pods, name_of
from kubernetes_cluster import Cluster, copy_manifests, drained
from long_job import BATCH_LINE, BATCHES, JOB, PASS_LINE, RESUMED_LINE, LongJob, StartJob, terminated, variable

GRACE_S = 30  # seconds; grace period of the drain; the manifests have 90
EVERY_BATCH = ("--log_period=1", "--checkpoint_period_by_batches=0")  # log every batch; no checkpoint inside a pass


def resumptions(log: str) -> list[tuple[int, int]]:
    """Return for each time that a trainer continued: the batches trained before, and the batch to continue from."""
    found, trained, number = [], 0, 0
    for line in log.splitlines():
        if match := RESUMED_LINE.search(line):
            number, batch = int(match[1]), int(match[2])
            found.append((trained, number * BATCHES + batch))
        elif match := PASS_LINE.search(line):
            number = int(match[1]) + 1
            trained = number * BATCHES
        elif match := BATCH_LINE.search(line):
            trained = number * BATCHES + int(match[1])
    return found


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_drain_with_30_seconds_of_grace_costs_at_most_the_batch_in_hand(
    cluster: Cluster, long_job: StartJob, mode: str
) -> None:
    flags = (f"--config_args=provider=paced_digits,mode={mode}", *EVERY_BATCH)
    job = long_job(f"drain-30s-{mode}", passes=6, flags=flags)
    job.wait_for_batch(1, 30)
    pod = job.pod(1)
    node = pod["spec"]["nodeName"]
    own = f"--pod-selector=batch.kubernetes.io/controller-uid={job.uid()}"
    with drained(cluster, node, f"--grace-period={GRACE_S}", own):
        job.wait_for_next_attempt(1)
    assert terminated(job.pods_of(1)[0])["exitCode"] == 143, "it was killed, or ended by itself"
    job.wait_for_success()
    assert job.failed() == 0
    lost = {index: resumptions(job.log(index)) for index in range(3)}
    print(f"{mode}: trained and gone on from, by trainer: {lost}")
    for index, found in lost.items():
        assert len(found) == 1, f"trainer {index} went on {len(found)} times\n{job.log(index)[-3000:]}"
        ((trained, resumed),) = found
        said = f"trainer {index}: {trained} trained, went on from {resumed}\n{job.logs()[-20000:]}"
        assert resumed > BATCHES and trained - resumed <= 1, said
    if mode == "sync":
        job.check_bits()


def test_a_budget_lets_one_pod_of_a_training_job_go_at_a_time(long_job: StartJob, tmp_path: Path) -> None:
    job = long_job("budget", passes=12, manifests=copy_manifests(tmp_path, "disruption-budget", "pod-names"))
    job.wait("room in the budget", lambda: budget(job).get("disruptionsAllowed") == 1)
    assert evict(job, 1) == ""
    assert "would violate the pod's disruption budget" in evict(job, 2)
    job.wait("replacement", lambda: len(job.pods_of(1)) == 2)
    job.wait_for_success()
    assert job.failed() == 0
    job.check_pods(lost=(1,))
    job.check_bits()
    # the replacement has the name of the evicted pod, and the trainers got names instead of addresses
    hosts = ",".join(f"{JOB}-{index}.paddle-pods" for index in range(3))
    assert job.log(0).count(f"--pservers={hosts} ") >= 2


def budget(job: LongJob) -> dict[str, Any]:
    path = f"/apis/policy/v1/namespaces/{job.space.name}/poddisruptionbudgets/{JOB}"
    return job.space.cluster.get(path).json().get("status", {})


def evict(job: LongJob, index: int) -> str:
    """Ask for the eviction of a pod as `kubectl drain` does; return the reason of a refusal, or ""."""
    name = name_of(job, index)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/{job.space.name}/pods/{name}/eviction"
    command = ["kubectl", "create", "--raw", path, "-f", "-"]
    done = subprocess.run(
        command, env=job.space.cluster.env, input=json.dumps(eviction), capture_output=True, text=True, timeout=60
    )
    return done.stderr if done.returncode else ""


def test_a_job_is_complete_without_the_pod_that_does_not_come_back(long_job: StartJob, tmp_path: Path) -> None:
    """Test the component fewer-trainers with a short REJOIN_TIMEOUT: two of three trainers complete the Job."""
    manifests = copy_manifests(tmp_path, "fewer-trainers")
    job = long_job("fewer", variable("REJOIN_TIMEOUT", "5"), passes=4, manifests=manifests)
    job.wait_for_batch(1, 0)
    limit_pods(job.space, 2)
    job.space.kubectl("delete", "pod", name_of(job, 2), "--wait=false")
    job.wait("end of the pod", lambda: len(job.watch.pods()) == 2)
    job.wait_for_success()
    conditions = job.space.conditions(JOB)
    assert "SuccessCriteriaMet" in conditions, conditions
    assert job.space.job(JOB)["status"]["succeeded"] == 2
    assert (job.output / f"pass-{job.passes - 1:05d}/done").is_file()
    assert re.search("2 of 3 trainers", job.log(0))
