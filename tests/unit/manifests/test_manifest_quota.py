"""The component quota: each shipped job fits into it, also where its trainers or workers are most."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from each import each

K8S = Path(__file__).parents[3] / "k8s"
HARD = yaml.safe_load((K8S / "components/quota/quota.yaml").read_text())["spec"]["hard"]
(LIMITS,) = yaml.safe_load((K8S / "components/quota/limits.yaml").read_text())["spec"]["limits"]
DEFAULTS = {"requests": LIMITS["defaultRequest"], "limits": LIMITS["default"]}
UNITS = {"m": 1e-3, "Mi": 2**20, "Gi": 2**30}
# file -> number of its pods; the numbers of trainers and workers are the most that the jobs allow
JOBS = {
    "static": {"job.yaml": 3, "data-job.yaml": 1},
    "tasks": {
        "tasks/etcd.yaml": 3,  # with three-members
        "tasks/master.yaml": 2,
        "tasks/pserver.yaml": 2,
        "tasks/trainer.yaml": 10,
        "tasks/data-job.yaml": 1,
    },
    "allreduce": {"allreduce/driver.yaml": 1, "allreduce/worker.yaml": 8},
}


def number(quantity: str) -> float:
    unit = next((unit for unit in UNITS if quantity.endswith(unit)), "")
    return float(quantity.removesuffix(unit)) * UNITS.get(unit, 1)


def workload(file: str) -> dict[str, Any]:
    (only,) = [one for one in yaml.safe_load_all((K8S / file).read_text()) if "template" in one.get("spec", {})]
    return only


def totals(containers: list[dict[str, Any]]) -> Counter[str]:
    """Return what the quota counts for containers that run together: their resources, completed by the LimitRange."""
    total = Counter[str]()
    for container in containers:
        for kind, default in DEFAULTS.items():
            resources = {**default, **container["resources"].get(kind, {})}
            total.update({f"{kind}.{name}": number(quantity) for name, quantity in resources.items()})
    return total


def counted(file: str) -> Counter[str]:
    """Return what the quota counts for a pod: the most of its init containers, which run alone, and of its others."""
    pod = workload(file)["spec"]["template"]["spec"]
    total = totals(pod["containers"]) | Counter(pods=1)
    for container in pod.get("initContainers", []):
        assert "restartPolicy" not in container  # one that would run beside the others
        total |= totals([container])
    return total


@each("job", JOBS)
@each("resource", [name for name in HARD if not name.startswith("services.")])
def test_each_job_fits_at_its_largest_and_leaves_room_for_replacements(job: str, resource: str) -> None:
    used = sum(pods * counted(file)[resource] for file, pods in JOBS[job].items())
    assert 1.2 * used <= number(HARD[resource])


def test_the_largest_numbers_are_those_of_the_jobs() -> None:
    assert workload("tasks/trainer.yaml")["metadata"]["annotations"]["paddle/trainers-max"] == "10"
    text = (K8S / "allreduce/kustomization.yaml").read_text()
    assert "- MAX_NP=8\n" in text
    assert workload("job.yaml")["spec"]["parallelism"] == JOBS["static"]["job.yaml"]


def test_a_pod_gets_a_value_for_everything_that_the_quota_demands() -> None:
    """The API server refuses a pod that says nothing about a resource of the quota."""
    given = {f"{kind}.{name}" for kind, default in DEFAULTS.items() for name in default}
    assert given == {name for name in HARD if name.startswith(("requests.", "limits."))}


@pytest.mark.parametrize("limit", ["cpu", "ephemeral-storage"])
def test_no_pod_gets_a_limit_that_slows_or_evicts_it(limit: str) -> None:
    assert limit not in LIMITS["default"] and "max" not in LIMITS
    assert f"limits.{limit}" not in HARD
