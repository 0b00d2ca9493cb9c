"""Which pods count, and who is who: faults S1-S4 and S6-S9 of the tutorial's launcher."""

import pytest
from builders import pod, pod_environment, podlist

from paddle_base.runtime.errors import ConfigError
from paddle_cluster.launcher.cluster.pods import (
    check_pods,
    in_id_order,
    own_pods,
    own_trainer_id,
    parse_pods,
    table_of_pods,
    why_not_ready,
)
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import TABLE_ROWS
from start_paddle import getIdMap, isPodAllRunning

A, B, C = pod("10.0.0.1"), pod("10.0.0.2"), pod("10.0.0.3")


@pytest.fixture(autouse=True)
def three_pods_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONF_PADDLE_GRADIENT_NUM", "3")


NOT_ALL_RUNNING = {
    "S1: fewer than expected, all of them running": ([A, B], "2 of 3 Running; 2 of 3 pods exist"),
    "S2: none at all": ([], "0 of 3 Running; 0 of 3 pods exist"),
    "one pending": ([A, B, C.pending()], "10-0-0-3: Pending"),
    "unschedulable": (
        [A, B, C.pending("Unschedulable", "0/3 nodes are available: 3 Insufficient memory.")],
        "2 of 3 Running; paddle-cluster-job-10-0-0-3: Pending, Unschedulable: 0/3 nodes are available",
    ),
    "held back by a gate of a queue": (
        [A, B, C.pending("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")],
        "2 of 3 Running; paddle-cluster-job-10-0-0-3: Pending, SchedulingGated: Scheduling is blocked",
    ),
    "image cannot be pulled": ([A, B, C.waiting("ErrImagePull", "no such tag")], "Pending, ErrImagePull: no such tag"),
    "S3: one of three failed": ([A, B, C.phase("Failed")], "2 of 3 Running; paddle-cluster-job-10-0-0-3: Failed"),
    "one of three succeeded": ([A, B, C.phase("Succeeded")], "2 of 3 Running"),
    "S4: one is terminating, phase still Running": ([A, B, C.terminating()], "10-0-0-3: Terminating"),
    "its node has stopped reporting": (
        [A, B, C.on_node("n3").ready(False, containers=True)],
        "2 of 3 Running; paddle-cluster-job-10-0-0-3 on n3: Running, but its node n3 does not report",
    ),
    "given up with its node, and the Job makes no other": (
        [A, B, C.on_node("n3").ready(False, containers=True).terminating()],
        "stays off, run kubectl taint node n3 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
    ),
    "terminating for longer than its grace period": (
        [A, B, C.on_node("n3").terminating("2026-11-21T07:00:00Z")],
        "Terminating, but its node n3 does not report",
    ),
    "one has no IP yet": ([A, B, pod("", "late")], "late: Running, no IP yet"),
    "one more than expected": ([A, B, C, pod("10.0.0.4")], "4 pods exist"),
    "one more, still pending": ([A, B, C, pod("10.0.0.4").pending()], "parallelism and completions"),
    "two with one IP": ([A, B, pod("10.0.0.2", "twin")], "have the IP 10.0.0.2"),
    "two with one index": ([A.indexed(0), B.indexed(1), C.indexed(1)], "have the completion index 1"),
    "an index beyond the number": (
        [A.indexed(0), B.indexed(1), C.indexed(3)],
        "beyond the number of pods: CONF_PADDLE_",
    ),
    "an index of ten digits": ([A.indexed(0), B.indexed(1), C.indexed(9999999999)], "beyond the number of pods"),
    "an index that one pod lacks": (
        [A.indexed(0), B, C.indexed(2)],
        "paddle-cluster-job-10-0-0-2 has no completion index, but other pods of the Job have one",
    ),
}


@pytest.mark.parametrize(("pods", "said"), NOT_ALL_RUNNING.values(), ids=NOT_ALL_RUNNING.keys())
def test_the_set_is_not_complete(pods: list, said: str) -> None:
    """The original compared the list with itself (running == len(items)), so it started with most of these."""
    assert not isPodAllRunning(podlist(*pods))
    assert said in why_not_ready(parse_pods(podlist(*pods)), 3)


ALL_RUNNING = {
    "a container that is not ready, for a reason of its own": C.ready(False, containers=False),
    "a readiness gate that is not met": C.ready(False, containers=True, reason="ReadinessGatesNotReady"),
    "ready": C.ready(True, containers=True),
}


