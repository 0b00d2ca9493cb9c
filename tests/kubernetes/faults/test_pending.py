"""The third pod does not start: the other launchers name it and the cause, and continue when the cause is removed."""

import json
import re

import pytest
from infrastructure import (
    SUSPENDED,
    check_said_within,
    first_said,
    limit_pods,
    name_of,
    now,
    pod_on,
    start_two_of_three,
    without_registry,
)
from kubernetes_cluster import Cluster, blocking_pod
from long_job import INDEX, JOB, LongJob, StartJob, variable

SAID_WITHIN_S = 10
CPU = "/spec/template/spec/containers/0/resources/requests/cpu"


def check_others_say(job: LongJob, late: int, pattern: str) -> None:
    """Check that the other launchers print a line that matches `pattern` within SAID_WITHIN_S.

    The time counts from the later of two moments: the test sees two Running pods at the API server, or the launcher has
    begun. So the time that a busy machine takes to start pods does not count.
    """
    job.wait("two Running pods", lambda: [pod["status"]["phase"] for pod in job.watch.pods()].count("Running") == 2)
    shown = now()
    for index in {0, 1, 2} - {late}:
        job.wait_for_log(index, "start_paddle: ")
        started = first_said(job, index, "start_paddle: ")
        assert started
        check_said_within(job, index, pattern, SAID_WITHIN_S, max(started, shown))


def unscheduled(job: LongJob) -> list[int]:
    """Return the indexes of the pods for which there is no node."""
    pods = {int(pod["metadata"]["labels"][INDEX]): pod for pod in job.watch.pods()}
    found = {index: pod["status"].get("conditions", []) for index, pod in pods.items()}
    return [
        index for index in found if ("PodScheduled", "False") in {(one["type"], one["status"]) for one in found[index]}
    ]


def waits_for_image(job: LongJob, index: int) -> bool:
    """Whether the kubelet has reported that it cannot pull the image for the pod of an index."""
    return bool(re.search(r'"(ErrImagePull|ImagePullBackOff)"', json.dumps(job.pod(index)["status"])))


@pytest.mark.alone
def test_a_pod_that_finds_no_cpu(cluster: Cluster, long_job: StartJob) -> None:
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    most = f"{min(int(node['status']['allocatable']['cpu']) for node in nodes) * 600}m"  # one fits on a node
    with blocking_pod(cluster, {"cpu": most}):
        job = long_job("no-cpu", {"op": "add", "path": CPU, "value": most})
        late = job.wait("pod without a node", lambda: unscheduled(job))[0]
        said = rf"2 of 3 Running; {name_of(job, late)}: Pending, Unschedulable: .*Insufficient cpu"
        check_others_say(job, late, said)
    job.check_end()


@pytest.mark.alone
def test_a_pod_whose_node_cannot_pull_the_image(cluster: Cluster, long_job: StartJob) -> None:
    with without_registry(cluster, "3"):
        job = long_job("no-image")
        job.wait("three pods", lambda: len([pod for pod in job.watch.pods() if pod["status"].get("startTime")]) == 3)
        late = pod_on(job, "3")
        said = rf"2 of 3 Running; {name_of(job, late)} on node-3: Pending, (ErrImagePull|ImagePullBackOff): .*refused"
        job.wait("failed pull", lambda: waits_for_image(job, late))
        check_others_say(job, late, said)
    job.check_end()


def test_a_pod_that_the_quota_forbids(long_job: StartJob) -> None:
    """After the deadline the waiting pods print a table and end. The Job makes new pods, which later find room."""
    job = long_job("quota", SUSPENDED, variable("START_TIMEOUT", "30"))
    there = start_two_of_three(job)
    absent = ({0, 1, 2} - set(there)).pop()
    command = f"kubectl --namespace=quota describe job/{JOB}"
    for index in there:
        job.wait_for_log(
            index, rf"waiting: 2 of 3 Running; 2 of 3 pods exist \({command} says why the Job creates no more\)"
        )
    shows = command.split()[1:]
    job.wait("reason in what the command shows", lambda: "exceeded quota" in job.space.cluster.kubectl(*shows))
    for index in there:
        log = job.wait_for_log(
            index, r"error: gave up after 30 s \(START_TIMEOUT\): 2 of 3 Running; 2 of 3 pods exist"
        ).string
        table = log[log.index("trainer id, pod and node, state of 2 pods:") :]
        first = job.pods_of(index)[0]["metadata"]["name"]
        assert f"{first} on node-" in table and f"{absent}  no pod" in table
    limit_pods(job.space, 6)
    job.wait_for_success()
    job.check_bits()
