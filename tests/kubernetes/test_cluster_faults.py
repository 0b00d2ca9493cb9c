"""Faults on a cluster, and the messages that the user then sees."""

import json
import re
from typing import Any

from kubernetes_cluster import Cluster, Scenario, blocking_pod, exit_codes, give

JOB = "paddle-cluster-job"
CONTAINER = "/spec/template/spec/containers/0"
TRY = "touch $each 2>/dev/null && echo $each"
GRACE_S = 90  # seconds; terminationGracePeriodSeconds of job.yaml


def replace(path: str, value: Any) -> dict[str, Any]:
    """Return an operation of a JSON patch that sets a value, also if it is absent."""
    return {"op": "add", "path": path, "value": value}


def most_of_a_node(cluster: Cluster) -> str:
    """Return a memory request that is so large that only one such pod fits on a node."""
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    memory = min(int(node["status"]["allocatable"]["memory"].removesuffix("Ki")) for node in nodes)
    return f"{memory * 6 // 10}Ki"


def test_launchers_say_why_a_pod_is_pending_and_go_on_when_room_is_made(cluster: Cluster, scenario: Scenario) -> None:
    requests = {"memory": most_of_a_node(cluster)}
    with blocking_pod(cluster, requests):
        space = scenario("memory", replace(f"{CONTAINER}/resources", {"requests": requests}))
        reason = r"2 of 3 Running; paddle-cluster-job-\S+: Pending, Unschedulable: .*Insufficient memory"
        said = space.wait_for_log(JOB, reason)
        assert "Traceback" not in said.string
    space.wait_for_success(JOB)


def test_an_arbitrary_uid_runs_the_job_on_its_read_only_root(scenario: Scenario) -> None:
    uid = 1234567
    # the files of the Secret are readable for the fsGroup only
    user = {"runAsNonRoot": True, "runAsUser": uid, "runAsGroup": uid, "fsGroup": uid}
    space = scenario("uid", replace("/spec/template/spec/securityContext", user), owner=uid)
    space.wait_for_success(JOB)
    owners = {path.stat().st_uid for path in (space.volume / JOB / "output").rglob("*")}
    assert owners == {uid}


def test_a_pod_changes_only_its_output_and_a_deleted_job_ends_inside_the_grace_period(scenario: Scenario) -> None:
    """Every job could change the config and the checkpoints of every other job."""
    space = scenario("delete", replace(f"{CONTAINER}/args", ["--num_passes=100000"]))
    (space.volume / "other").mkdir()
    space.wait_for_log(JOB, r"Pass=1 ")
    inside = (
        f"cd /home/jobpath; ls; ls {JOB}; for each in x {JOB}/x {JOB}/digits/x {JOB}/0/x {JOB}/output/x; do {TRY}; done"
    )
    said = space.kubectl("exec", space.pods(JOB)[0]["metadata"]["name"], "--", "sh", "-c", inside).split()
    assert said == [JOB, "0", "1", "2", "digits", "output", "prepared.json", f"{JOB}/output/x"]
    space.kubectl("delete", "job", JOB, "--cascade=background", "--wait=false")
    # a pod whose processes ignore SIGTERM is listed until SIGKILL, at the end of the grace period
    space.wait("end of all pods", lambda: not space.pods(JOB), job=JOB, seconds=GRACE_S - 10)


def test_without_the_secret_a_job_fails_and_says_the_command(scenario: Scenario) -> None:
    space = scenario("no-secret", secret=False)
    conditions = space.wait_for_end(JOB)
    assert conditions["Failed"]["reason"] == "PodFailurePolicy", conditions
    assert "run kubectl create secret generic paddle-secret --from-literal=secret=" in space.logs(JOB)
    assert exit_codes(space.pods(JOB)) <= {78, 143, 137}


def test_a_job_without_a_secret_runs_where_somebody_asks_for_it(scenario: Scenario) -> None:
    asked = {"name": "PADDLE_WITHOUT_SECRET", "value": "1"}
    space = scenario("any-peer", {"op": "add", "path": f"{CONTAINER}/env/-", "value": asked}, secret=False)
    space.wait_for_success(JOB)
    assert len(re.findall("WARNING: no secret .*: anyone who reaches ports 7164 to 7167", space.logs(JOB))) == 3


def test_a_configuration_exit_code_fails_the_job_at_once(scenario: Scenario) -> None:
    space = scenario("config", replace(f"{CONTAINER}/args", ["--no_such_flag=1"]))
    conditions = space.wait_for_end(JOB)
    assert conditions["Failed"]["reason"] == "PodFailurePolicy", conditions
    assert re.search(r"no_such_flag", space.logs(JOB))
    assert "Traceback" not in space.logs(JOB)
    # no replacement: at most one pod for each index
    assert len(space.pods(JOB)) <= 3


def test_a_retriable_exit_code_is_retried_and_the_job_recovers(scenario: Scenario) -> None:
    space = scenario("retry", owner=0)
    space.wait("pod that ended with 74", lambda: 74 in exit_codes(space.pods(JOB)), job=JOB)
    assert "Failed" not in space.conditions(JOB)
    log = space.logs(JOB)
    assert re.search(r"uid.*1000", log) and "Traceback" not in log
    give(space.volume)
    space.wait_for_success(JOB, seconds=240)