@pytest.mark.parametrize("third", ALL_RUNNING.values(), ids=ALL_RUNNING.keys())
def test_only_a_silent_node_makes_a_running_pod_not_count(third: dict) -> None:
    assert isPodAllRunning(podlist(A, B, third))


def test_a_pod_inside_its_grace_period_needs_nobody() -> None:
    assert why_not_ready(parse_pods(podlist(A, B, C.on_node("n3").terminating())), 3) == (
        "2 of 3 Running; paddle-cluster-job-10-0-0-3 on n3: Terminating"
    )


def test_a_pod_that_was_never_created_comes_with_the_command_that_shows_why() -> None:
    said = why_not_ready(parse_pods(podlist(A, B)), 3, "kubectl describe job/j")
    assert said == "2 of 3 Running; 2 of 3 pods exist (kubectl describe job/j says why the Job creates no more)"


def test_the_table_of_pods_has_every_index_and_what_is_wrong_with_it() -> None:
    pods = [A.indexed(0).on_node("n1"), C.indexed(2).on_node("n3").waiting("ErrImagePull", "no route to host")]
    assert table_of_pods(parse_pods(podlist(*reversed(pods))), 3).splitlines() == [
        "  trainer id, pod and node, state of 2 pods:",
        "      0  paddle-cluster-job-10-0-0-1 on n1  Running",
        "      1  no pod                             ",
        "      2  paddle-cluster-job-10-0-0-3 on n3  Pending, ErrImagePull: no route to host",
    ]


def test_of_many_pods_the_table_has_those_that_do_not_count() -> None:
    pods = [pod(f"10.0.1.{number}").indexed(number) for number in range(100)]
    pods[40:70] = [one.phase("Pending") for one in pods[40:70]]
    lines = table_of_pods(parse_pods(podlist(*pods)), 100).splitlines()
    assert len(lines) == 1 + TABLE_ROWS + 1
    assert lines[1].split() == ["40", "paddle-cluster-job-10-0-1-40", "Pending"]
    assert lines[-1] == "  ... and 10 more"


def test_the_peers_in_a_message_are_named_with_pod_and_node() -> None:
    ids = getIdMap(podlist(A.indexed(0), B.indexed(1).on_node("n2"), pod("110.0.0.2").indexed(2)))
    message = "trainer 1 at 10.0.0.2 is lost: it sent nothing for 12.1 s, says 10.0.0.1:7164"
    config = LauncherConfig.from_env(pod_environment())
    assert ids.describe_peers(message, config) == ["trainer 1 at 10.0.0.2 is pod paddle-cluster-job-10-0-0-2 on n2"]


def test_a_peer_is_also_named_where_the_message_has_its_name_in_the_service() -> None:
    ids = getIdMap(podlist(A.indexed(0), B.indexed(1).on_node("n2")))
    config = LauncherConfig.from_env(pod_environment(CONF_PADDLE_POD_SERVICE="pods", JOB_COMPLETION_INDEX="0"))
    name = "paddle-cluster-job-1.pods"
    for where in (name, "10.0.0.2"):
        (said,) = ids.describe_peers(f"no answer of {where}:7164", config)
        assert said == f"trainer 1 at {where} is pod paddle-cluster-job-10-0-0-2 on n2"


def test_exactly_the_expected_number_of_running_pods_is_all_running() -> None:
    assert isPodAllRunning(podlist(A, B, C))


def test_S3_a_failed_pod_of_an_earlier_attempt_does_not_hold_up_its_replacement() -> None:
    """The original required every listed pod to run, so that one retried pod made all others wait for ever."""
    assert isPodAllRunning(podlist(A, B, pod("10.0.0.9").phase("Failed"), C))


def test_S4_a_terminating_pod_does_not_count_beside_its_replacement() -> None:
    """The original counted it: its phase stays Running until it is gone."""
    assert isPodAllRunning(podlist(A, B, C.terminating(), pod("10.0.0.4")))


def test_the_expected_number_must_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONF_PADDLE_GRADIENT_NUM")
    with pytest.raises(ConfigError, match="CONF_PADDLE_GRADIENT_NUM is not set"):
        isPodAllRunning(podlist(A))


def test_ids_are_the_places_of_the_sorted_ip_strings() -> None:
    pods = [pod(ip) for ip in ("10.0.0.9", "10.0.0.10", "10.0.0.2")]
    assert getIdMap(podlist(*pods)) == {"10.0.0.10": 0, "10.0.0.2": 1, "10.0.0.9": 2}


