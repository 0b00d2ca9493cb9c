"""A node is drained with 30 s of grace: jobs with a master and all-reduce jobs lose at most the current batch."""

import json
import re

import pytest
from allreduce_run import AllreduceRun
from kubernetes_cluster import drained
from tasks_run import FILES, ElasticRun, Start

pytestmark = pytest.mark.elastic

GRACE = "--grace-period=30"
STORED = re.compile(r"stored a snapshot after (\d+) steps")
RESUMED = re.compile(r"server (\d+) goes on after (\d+) steps")
RETURNED = re.compile(r"is given back after (\d+) samples, which count as repeated")


def nodes(run: ElasticRun | AllreduceRun, kind: str) -> list[str]:
    return [pod["spec"]["nodeName"] for pod in run.pods(kind)]


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_drained_node_of_an_elastic_job_loses_no_step(start: Start, mode: str) -> None:
    """The checkpoint interval is so long that the drain alone makes servers write snapshots."""
    run = start(f"elastic-drained-{mode}", mode, interval="1h")
    run.wait_for_share(0.2)
    node = nodes(run, "pserver")[0]
    gone = [pod for pod in run.pods("pserver") if pod["spec"]["nodeName"] == node]
    with drained(run.space.cluster, node, GRACE):
        run.wait_for_share(0.5)
    run.check()
    assert not run.space.job("paddle-trainer")["status"].get("failed")
    for pod in gone:
        before = STORED.findall(run.watch.log(pod))
        resumed = find_resumed(run, pod["metadata"]["name"])
        print(f"{mode}: {pod['metadata']['name']} stored {before[-1]} steps, its replacement goes on after {resumed}")
        assert int(before[-1]) > 0 and resumed == [int(before[-1])]
    # A trainer that waits for a server may exceed the time limit of its task; then another trainer trains it again.
    assert repeated_samples(run) <= 3 * most_samples(run)


def test_a_drained_trainer_says_how_far_it_was(start: Start) -> None:
    """The gradients of the drained trainer stay in the values; another trainer repeats its task (docs/tasks.md)."""
    run = start("elastic-drained-trainer", "async")
    run.wait_for_share(0.2)
    node = nodes(run, "trainer")[0]
    gone = [pod for pod in run.pods("trainer") if pod["spec"]["nodeName"] == node]
    with drained(run.space.cluster, node, GRACE, "--pod-selector=app.kubernetes.io/component=trainer"):
        run.wait_for_share(0.5)
    run.check()
    assert not run.space.job("paddle-trainer")["status"].get("failed")
    returned = [int(samples) for pod in gone for samples in RETURNED.findall(run.watch.log(pod))]
    print(f"{len(gone)} trainers returned tasks after {returned} samples, repeated {repeated_samples(run)}")
    assert len(returned) <= len(gone) and all(samples <= most_samples(run) for samples in returned)
    assert repeated_samples(run) == sum(returned)


def repeated_samples(run: ElasticRun) -> int:
    """Return how many samples were trained again; check that each task that was given out was reported."""
    passes = run.record()["passes"]
    assert sum(one["unreported"] for one in passes) == 0
    found = sum(one["repeated"] for one in passes)
    print(f"{run.space.name}: {found} of {run.samples() * run.passes} samples were trained twice")
    return found


def find_resumed(run: ElasticRun, name: str) -> list[int]:
    """Return the numbers of steps from which the pods of this name in a StatefulSet continued."""
    logs = [run.watch.log(pod) for pod in run.watch.pods(gone=True) if pod["metadata"]["name"] == name]
    return [int(steps) for log in logs for _, steps in RESUMED.findall(log)]


def most_samples(run: ElasticRun) -> int:
    return -(-run.samples() // FILES) + 1


def test_a_drained_node_of_an_allreduce_job_loses_at_most_the_batch_in_hand(allreduce: AllreduceRun) -> None:
    run = allreduce
    run.wait_for_size(3)
    cluster = run.space.cluster
    oldest = run.pods("worker")[0]  # rank 0, which sends its state to new workers
    with drained(cluster, oldest["spec"]["nodeName"], GRACE):
        step = run.step()
        run.wait("further steps", lambda: run.step() > step + 50)
    run.wait_for_size(3)
    (run.output / "stop").touch()
    run.wait("end", lambda: {"Complete", "Failed"} & run.space.conditions("paddle-driver").keys(), 300)
    assert "Complete" in run.space.conditions("paddle-driver"), run.describe()
    lines = [json.loads(line) for line in (run.output / "generations").read_text().splitlines()]
    print(f"generations: {lines}")
    assert len(lines) >= 3, "the drain made no generation"
    assert all(one["trained"] - one["began"] <= 1 for one in lines), lines
    assert run.read("result")["difference"] < 1e-9
