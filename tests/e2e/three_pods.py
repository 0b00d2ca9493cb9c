"""Arranges whole jobs for the tests beside it: data by `prepare`, pods by localcluster, as k8s/job.yaml says."""

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path

from paddle_cluster.localcluster import Cluster, load_job

ROOT = Path(__file__).parents[2]
JOB = "paddle-cluster-job"
PODS = 3
GATE = """
import pathlib, time
GATE = pathlib.Path({gate!r})

def is_shut():
    try:
        return len(list(GATE.parent.glob("output/pass-*/done"))) >= int(GATE.read_text())
    except FileNotFoundError:
        return False

"""
# where a launcher's constants are that tests change
CONSTANTS = {
    "FEW": "paddle_cluster/launcher/cluster/kubernetes.py",
    "LOOK_S": "paddle_cluster/launcher/control/returning.py",
}
TEST_LINE = re.compile(r"Test samples=(\d+) cost=\S+ Eval: classification_error_evaluator=(\S+)")


def prepare(volume, *flags, shards=PODS):
    """Fill <volume>/<job> for three trainers, or as many as there are shards, and return it."""
    settings = [f"--out_dir={volume / JOB}", f"--split_count={shards}", f"--examples_dir={ROOT / 'examples'}"]
    command = [sys.executable, "-m", "paddle", "prepare", *settings, *flags]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    return volume / JOB


def shut_gate(job, passes):
    """Let no pass begin when so many are saved, until the gate is opened: harm then always comes before the job's end.

    A pass whose samples were read ahead still ends. The first call is made before the job begins.
    """
    gate, provider = job / "gate", job / "digits" / "digits_provider.py"
    if not gate.exists():
        text = provider.read_text()
        held = text.replace(", cache=CacheType.CACHE_PASS_IN_MEM", "").replace(
            "@provider", GATE.format(gate=str(gate)) + "@provider"
        )
        wait = '    while "train" in file_name and is_shut():\n        time.sleep(0.01)\n    with open('
        changed = held.replace("    with open(", wait)
        assert len(changed) > len(held) > len(text)
        provider.write_text(changed)
    gate.with_suffix(".new").write_text(str(passes))
    gate.with_suffix(".new").replace(gate)


def open_gate(job):
    """Let all passes begin."""
    (job / "gate").unlink()


def start(volume, entrypoint=ROOT / "start.sh", *, pods=PODS, delay=(), **env):
    """Return the cluster of k8s/job.yaml with so many pods, to be used in a `with` statement.

    A program whose peer is lost waits 3 s for it. The pods' outputs are in <volume>/pods.
    """
    job = dataclasses.replace(load_job(str(ROOT / "k8s" / "job.yaml")), parallelism=pods, completions=pods)
    env = {"PADDLE_PEER_TIMEOUT": "3", **env}
    return Cluster(job, volumes={"mfs": volume}, entrypoint=entrypoint, env=env, logs=volume / "pods", delay=delay)


def programs(cluster, job, pods):
    """Return what each pod of a first attempt runs, and has a log of: p (pserver), t (trainer) or both."""
    lines = [str(cluster.processes(str(index))) for index in range(pods)]
    runs = ["p" * ("paddle pserver" in line) + "t" * ("paddle train" in line) for line in lines]
    nodes = [job / "output" / f"node_{index}" for index in range(pods)]
    logs = ["p" * (node / "server.log").exists() + "t" * (node / "train.log").exists() for node in nodes]
    assert runs == logs
    return runs


def make_launcher(directory, **constants):
    """Return the start.sh of a launcher with other constants: how many pods are FEW, how often it looks for others."""
    shutil.copytree(ROOT / "paddle_cluster", directory / "paddle_cluster")
    for name, value in constants.items():
        module = directory / CONSTANTS[name]
        changed = re.sub(rf"^{name} = [\d.]+", f"{name} = {value}", module.read_text(), count=1, flags=re.MULTILINE)
        assert changed != module.read_text()
        module.write_text(changed)
    shutil.copy(ROOT / "start_paddle.py", directory / "start_paddle.py")
    return shutil.copy(ROOT / "start.sh", directory / "start.sh")


def run_job(volume, *, deadline, **env):
    """Run k8s/job.yaml to its end and return the localcluster's result."""
    job = load_job(ROOT / "k8s" / "job.yaml")
    with Cluster(
        job,
        volumes={"mfs": volume},
        entrypoint=ROOT / "start.sh",
        env=env,
        logs=volume.with_name(f"{volume.name}-pods"),
    ) as cluster:
        return cluster.wait(deadline=deadline)


def ends(result):
    """Return each pod's exit code, or its last words where it failed: what an assertion should show."""
    return [pod.exit_code if pod.exit_code == 0 else pod.output[-3000:] for pod in result.pods]


def errors_in_tests(train_log):
    """Return (samples, error) of every test that a train.log reports, in order."""
    return [(int(found[1]), float(found[2])) for found in TEST_LINE.finditer(train_log.read_text())]