def test_S6_S9_ids_and_shards_follow_the_completion_index_where_pods_have_one() -> None:
    """The original sorted IPs, so a replaced pod with a new IP shifted the ids (and shards, S9) of all others."""
    before = getIdMap(podlist(pod("10.0.0.5").indexed(0), pod("10.0.0.6").indexed(1), pod("10.0.0.7").indexed(2)))
    after = getIdMap(podlist(pod("10.0.0.1").indexed(2), pod("10.0.0.5").indexed(0), pod("10.0.0.6").indexed(1)))
    assert after["10.0.0.5"] == before["10.0.0.5"] == 0
    assert after["10.0.0.6"] == before["10.0.0.6"] == 1
    assert after["10.0.0.1"] == before["10.0.0.7"] == 2


def test_the_index_is_also_read_from_the_annotation() -> None:
    annotated = pod("10.0.0.1")
    annotated["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": "7"}
    assert getIdMap(podlist(annotated)) == {"10.0.0.1": 7}


@pytest.mark.parametrize("text", ["-1", "x", "\u0661", "1.5", "9" * 19])
def test_an_index_that_is_no_number_is_not_taken_for_a_missing_one(text: str) -> None:
    """All pods then got ids by their addresses, although the others have an index."""
    odd = B.indexed(1)
    odd["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = text
    pods = podlist(A.indexed(0), odd)
    with pytest.raises(ValueError, match=r"items\[1\]: job-completion-index is .*, expected a number of 0 or more"):
        parse_pods(pods)


def test_S7_every_pod_derives_the_same_ids_whatever_order_the_list_has() -> None:
    """The original joined the pservers in dict order; with another insertion order the blocks go to other servers."""
    assert in_id_order(getIdMap(podlist(C, A, B))) == in_id_order(getIdMap(podlist(A, B, C)))


def test_only_live_pods_get_an_id() -> None:
    assert getIdMap(podlist(A, B.terminating(), C.phase("Failed"))) == {"10.0.0.1": 0}


def test_pods_of_an_earlier_job_of_the_same_name_are_left_out() -> None:
    old = [pod("10.0.0.7").of_job("old"), pod("10.0.0.8").of_job("old")]
    config = LauncherConfig.from_env(pod_environment(POD_IP="10.0.0.1"))
    assert own_pods(config, podlist(*old, A, B)) == podlist(A, B)


def test_this_pod_is_found_by_its_name_before_its_ip_is_listed() -> None:
    own = pod("", "me").pending()
    config = LauncherConfig.from_env(pod_environment(POD_IP="10.0.0.1", POD_NAME="me"))
    assert own_pods(config, podlist(pod("10.0.0.9").of_job("old"), own)) == podlist(own)


def test_the_controller_is_also_read_from_the_owner_reference() -> None:
    owned = pod("10.0.0.1")
    owned["metadata"].update(
        labels={}, ownerReferences=[{"uid": "not", "controller": False}, {"uid": "job", "controller": True}]
    )
    assert parse_pods(podlist(owned))[0].controller_uid == "job"


def test_a_bare_answer_of_the_tutorial_is_enough() -> None:
    """Pods without metadata, as the tutorial's functions read them."""
    bare = {"items": [{"status": {"phase": "Running", "podIP": ip}} for ip in ("10.0.0.2", "10.0.0.1", "10.0.0.3")]}
    assert isPodAllRunning(bare)
    assert getIdMap(bare) == {"10.0.0.1": 0, "10.0.0.2": 1, "10.0.0.3": 2}


def test_S8_an_address_that_is_not_in_the_map_is_a_clear_error() -> None:
    """The original died with a KeyError when gethostbyname gave the loopback address."""
    from builders import pod_environment

    config = LauncherConfig.from_env(pod_environment(POD_IP="127.0.1.1"))
    with pytest.raises(ConfigError, match=r"127\.0\.1\.1 is not among .*POD_IP by the downward API"):
        own_trainer_id(config, getIdMap(podlist(A, B, C)))


def test_two_pods_with_one_uid_are_found_beside_pods_without() -> None:
    """The check looked at the most frequent UID only, which was the one that is missing."""
    uids = ["", "", "", "u-1", "u-2", "u-1"]
    items = [{"metadata": {"name": f"pod-{number}", "uid": uid}} for number, uid in enumerate(uids)]
    with pytest.raises(ValueError, match='two pods have the uid "u-1"'):
        check_pods(items)
    check_pods(items[:-1])
