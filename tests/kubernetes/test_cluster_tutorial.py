"""The tutorial's own Job runs as it was published, with its config name, its nine variables and the default account."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_cluster import HERE, Cluster, Image, Namespace, Overlay, exit_codes, give, namespace_with_volume

JOB = "paddle-cluster-job"
CreateJob = Callable[..., Namespace]


@pytest.fixture(scope="module")
def text_volume(cluster: Cluster, overlay: Overlay, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume with quick_start's tree, made by the data job from synthetic text."""
    volume = tmp_path_factory.mktemp("quick_start")
    give(volume)
    variable = {"name": "DATA_SOURCE", "value": "synthetic"}
    synthetic = [{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": variable}]
    with namespace_with_volume(cluster, "text", volume) as space:
        jobs = overlay("text", ("paddle-data", synthetic))
        space.kubectl("create", "-k", jobs, "-l", "app.kubernetes.io/component in (volume, data)")
        space.wait_for_success("paddle-data")
    return volume


@pytest.fixture
def create_job(cluster: Cluster, image: Image, text_volume: Path) -> Iterator[CreateJob]:
    """create_job(edit=None): creates tutorial-job.yaml in namespace default."""
    space = Namespace(cluster, "default", text_volume)

    def create(edit: Callable[[dict[str, Any]], None] = lambda job: None) -> Namespace:
        text = (HERE / "tutorial-job.yaml").read_text()
        job = yaml.safe_load(text.replace("HOST_PATH", str(text_volume)).replace("IMAGE", image.reference))
        edit(job)
        space.create(job)
        return space

    yield create
    space.kubectl("delete", "job", JOB, "--ignore-not-found", "--timeout=120s")
    space.kubectl("delete", "role,rolebinding", "tutorial", "--ignore-not-found")


def test_without_a_role_binding_the_job_ends_and_names_the_missing_verb(create_job: CreateJob) -> None:
    def give_up_early(job: dict[str, Any]) -> None:
        job["spec"]["backoffLimit"] = 0
        job["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "START_TIMEOUT", "value": "10"})

    space = create_job(give_up_early)
    assert "Failed" in space.wait_for_end(JOB)
    log = space.logs(JOB)
    assert "list" in log
    assert "system:serviceaccount:default:default" in log
    assert "rbac.yaml" in log or "RoleBinding" in log
    assert "Traceback" not in log
    assert exit_codes(space.pods(JOB)) <= {77, 143}


def test_with_a_role_binding_for_the_default_account_it_completes_with_ids_by_sorted_ips(
    cluster: Cluster, create_job: CreateJob, text_volume: Path
) -> None:
    cluster.kubectl("create", "role", "tutorial", "--verb=list", "--resource=pods")
    cluster.kubectl("create", "rolebinding", "tutorial", "--role=tutorial", "--serviceaccount=default:default")
    space = create_job()
    space.wait_for_success(JOB)
    addresses = sorted(pod["status"]["podIP"] for pod in space.pods(JOB))
    assert len(addresses) == 3
    for trainer, address in enumerate(addresses):
        log = (text_volume / JOB / "output" / f"node_{trainer}" / "train.log").read_text()
        assert f"--pservers={','.join(addresses)} " in log
        pod = next(pod for pod in space.pods(JOB) if pod["status"]["podIP"] == address)
        assert f"--trainer_id={trainer} " in space.kubectl("logs", pod["metadata"]["name"])
    assert (text_volume / JOB / "output/pass-00009/done").is_file()
