"""Arranges whole jobs for the tests beside it: data by `prepare`, pods by localcluster, as k8s/job.yaml says."""

import re
import subprocess
import sys
from pathlib import Path

from localcluster import Cluster, load_job

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
TEST_LINE = re.compile(r"Test samples=(\d+) cost=\S+ Eval: classification_error_evaluator=(\S+)")


def prepare(volume, *flags, shards=PODS):
    """Fill <volume>/<job> for three trainers, or as many as there are shards, and return it."""
    settings = [f"--out_dir={volume / JOB}", f"--split_count={shards}", f"--examples_dir={ROOT / 'examples'}"]
    command = [sys.executable, "-m", "prepare", *settings, *flags]
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
