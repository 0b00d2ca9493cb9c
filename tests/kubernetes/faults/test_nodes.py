"""A node dies or is cut off: the other pods name trainer, pod and node, and wait for the node or an operator."""

import time
from datetime import datetime

import pytest
from infrastructure import check_said_within, crashed, cut_off, lonely_index, name_of, now, tainted
from kubernetes_cluster import Cluster
from long_job import LongJob, StartJob

NAMED_WITHIN_S = 15
TOLD_WITHIN_S = 180  # 12 s until the control plane notices a lost node, 30 s of toleration, and a reserve
COMMAND = r"kubectl taint node {node} node\.kubernetes\.io/out-of-service=nodeshutdown:NoExecute"


def survivors(job: LongJob, lost: int) -> list[int]:
    return [index for index in range(3) if index != lost]


def check_named(job: LongJob, lost: int, began: datetime) -> None:
    """Check that every other pod soon names the lost trainer with its pod and its node."""
    pattern = rf"trainer {lost} at \S+ is pod {name_of(job, lost)} on node-{job.node(lost)}$"
    for index in survivors(job, lost):
        check_said_within(job, index, pattern, NAMED_WITHIN_S, began)


def told_command(job: LongJob, lost: int) -> str:
    """Return the command that the other pods log while they wait."""
    pattern = COMMAND.format(node=f"node-{job.node(lost)}")
    one, other = (job.wait_for_log(index, pattern, seconds=TOLD_WITHIN_S)[0] for index in survivors(job, lost))
    assert one == other
    return one


@pytest.mark.short
@pytest.mark.alone
def test_a_node_that_is_cut_off_for_20_seconds_costs_no_pod(cluster: Cluster, long_job: StartJob) -> None:
    job = long_job("cut-20s")
    job.wait_for_batch(1, 50)
    lost = lonely_index(job, 1)
    with cut_off(cluster, job.node(lost)):
        began = now()
        job.let_end()
        time.sleep(20)  # the fault itself
    check_named(job, lost, began)
    job.check_end()
    assert job.failed() == 0


@pytest.mark.alone
def test_a_crashed_node_is_replaced_when_a_person_says_that_it_is_off(cluster: Cluster, long_job: StartJob) -> None:
    job = long_job("crash-taint")
    job.wait_for_batch(1, 50)
    lost = lonely_index(job, 1)
    with crashed(cluster, job.node(lost)):
        began = now()
        job.let_end()
        check_named(job, lost, began)
        with tainted(cluster, told_command(job, lost)):
            job.check_end(lost=(lost,))


@pytest.mark.alone
def test_a_crashed_node_that_is_started_again(cluster: Cluster, long_job: StartJob) -> None:
    job = long_job("crash-revive")
    job.wait_for_batch(1, 50)
    lost = lonely_index(job, 2)
    with crashed(cluster, job.node(lost)):
        began = now()
        job.let_end()
        check_named(job, lost, began)
        told_command(job, lost)
    job.check_end(lost=(lost,))


@pytest.mark.alone
def test_a_node_cut_off_for_good_with_trainer_0_writes_nothing_any_more(cluster: Cluster, long_job: StartJob) -> None:
    """The pod of the node still runs and reaches the volume (a disk of this machine), but must not write any more."""
    job = long_job("cut-for-good")
    job.wait_for_batch(1, 50)
    lost = lonely_index(job, 0)
    with cut_off(cluster, job.node(lost)):
        began = now()
        job.let_end()
        check_named(job, lost, began)
        with tainted(cluster, told_command(job, lost)):
            job.check_end(lost=(lost,))
