"""The API server is down, or refuses the launchers: waiting launchers continue to wait, and training continues."""

import json
import time

import pytest
from infrastructure import (
    SUSPENDED,
    control,
    limit_pods,
    pod_on,
    start_two_of_three,
    without_api_server,
    without_registry,
)
from kubernetes_cluster import Cluster
from long_job import StartJob

DOWN_S = 60
LAUNCHERS = range(3)


@pytest.mark.short
@pytest.mark.alone
def test_an_api_server_that_is_down_while_the_launchers_wait(cluster: Cluster, long_job: StartJob) -> None:
    """At first one pod cannot pull its image, so two launchers wait when the server stops. Then the pod starts."""
    with without_registry(cluster, "3"):
        job = long_job("api-launch")
        job.wait("three pods", lambda: len([pod for pod in job.watch.pods() if pod["spec"].get("nodeName")]) == 3)
        late = pod_on(job, "3")
        for index in set(LAUNCHERS) - {late}:
            job.wait_for_log(index, "waiting: 2 of 3 Running")
        control(cluster, "stop-api")
    with without_api_server(cluster):
        for index in LAUNCHERS:
            job.wait_for_log(index, "waiting: the API server does not answer at https://.*Connection refused")
        time.sleep(DOWN_S)  # the fault itself
        assert job.attempt() == 0
    job.wait_for_success()
    job.check_pods()
    assert job.attempt() == 1
    job.check_bits()


@pytest.mark.alone
def test_an_api_server_that_is_down_while_they_train(cluster: Cluster, long_job: StartJob) -> None:
    job = long_job("api-train", passes=16)
    before = job.wait_for_batch(1, 50)
    with without_api_server(cluster):
        time.sleep(DOWN_S)  # the fault itself
        after = job.position()
    assert after and after > before
    job.wait_for_success(seconds=500)
    job.check_pods()
    assert job.attempt() == 1 and "API server" not in job.logs()
    job.check_bits()


def test_a_role_binding_that_is_taken_away_during_the_wait(long_job: StartJob) -> None:
    job = long_job("role-binding", SUSPENDED)
    waiting = start_two_of_three(job)
    binding = json.loads(job.space.kubectl("get", "rolebinding", "paddle", "-o", "json"))
    job.space.kubectl("delete", "rolebinding", "paddle")
    for index in waiting:
        job.wait_for_log(index, r'answered 403: pods is forbidden: .* cannot list resource "pods"')
        job.wait_for_log(
            index, "lacks the verb `list` on pods in namespace role-binding: run kubectl create -f k8s/rbac.yaml"
        )
    fresh = {"name": "paddle", "labels": binding["metadata"]["labels"]}
    job.space.create({**binding, "metadata": fresh})
    limit_pods(job.space, 3)
    job.check_end()
