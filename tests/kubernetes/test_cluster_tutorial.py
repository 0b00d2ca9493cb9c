"""The Jobs of the tutorial and of the blog run as they were published; `published` makes the only edits."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_cluster import (
    BUILD_OPTIONS,
    HERE,
    REPOSITORY,
    Cluster,
    Image,
    Namespace,
    copy_volume,
    exit_codes,
    give,
)

JOB, DATA_JOB = "paddle-cluster-job", "paddle-data"
RATINGS = 600
CreateJob = Callable[..., Namespace]


def published(file: str, image: str, volume: Path) -> dict[str, Any]:
    """Return a Job of tutorial/ with our image, the test's volume, and a lower-case name, as Kubernetes demands."""
    job: dict[str, Any] = yaml.safe_load((HERE / "tutorial" / file).read_text())
    pod = job["spec"]["template"]["spec"]
    (container,), (mounted,) = pod["containers"], pod["volumes"]
    container["image"] = image
    pod["volumes"] = [{"name": mounted["name"], "hostPath": {"path": str(volume)}}]
    if job["metadata"]["name"] != job["metadata"]["name"].lower():
        (name,) = [each["value"] for each in container["env"] if each["name"] == "JOB_NAME"]
        job["metadata"]["name"] = job["spec"]["template"]["metadata"]["name"] = name
    return job


def create_anew(space: Namespace, job: dict[str, Any]) -> None:
    """Create a Job in place of one with the same name, which earlier tests of pages leave in the namespace default."""
    space.kubectl("delete", "job", job["metadata"]["name"], "--ignore-not-found", "--timeout=120s")
    space.create(job)


@pytest.fixture(scope="module")
def data_image(cluster: Cluster, image: Image) -> str:
    """Build the target `data` of the Dockerfile as docs/from-tutorial.md says."""
    reference = f"{cluster.registry}/paddle:data"
    cluster.run("docker", "build", *BUILD_OPTIONS, "-t", reference, "--target", "data", REPOSITORY)
    cluster.run("docker", "push", "-q", reference)
    return reference


