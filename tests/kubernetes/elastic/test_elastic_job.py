"""A job whose trainers come and go, on a real cluster, by plain manifests; its pods are deleted while it trains."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chaos.elastic import verdict
from chaos.elastic.job import stage
from chaos.elastic.model import measure_error
from chaos.elastic.plan import ElasticTrial
from etcd_process import BINARY
from kubernetes_cluster import BASE, REPOSITORY, Cluster, Image, Namespace, Once, give, namespace_with_volume

HERE = Path(__file__).parent
FILES, PASSES = 36, 12  # tasks of a pass; job.yaml says the same
HIGHEST_ERROR = 0.065  # of the digits; the static job of tests/chaos/elastic has 0.048
PACE_S = 0.004  # of a sample: 16 s a pass for one trainer
JOBS = ("master", "pserver", "trainer")
ETCD_NODE = "node-1"
END_S = 240.0


pytestmark = [pytest.mark.elastic, pytest.mark.alone]


@pytest.fixture(scope="session")
def etcd_image(cluster: Cluster, once: Once) -> str:
    """An image of the etcd that tests/etcd/build compiles."""
    reference = f"{cluster.registry}/etcd:test"

    def build(directory: Path) -> None:
        shutil.copy(BINARY, directory / "etcd")
        (directory / "Dockerfile").write_text(f"FROM {BASE}\nCOPY etcd /usr/bin/etcd\n")
        cluster.run("docker", "build", "-q", "-t", reference, directory)
        cluster.run("docker", "push", "-q", reference)

    once(f"etcd-of-{cluster.registry.replace(':', '-')}", build)
    return reference


class ElasticRun:
    """The programs of job.yaml in a namespace, how far they are, and what is done to them."""

    def __init__(self, space: Namespace) -> None:
        self.space = space
        self.output = space.volume / "output"

    def record(self) -> dict[str, Any]:
        """What the master says of the job; empty before the first time."""
        return verdict.read_account(self.output)

    def share(self) -> float:
        """The share of the job's tasks that are done."""
        record = self.record()
        return (record["pass"] * FILES + record["done"]) / (FILES * PASSES) if record else 0.0

    def wait(self, what: str, condition: Callable[[], Any], seconds: float = 120) -> Any:
        """Wait for a condition; the deadline comes so long after the job last advanced."""
        share, end = -1.0, time.monotonic() + seconds
        while not (found := condition()):
            if (now := self.share()) != share:
                share, end = now, time.monotonic() + seconds
            if time.monotonic() > end:
                logs = "\n".join(self.space.logs(job)[-3000:] for job in JOBS)
                raise AssertionError(f"no {what}; {share:.0%} is done\n{self.space.describe('trainer')}\n{logs}")
            time.sleep(0.3)
        return found

    def wait_for_share(self, share: float) -> None:
        """Wait until so much of the job is done."""
        self.wait(f"{share:.0%} of the job", lambda: self.share() >= share)

    def running(self, job: str) -> list[str]:
        """The names of a Job's pods that run and are not deleted, the oldest first."""
        pods = sorted(self.space.pods(job), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        found = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return [pod["metadata"]["name"] for pod in found if pod["status"]["phase"] == "Running"]

    def leader(self) -> str:
        """The name of the master's pod that serves."""
        serving = [pod for pod in self.running("master") if " serving on " in self.space.log(pod)]
        return serving[0] if serving else ""

    def delete(self, pod: str, *options: str) -> None:
        """kubectl delete pod."""
        self.space.kubectl("delete", "pod", pod, "--wait=false", *options)

    def scale(self, trainers: int) -> None:
        """Another number of trainers, as a person sets it, and wait until there are so many."""
        patch = json.dumps({"spec": {"parallelism": trainers}})
        self.space.kubectl("patch", "job", "trainer", "--patch", patch)
        self.wait(f"{trainers} trainers", lambda: len(self.running("trainer")) == trainers)

    def check(self) -> None:
        """Wait for the end of every program, and judge."""
        for job in JOBS:
            self.wait(
                f"end of {job}", lambda job=job: {"Complete", "Failed"} & self.space.conditions(job).keys(), END_S
            )
        failed = [job for job in JOBS if "Complete" not in self.space.conditions(job)]
        assert not failed, f"{failed} failed\n{self.space.describe(failed[0])}"
        work = self.space.volume / "work"
        samples = sum(verdict.count_lines(work / "data").values())
        faults = verdict.check_account(self.record(), FILES, PASSES, samples)
        faults += verdict.check_logs({job: self.space.logs(job) for job in JOBS})
        assert not faults, f"{faults}\n{self.record()}"
        error = measure_error(work, self.output / f"pass-{PASSES - 1:05d}", ElasticTrial("cluster"))
        assert error is not None and error <= HIGHEST_ERROR


def make_data(volume: Path) -> None:
    """Put the digits and the config onto a volume: work/ is where trainers run."""
    command = [sys.executable, "-m", "prepare", "--split_count=1", f"--shard_files={FILES}", "--test_fraction=1/3"]
    where = [f"--out_dir={volume / 'digits'}", f"--examples_dir={REPOSITORY / 'examples'}"]
    subprocess.run([*command, *where], cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    stage(volume / "work", Path("../digits/0/data"))
    (volume / "etcd").mkdir()
    give(volume)


Start = Callable[..., ElasticRun]


@pytest.fixture
def start(cluster: Cluster, image: Image, etcd_image: str, tmp_path: Path) -> Iterator[Start]:
    """start(name, mode): the job in a namespace of that name."""
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o755)
    make_data(volume)
    nodes = json.loads(cluster.kubectl("get", "node", ETCD_NODE, "-o", "json"))["status"]["addresses"]
    address = next(one["address"] for one in nodes if one["type"] == "InternalIP")
    text = (HERE / "job.yaml").read_text()

    def fill(mode: str) -> str:
        values = {"ETCD_IMAGE": etcd_image, "ETCD_DIR": volume / "etcd", "IMAGE": image.reference, "NODE_IP": address}
        values |= {"NODE": ETCD_NODE, "MODE": mode, "PACE": PACE_S}
        filled = text
        for name, value in values.items():
            filled = re.sub(rf"\b{name}\b", str(value), filled)
        return json.dumps(yaml.safe_load(filled))

    made: list[Namespace] = []

    def create(name: str, mode: str = "async") -> ElasticRun:
        space = context.enter_context(namespace_with_volume(cluster, name, volume))
        made.append(space)
        space.kubectl("create", "-f", REPOSITORY / "k8s/pvc.yaml")
        space.kubectl("create", "-f", "-", stdin=fill(mode))
        return ElasticRun(space)

    with contextlib.ExitStack() as context:
        yield create
        for space in made:
            space.kubectl("delete", "deployments", "--all", "--timeout=120s")


def test_the_masters_pod_is_deleted(start: Start) -> None:
    run = start("elastic-master")
    run.wait_for_share(0.2)
    run.delete(run.wait("leader", run.leader))
    run.wait_for_share(0.4)
    run.delete(run.wait("leader", run.leader), "--force", "--grace-period=0")
    run.check()


def test_etcds_pod_is_killed(start: Start) -> None:
    run = start("elastic-etcd")
    run.wait_for_share(0.2)
    etcd = json.loads(run.space.kubectl("get", "pods", "-l", "app=etcd", "-o", "json"))["items"][0]["metadata"]["name"]
    run.delete(etcd, "--force", "--grace-period=0")
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
    run.delete(run.running("pserver")[-1], "--force", "--grace-period=0")
    run.check()


@pytest.mark.short
def test_all_of_it_happens_to_one_job(start: Start) -> None:
    run = start("elastic-all")
    run.wait_for_share(0.1)
    run.delete(run.wait("leader", run.leader), "--force", "--grace-period=0")
    run.wait_for_share(0.25)
    run.scale(5)
    run.delete(run.running("pserver")[0], "--force", "--grace-period=0")
    run.wait_for_share(0.5)
    etcd = json.loads(run.space.kubectl("get", "pods", "-l", "app=etcd", "-o", "json"))["items"][0]["metadata"]["name"]
    run.delete(etcd, "--force", "--grace-period=0")
    run.wait_for_share(0.7)
    run.scale(2)
    run.check()
