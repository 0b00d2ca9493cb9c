"""Arranges whole jobs for the tests beside it: data by `prepare`, pods by localcluster, as k8s/job.yaml says."""

import re
import subprocess
import sys
from pathlib import Path

from localcluster import Cluster, load_job

ROOT = Path(__file__).parents[2]
JOB = "paddle-cluster-job"
PODS = 3
TEST_LINE = re.compile(r"Test samples=(\d+) cost=\S+ Eval: classification_error_evaluator=(\S+)")


def prepare(volume, *flags):
    """Fill <volume>/<job> for three trainers and return it."""
    settings = [f"--out_dir={volume / JOB}", f"--split_count={PODS}", f"--examples_dir={ROOT / 'examples'}"]
    command = [sys.executable, "-m", "prepare", *settings, *flags]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    return volume / JOB


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