@pytest.fixture(scope="module")
def text_volume(cluster: Cluster, data_image: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a volume with the files of quick_start, which the tutorial's data Job makes."""
    volume = tmp_path_factory.mktemp("quick_start")
    give(volume)
    space = Namespace(cluster, "default", volume)
    create_anew(space, published("data-job.yaml", data_image, volume))
    try:
        space.wait_for_success(DATA_JOB)
        assert "WARNING: DATA_SOURCE=synthetic: all samples are generated" in space.logs(DATA_JOB)
    finally:
        space.kubectl("delete", "job", DATA_JOB, "--timeout=120s")
    return volume


@pytest.fixture
def create_job(cluster: Cluster, image: Image) -> Iterator[CreateJob]:
    """create_job(file, volume, edit=None): creates a training Job of tutorial/ in namespace default."""
    space = Namespace(cluster, "default", Path())

    def create(file: str, volume: Path, edit: Callable[[dict[str, Any]], None] = lambda job: None) -> Namespace:
        job = published(file, image.reference, volume)
        edit(job)
        space.volume = volume
        create_anew(space, job)
        return space

    yield create
    space.kubectl("delete", "job", JOB, "--ignore-not-found", "--timeout=120s")
    space.kubectl("delete", "role,rolebinding", "tutorial", "--ignore-not-found")


def allow(cluster: Cluster, verb: str, resource: str) -> None:
    """Give the default account a right that every account of the tutorial's cluster had."""
    name = ["tutorial", "--dry-run=client", "-o", "yaml"]
    role = cluster.kubectl("create", "role", *name, f"--verb={verb}", f"--resource={resource}")
    cluster.kubectl("apply", "-f", "-", stdin=role)
    binding = cluster.kubectl("create", "rolebinding", *name, "--role=tutorial", "--serviceaccount=default:default")
    cluster.kubectl("apply", "-f", "-", stdin=binding)


def test_only_image_volume_and_an_impossible_name_are_edited() -> None:
    for file in sorted((HERE / "tutorial").glob("*.yaml")):
        ours, theirs = published(file.name, "image", Path("/volume")), yaml.safe_load(file.read_text())
        for job in (ours, theirs):
            pod = job["spec"]["template"]["spec"]
            pod["containers"][0]["image"] = pod["volumes"] = ""
            if theirs["metadata"]["name"] == "PaddlePaddle-cluster-job":
                job["metadata"]["name"] = job["spec"]["template"]["metadata"]["name"] = ""
        assert ours == theirs


def test_the_data_job_makes_the_tutorials_tree(text_volume: Path) -> None:
    job = text_volume / JOB
    assert (job / "quick_start/trainer_config.lr.py").is_file()
    assert all((job / f"{number}/data/train.txt").stat().st_size for number in range(3))


@pytest.mark.nightly
def test_the_blogs_data_job_is_told_that_it_writes_beside_its_volume(
    cluster: Cluster, data_image: str, tmp_path: Path
) -> None:
    """With the original data job, the Job succeeded, and its data were lost with its container."""
    give(tmp_path)
    space = Namespace(cluster, "default", tmp_path)
    create_anew(space, published("blog-data-job.yaml", data_image, tmp_path))
    try:
        space.wait("pod that has ended", lambda: exit_codes(space.pods(DATA_JOB)), job=DATA_JOB)
        assert exit_codes(space.pods(DATA_JOB)) == {78}
        log = space.logs(DATA_JOB)
        assert "OUT_DIR is '/home/work/mfs/paddle-cluster-job', which lies on no mounted volume" in log
        assert "(mounted are /mnt)" in log
        assert not list(tmp_path.iterdir())
    finally:
        space.kubectl("delete", "job", DATA_JOB, "--timeout=120s")


@pytest.mark.nightly
def test_without_a_role_binding_the_job_ends_and_names_the_missing_verb(
    create_job: CreateJob, text_volume: Path
) -> None:
    def give_up_early(job: dict[str, Any]) -> None:
        job["spec"]["backoffLimit"] = 0
        job["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "START_TIMEOUT", "value": "10"})

    space = create_job("training-job.yaml", text_volume, give_up_early)
    assert "Failed" in space.wait_for_end(JOB)
    log = space.logs(JOB)
    assert "list" in log
    assert "system:serviceaccount:default:default" in log
    assert "rbac.yaml" in log or "RoleBinding" in log
    assert "Traceback" not in log
    assert exit_codes(space.pods(JOB)) <= {77, 143}


def assert_that_ids_follow_the_sorted_ips(space: Namespace, volume: Path) -> None:
    addresses = sorted(pod["status"]["podIP"] for pod in space.pods(JOB))
    assert len(addresses) == 3
    for trainer, address in enumerate(addresses):
        log = (volume / JOB / "output" / f"node_{trainer}" / "train.log").read_text()
        assert f"--pservers={','.join(addresses)} " in log
        pod = next(pod for pod in space.pods(JOB) if pod["status"]["podIP"] == address)
        assert f"--trainer_id={trainer} " in space.kubectl("logs", pod["metadata"]["name"])
    assert (volume / JOB / "output/pass-00009/done").is_file()


def test_with_a_role_binding_for_the_default_account_it_completes_with_ids_by_sorted_ips(
    cluster: Cluster, create_job: CreateJob, text_volume: Path
) -> None:
    allow(cluster, "list", "pods")
    space = create_job("training-job.yaml", text_volume)
    space.wait_for_success(JOB)
    assert_that_ids_follow_the_sorted_ips(space, text_volume)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("verb", "resource", "found"),
    [
        ("list", "pods", "read the parallelism of its Job: the API server answered 403; the launcher assumes 3 pods"),
        ("list,get", "pods,jobs.batch", "CONF_PADDLE_GRADIENT_NUM is not set: this Job has 3 pods"),
    ],
    ids=["may list pods", "may read its Job, too"],
)
def test_the_blogs_three_variables_are_enough(
    cluster: Cluster, create_job: CreateJob, text_volume: Path, tmp_path: Path, verb: str, resource: str, found: str
) -> None:
    volume = tmp_path / "volume"
    copy_volume(text_volume, volume)
    give(volume)
    allow(cluster, verb, resource)
    space = create_job("blog-job.yaml", volume)
    space.wait_for_success(JOB)
    assert_that_ids_follow_the_sorted_ips(space, volume)
    log = space.logs(JOB)
    assert log.count(found) == 3
    assert "by default: CONF_PADDLE_NIC=eth0 CONF_PADDLE_PORT=7164" in log and "TRAIN_CONFIG_DIR=quick_start\n" in log


@pytest.mark.nightly
def test_the_tutorials_recommendation_of_january_2017_completes(
    cluster: Cluster, create_job: CreateJob, tmp_path: Path
) -> None:
    """The tutorial's reader copied the data to the volume by hand; here `prepare` makes them."""
    flags = ["--data_source=synthetic", "--synthetic_shape=ratings", f"--synthetic_rows={RATINGS}", "--split_count=3"]
    command = [sys.executable, "-m", "paddle", "prepare", f"--out_dir={tmp_path / JOB}", *flags]
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=120)
    give(tmp_path)
    allow(cluster, "list", "pods")
    space = create_job("recommendation-job.yaml", tmp_path)
    space.wait_for_success(JOB, seconds=300)
    assert_that_ids_follow_the_sorted_ips(space, tmp_path)
    assert "--config=trainer_config.py " in space.logs(JOB)
