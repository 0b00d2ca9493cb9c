"""A job of k8s/allreduce on a real cluster: pods of workers come and go, and the pod of the driver is lost."""

import pytest
from allreduce_run import AllreduceRun

pytestmark = pytest.mark.elastic


def test_workers_and_driver_of_an_allreduce_job_are_lost_and_come(allreduce: AllreduceRun) -> None:
    run = allreduce
    run.wait_for_size(3)
    first = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in run.pods("worker")}
    gone = run.pods("worker")[-1]["metadata"]["name"]
    run.kill(gone)
    run.wait("another pod", lambda: {pod["metadata"]["uid"] for pod in run.pods("worker")} - set(first.values()))
    run.wait_for_size(3)
    run.space.kubectl("scale", "statefulset", "paddle-worker", "--replicas=5")
    run.wait_for_size(5)
    (driver,) = run.pods("driver")
    run.kill(driver["metadata"]["name"], "--force", "--grace-period=0")
    old = driver["metadata"]["uid"]
    run.wait("another driver", lambda: [pod for pod in run.pods("driver") if pod["metadata"]["uid"] != old])
    run.wait("goes on", lambda: "workers of a driver that has ended" in run.driver_log())
    run.kill(run.pods("worker")[-1]["metadata"]["name"], "--force", "--grace-period=0")
    step = run.step()
    run.wait("further steps", lambda: run.step() > step + 100)
    run.space.kubectl("scale", "statefulset", "paddle-worker", "--replicas=2")
    run.wait_for_size(2)
    (run.output / "stop").touch()
    run.wait("end", lambda: {"Complete", "Failed"} & run.space.conditions("paddle-driver").keys(), 300)
    assert "Complete" in run.space.conditions("paddle-driver"), run.describe()
    result = run.read("result")
    assert result["difference"] < 1e-9 and result["error"] < 0.06, result
    run.wait("end of the workers", lambda: not run.pods("worker"))
    replicas = run.space.kubectl("get", "statefulset", "paddle-worker", "-o", "jsonpath={.spec.replicas}")
    assert replicas == "0"
