"""A data job and a job of three pods from a bucket, with components/s3; the S3 server runs in the cluster."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes_cluster import (
    BASE,
    BUILD_OPTIONS,
    REPOSITORY,
    Cluster,
    Image,
    Namespace,
    Once,
    copy_manifests,
    give,
    namespace_with_volume,
    run,
)

sys.path.append(str(REPOSITORY / "tests"))
from s3_process import BINARY, KEY, SECRET

JOB = "paddle-cluster-job"
PORT = 7070
STEP = "app.kubernetes.io/component"


@pytest.fixture(scope="module")
def images(cluster: Cluster, image: Image, once: Once) -> tuple[str, str]:
    """Return the names of an image with the extra s3, and of one with the S3 server."""
    paddle, server = f"{image.reference}-s3", f"{cluster.registry}/versitygw:test"

    def build(directory: Path) -> None:
        run(REPOSITORY / "tests/s3/build")
        cluster.run("docker", "build", *BUILD_OPTIONS, "-t", paddle, "--build-arg", "EXTRAS=s3", REPOSITORY)
        shutil.copy(BINARY, directory / "versitygw")
        (directory / "Dockerfile").write_text(f"FROM {BASE}\nCOPY versitygw /usr/bin/versitygw\n")
        cluster.run("docker", "build", "-q", "-t", server, directory)
        for name in (paddle, server):
            cluster.run("docker", "push", "-q", name)

    once(f"bucket-images-of-{cluster.registry.replace(':', '-')}", build)
    return paddle, server


@pytest.fixture
def space(cluster: Cluster, tmp_path: Path) -> Iterator[Namespace]:
    volume = tmp_path / "volume"
    volume.mkdir()
    give(volume)
    with namespace_with_volume(cluster, "bucket", volume) as found:
        yield found


def start_server(space: Namespace, image: str, buckets: Path) -> str:
    """Start the S3 server on a directory of buckets, and return the address of its pod."""
    give(buckets)
    container = {
        "name": "s3",
        "image": image,
        "command": ["versitygw", "--quiet", f"--port=:{PORT}", "posix", "/buckets"],
        "env": [{"name": "ROOT_ACCESS_KEY", "value": KEY}, {"name": "ROOT_SECRET_KEY", "value": SECRET}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": "buckets", "mountPath": "/buckets"}],
    }
    volume = {"name": "buckets", "hostPath": {"path": str(buckets), "type": "Directory"}}
    spec = {"containers": [container], "volumes": [volume], "securityContext": {"runAsUser": 1000, "runAsGroup": 1000}}
    space.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "s3"}, "spec": spec})
    space.kubectl("wait", "--for=condition=Ready", "pod/s3", "--timeout=120s")
    return space.kubectl("get", "pod", "s3", "-o", "jsonpath={.status.podIP}").strip()


def write_manifests(directory: Path, image: str, address: str, **places: str) -> Path:
    """Write a kustomization with the component s3, in which the placeholders have the places and the address.

    Args: places: DATA_PATH, JOB_INPUT and OUTPUT_COPY.
    """
    tree = copy_manifests(directory, "s3")
    component = tree / "components/s3/kustomization.yaml"
    text = component.read_text().replace('s3://BUCKET/KEY"}', f'{places.get("DATA_PATH", "")}"}}')
    for name in ("JOB_INPUT", "OUTPUT_COPY"):
        line = f'{{name: {name}, value: ""}}'
        assert text.count(line) == 1
        text = text.replace(line, f'{{name: {name}, value: "{places.get(name, "")}"}}')
    component.write_text(text)
    policy = tree / "components/s3/network-policy.yaml"
    policy.write_text(policy.read_text().replace("192.0.2.1/32", f"{address}/32").replace("port: 443", f"port: {PORT}"))
    passes = {"name": "trainer", "env": [{"name": "NUM_PASSES", "value": "2"}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": JOB}}
    shorter = {**job, "spec": {"template": {"spec": {"containers": [passes]}}}}
    repository, _, tag = image.rpartition(":")
    own = {
        "resources": ["k8s"],
        "images": [{"name": "REPO/paddle", "newName": repository, "newTag": tag}],
        "namespace": "bucket",
        "patches": [{"patch": json.dumps(shorter)}],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(own))
    return directory


def create(space: Namespace, directory: Path, component: str) -> None:
    space.kubectl("create", "--validate=strict", "-k", directory, "-l", f"{STEP}{component}")


def train(space: Namespace, directory: Path) -> None:
    create(space, directory, "=training")
    space.wait_for_success(JOB, seconds=300)
    space.kubectl("delete", "job", JOB, "--timeout=120s")


def test_a_job_reads_a_bucket_and_its_output_goes_to_one(
    images: tuple[str, str], space: Namespace, tmp_path: Path
) -> None:
    """The data job reads a bucket, the job copies its output to one, and a second job starts from its copy."""
    paddle, server = images
    buckets, job = tmp_path / "buckets", space.volume / JOB
    (buckets / "data").mkdir(parents=True)
    (buckets / "jobs").mkdir()
    shutil.copy(REPOSITORY / "examples/digits/digits.csv.gz", buckets / "data")
    address = start_server(space, server, buckets)
    space.kubectl(
        "create", "secret", "generic", "paddle-s3", f"--from-literal=AWS_ACCESS_KEY_ID={KEY}",
        f"--from-literal=AWS_SECRET_ACCESS_KEY={SECRET}", f"--from-literal=AWS_ENDPOINT_URL=http://{address}:{PORT}",
        "--from-literal=AWS_REGION=us-east-1",
    )  # fmt: skip
    first = write_manifests(
        tmp_path / "first", paddle, address, DATA_PATH="s3://data/digits.csv.gz", OUTPUT_COPY="s3://jobs/one/output"
    )
    create(space, first, " in (access, volume)")
    policies = yaml.safe_load(space.kubectl("get", "networkpolicies", "-o", "yaml"))["items"]
    allowed = [item["spec"]["egress"][0]["to"][0]["ipBlock"]["cidr"] for item in policies if "egress" in item["spec"]]
    assert allowed == [f"{address}/32"] * 2
    create(space, first, "=data")
    space.wait_for_success("paddle-data")
    train(space, first)
    for name in ("pass-00001/done", "job.json", "records.jsonl"):
        assert (buckets / "jobs/one/output" / name).read_bytes() == (job / "output" / name).read_bytes()
    for place in job.iterdir():  # what JOB_INPUT needs is what the data job has made
        if place.name != "output":
            (shutil.copytree if place.is_dir() else shutil.copy)(place, buckets / "jobs/one" / place.name)
    give(buckets)
    shutil.rmtree(job)
    second = write_manifests(tmp_path / "second", paddle, address, JOB_INPUT="s3://jobs/one")
    train(space, second)
    assert (job / "output/pass-00001/done").is_file() and not (job / "0").exists()
    assert SECRET not in "".join(path.read_text(errors="replace") for path in (job / "output").rglob("*.log"))
