"""Pods that do not belong to the job: those of a second Job, and a foreign pod with the label of the job."""

import json
import re
import shutil

import yaml
from kubernetes_cluster import give
from long_job import JOB, LongJob, StartJob
from pod_watch import PodWatch

SECOND = "second-job"


def test_two_jobs_and_a_stranger_with_their_label_are_never_mixed(long_job: StartJob) -> None:
    job = long_job("strangers", passes=2)
    for name in (JOB, SECOND):
        create_stranger(job, name)
    shutil.copytree(job.tree, job.tree.with_name(SECOND), ignore=shutil.ignore_patterns("output"))
    give(job.tree.with_name(SECOND))
    with PodWatch(job.space, SECOND) as watch:
        second = LongJob(job.space, job.overlay, job.passes, job.reference, watch, SECOND)
        job.space.create(renamed(job))
        for one in (job, second):
            one.wait_for_success()
            one.check_pods()
            one.check_bits()
            addresses = [one.pod(index)["status"]["podIP"] for index in range(3)]
            said = "\n".join(one.log(index) for index in range(3))
            assert set(re.findall(r"--pservers=(\S+)", said)) == {",".join(addresses)}
            assert one.attempt() == 1


def create_stranger(job: LongJob, name: str) -> None:
    """Create a pod that has the labels of the job's pods but does not belong to the job, and wait until it runs."""
    container = {"name": "stranger", "image": f"{job.space.cluster.registry}/pause:1"}
    labels = {"job-name": name, "batch.kubernetes.io/job-completion-index": "0"}
    metadata = {"name": f"stranger-of-{name}", "labels": labels}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    job.space.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    job.space.kubectl("wait", "--for=condition=Ready", f"pod/{metadata['name']}", "--timeout=60s")


def renamed(job: LongJob) -> dict:
    """Return the same Job with another name; a user changes metadata.name, JOB_NAME and the mounts for this."""
    objects = yaml.safe_load_all(job.space.kubectl("kustomize", job.overlay))
    found = next(one for one in objects if one["kind"] == "Job" and one["metadata"]["name"] == JOB)
    text = json.dumps(found).replace(JOB, SECOND)
    return json.loads(text)
