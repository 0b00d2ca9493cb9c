"""Pods that Kubernetes itself stops: a node is drained, or a Job is suspended, or deleted and created again."""

import datetime
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from infrastructure import now
from kubernetes_cluster import REPOSITORY, Cluster, Overlay
from long_job import JOB, LongJob, StartJob, terminated, training

GRACE_S = 90  # seconds; terminationGracePeriodSeconds of job.yaml
NEWEST = r"going on from (state/pass-\S+) of "


@pytest.fixture
def undrained(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.kubectl("uncordon", "--selector=kubernetes.io/os=linux")


def test_a_drained_nodes_pod_saves_and_is_not_counted(cluster: Cluster, long_job: StartJob, undrained: None) -> None:
    job = long_job("drain")
    job.wait_for_batch(0, 50)
    pod = job.pod(1)
    node = pod["spec"]["nodeName"]
    alone_there = [index for index in range(3) if job.pod(index)["spec"]["nodeName"] == node]
    options = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=150s")
    # This is computed here, because the deletionTimestamp of a pod changes when the pod has ended.
    due = now() + datetime.timedelta(seconds=GRACE_S)
    cluster.kubectl("drain", node, *options, f"--pod-selector=batch.kubernetes.io/controller-uid={job.uid()}")
    drained = job.pods_of(1)[0]
    assert terminated(drained)["exitCode"] == 143, drained["status"]
    assert "DisruptionTarget" in {condition["type"] for condition in drained["status"]["conditions"]}
    assert datetime.datetime.fromisoformat(terminated(drained)["finishedAt"]) < due
    job.wait_for_success()
    assert job.failed() == 0
    job.check_pods(lost=tuple(alone_there))
    assert re.search(NEWEST, job.log(0)), "the job began anew"
    job.check_bits()


def test_a_suspended_job_goes_on_from_the_newest_checkpoint(long_job: StartJob) -> None:
    job = long_job("suspend")
    job.wait_for_batch(1, 20)
    attempt = job.attempt()
    suspend(job, True)
    job.wait("end of all pods", lambda: not job.watch.pods(), seconds=GRACE_S)
    assert "Suspended" in job.space.conditions(JOB)
    newest = newest_checkpoint(job)
    suspend(job, False)
    job.wait_for_log(0, rf"going on from {newest} of an earlier attempt")
    job.wait_for_success()
    assert job.attempt() == attempt + 1
    assert job.failed() == 0
    job.check_bits()


def suspend(job: LongJob, value: bool) -> None:
    job.space.kubectl("patch", "job", JOB, "--patch", json.dumps({"spec": {"suspend": value}}))


def newest_checkpoint(job: LongJob) -> str:
    """Return the name of the newest complete checkpoint; the checkpoint at the end of a pass is its newest one."""
    names = [marker.parent.name for marker in (job.output / "state").glob("pass-*/done")]
    assert names
    return "state/" + max(names, key=lambda name: (*name.split("-")[1:2], name.count("-") == 1, name))


def test_a_job_that_is_created_again_goes_on_from_the_newest_checkpoint(long_job: StartJob) -> None:
    job = long_job("again")
    job.wait_for_batch(1, 20)
    job.delete()
    newest = newest_checkpoint(job)
    job.create()
    job.wait_for_log(0, rf"going on from {newest} of an earlier Job")
    job.wait_for_success()
    job.check_bits()


@pytest.mark.parametrize("nodes", [2, 4])
def test_a_job_of_another_number_of_nodes_continues_from_the_checkpoint(
    long_job: StartJob, overlay: Overlay, tmp_path: Path, nodes: int
) -> None:
    """Follow docs/number-of-nodes.md: edit the number, and create the data job and the training Job again."""
    job = long_job(f"nodes-{nodes}")
    job.wait_for_batch(1, 20)
    job.delete()
    newest = newest_checkpoint(job)
    manifests = tmp_path / "k8s"
    shutil.copytree(REPOSITORY / "k8s", manifests)
    file = manifests / "kustomization.yaml"
    file.write_text(file.read_text().replace("count=3", f"count={nodes}"))
    edited = overlay(job.space.name, (JOB, [training(job.passes)]), manifests=manifests)
    job.space.kubectl("create", "-k", edited, "-l", "app.kubernetes.io/component=data")
    job.space.wait_for_success("paddle-data")
    job.space.kubectl("create", "-k", edited, "-l", "app.kubernetes.io/component=training")
    change = f"saved by 3 trainers and 3 pservers of .*, and now there are {nodes} trainers"
    job.wait_for_log(0, rf"going on from {newest} of an earlier Job.*{change}.*divided anew")
    job.wait_for_success()
    assert len(job.watch.pods()) == nodes
    assert (job.output / f"pass-{job.passes - 1:05d}/done").is_file()
