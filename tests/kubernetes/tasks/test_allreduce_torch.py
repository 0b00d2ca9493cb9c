"""A job of k8s/allreduce on a real cluster whose workers run an example of PyTorch; pods of workers come and go."""

import re

from allreduce_run import BATCH, EPOCHS, SAMPLES, TorchRun
from chaos.allreduce import verdict


def test_a_pod_of_torch_is_deleted_and_another_is_added(allreduce_of_torch: TorchRun) -> None:
    run = allreduce_of_torch
    began = run.wait_for_generation(after=0, size=3)
    run.kill(run.pods("worker")[-1]["metadata"]["name"])
    run.space.kubectl("scale", "statefulset", "paddle-worker", "--replicas=4")
    last = run.wait_for_generation(after=began, size=4)
    (run.output / "hurry").touch()
    run.wait("end", lambda: {"Complete", "Failed"} & run.space.conditions("paddle-driver").keys(), 300)
    assert "Complete" in run.space.conditions("paddle-driver"), run.describe()
    assert run.newest() == (last, 4), run.describe()
    workers = run.ledger.begun
    steps = verdict.list_committed(workers)
    faults = verdict.check_samples(steps, EPOCHS, SAMPLES, BATCH)
    faults += verdict.check_agreement(workers) + verdict.check_generations(workers)
    assert not faults, run.describe()
    ended = [one.name for one in workers if one.commits[-1].step == max(steps)]
    assert (len(workers), len(ended)) == (5, 4), "four workers have the last commit, with equal parameters"
    # the number in brackets is the rank at the worker's start
    errors = re.findall(rf"^\[\d\]<stdout>:epoch {EPOCHS - 1}: 4 workers, error (.*)$", run.driver_log(), re.MULTILINE)
    assert len(errors) == 1 and float(errors[0]) < 0.02, run.driver_log()
