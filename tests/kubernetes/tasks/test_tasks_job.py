"""A job of k8s/tasks on a real cluster, whose trainers come and go; pods are deleted while it trains."""

import pytest
from tasks_run import ElasticRun, Start

pytestmark = pytest.mark.elastic


def kill_etcd(run: ElasticRun) -> None:
    (pod,) = run.running("etcd")
    run.kill(pod)


def test_the_masters_pod_is_deleted(start: Start) -> None:
    run = start("elastic-master")
    run.wait_for_share(0.2)
    run.delete(run.wait("leader", run.leader))
    run.wait_for_share(0.4)
    run.kill(run.wait("leader", run.leader))
    run.check()


def test_etcds_pod_is_killed(start: Start) -> None:
    run = start("elastic-etcd")
    run.wait_for_share(0.2)
    kill_etcd(run)
    run.wait_for_share(0.5)
    run.check()


def test_trainers_are_scaled_by_hand(start: Start) -> None:
    run = start("elastic-scaled")
    for share, trainers in ((0.1, 1), (0.2, 5), (0.5, 0), (0.5, 2)):
        run.wait_for_share(share)
        run.scale(trainers)
    run.check()


def test_a_parameter_servers_pod_is_deleted(start: Start) -> None:
    run = start("elastic-server", "sync")
    run.wait_for_share(0.2)
    run.delete(run.running("pserver")[0])
    run.wait_for_share(0.5)
    run.kill(run.running("pserver")[-1])
    run.check()


def test_a_node_is_drained(start: Start) -> None:
    run = start("elastic-drain")
    run.wait_for_share(0.2)
    leader = run.wait("leader", run.leader)
    (node,) = [pod["spec"]["nodeName"] for pod in run.pods("master") if pod["metadata"]["name"] == leader]
    cluster = run.space.cluster
    try:
        cluster.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
        assert not [pod for kind in ("master", "pserver", "trainer", "etcd") for pod in run.pods(kind)
                    if pod["spec"].get("nodeName") == node]  # fmt: skip
        run.wait_for_share(0.5)
    finally:
        cluster.kubectl("uncordon", node)
    run.check()
    assert not run.space.job("paddle-trainer")["status"].get("failed")


@pytest.mark.short
def test_all_of_it_happens_to_one_job(start: Start) -> None:
    run = start("elastic-all")
    run.wait_for_share(0.1)
    run.kill(run.wait("leader", run.leader))
    run.wait_for_share(0.25)
    run.scale(5)
    run.kill(run.running("pserver")[0])
    run.wait_for_share(0.5)
    kill_etcd(run)
    run.wait_for_share(0.7)
    run.scale(2)
    run.check()
