from __future__ import annotations

from typing import Any

from each import each

from paddle_cluster.localcluster.api.objects import PodState, pod_object
from paddle_cluster.localcluster.pods.report import age_column, pod_row, status_column

PENDING = PodState(
    "j-1-abcde", "j", "u-1", "job-uid", index=1, created=1000.0, labels={"app": "x"}, annotations={"note": "y"}
)
RUNNING = PENDING.evolve(phase="Running", ip="127.9.0.2", started=1001.0)
FAILED = RUNNING.evolve(phase="Failed", exit_code=78, finished=1002.0)
UNSCHEDULABLE = PENDING.evolve(waiting=("Unschedulable", "0/1 nodes are available."))
TERMINATING = RUNNING.evolve(deleted=1010.0, grace_seconds=30.0)


def condition(pod: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(each for each in pod["status"]["conditions"] if each["type"] == kind)


def test_the_job_controllers_labels_and_owner_are_there():
    metadata = pod_object(PENDING)["metadata"]
    assert metadata["labels"] == {
        "app": "x",
        "job-name": "j",
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": "job-uid",
        "batch.kubernetes.io/controller-uid": "job-uid",
        "batch.kubernetes.io/job-completion-index": "1",
    }
    assert metadata["annotations"] == {"note": "y", "batch.kubernetes.io/job-completion-index": "1"}
    owner = metadata["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Job", "j", "job-uid", True)


def test_a_pod_without_an_index_has_no_index_label():
    metadata = pod_object(PENDING.evolve(index=None))["metadata"]
    assert "batch.kubernetes.io/job-completion-index" not in metadata["labels"] | metadata["annotations"]


def test_a_waiting_pod_has_a_reason_and_no_address():
    status = pod_object(PENDING)["status"]
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert "podIP" not in status


def test_a_pod_that_has_no_node_says_why():
    pod = pod_object(UNSCHEDULABLE)
    scheduled = condition(pod, "PodScheduled")
    assert (scheduled["status"], scheduled["reason"], scheduled["message"]) == (
        "False",
        "Unschedulable",
        "0/1 nodes are available.",
    )
    assert "containerStatuses" not in pod["status"] and "nodeName" not in pod["spec"]


def test_a_running_pod_is_ready_and_has_its_address():
    status = pod_object(RUNNING)["status"]
    assert (status["phase"], status["podIP"], status["podIPs"]) == ("Running", "127.9.0.2", [{"ip": "127.9.0.2"}])
    assert status["containerStatuses"][0]["state"] == {"running": {"startedAt": "1970-01-01T00:16:41Z"}}
    assert condition(pod_object(RUNNING), "Ready")["status"] == "True"


def test_a_terminating_pod_is_still_running_and_has_the_time_of_its_end():
    pod = pod_object(TERMINATING)
    assert pod["status"]["phase"] == "Running"
    assert pod["metadata"]["deletionTimestamp"] == "1970-01-01T00:17:20Z"


def test_a_failed_pod_has_its_exit_code_and_keeps_its_address():
    status = pod_object(FAILED)["status"]
    state = status["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"], status["podIP"]) == (78, "Error", "127.9.0.2")


def test_more_conditions_are_shown():
    pod = pod_object(RUNNING.evolve(conditions={"DisruptionTarget": ("True", "EvictionByEvictionAPI", "")}))
    assert condition(pod, "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"


STATUSES = {
    "ContainerCreating": PENDING,
    "Pending": UNSCHEDULABLE,
    "Running": RUNNING,
    "Terminating": TERMINATING,
    "Error": FAILED,
    "Completed": FAILED.evolve(phase="Succeeded", exit_code=0),
    "StartError": FAILED.evolve(exit_code=128),
}


@each(("status", "pod"), STATUSES.items())
def test_the_status_column_is_kubectls(status: str, pod: PodState):
    assert status_column(pod) == status


AGES = {0: "0s", 119: "119s", 120: "2m", 125: "2m5s", 600: "10m", 3600: "1h", 3720: "1h2m", -1: "0s"}


@each(("seconds", "text"), AGES.items())
def test_the_age_column_is_kubectls(seconds: float, text: str):
    assert age_column(seconds) == text


def test_a_row_shows_the_pod():
    assert pod_row(RUNNING, 1005.0, 9).split() == ["j-1-abcde", "1/1", "Running", "0", "5s", "127.9.0.2"]
    assert pod_row(PENDING, 1005.0, 9).split()[-1] == "<none>"
