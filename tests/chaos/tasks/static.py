"""The static job with which task jobs are compared: k8s/job.yaml with three pods, the same data and config."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from chaos.tasks.job import stage
from chaos.tasks.model import measure_error
from chaos.tasks.plan import PASSES, ElasticTrial
from paddle_cluster.localcluster import Cluster, load_job

ROOT = Path(__file__).parents[3]
JOB = "paddle-cluster-job"
BOUND = 180.0  # maximum seconds of the job, also on a busy machine


def measure_static_error(directory: Path, data: Path, kind: str, mode: str) -> float:
    """Train the static job and return its test error.

    Args: directory: is created.  data: the output of `prepare` for three trainers.  kind: digits or texts.

    Raises: RuntimeError: the job fails.
    """
    volume = directory / "volume"
    shutil.copytree(data, volume / JOB)
    stage(volume / JOB / "config", data / "0" / "data")
    (volume / JOB / "config" / "data").unlink()
    job = load_job(ROOT / "k8s" / "job.yaml")
    flags = (f"--config_args=mode={mode},data={kind}", "--seed=1")
    job = dataclasses.replace(job, container=dataclasses.replace(job.container, args=flags))
    env = {"NUM_PASSES": str(PASSES), "TRAIN_CONFIG_DIR": "config", "TRAIN_CONFIG": "tasks_config.py"}
    entry = ROOT / "start.sh"
    with Cluster(job, volumes={"mfs": volume}, logs=directory / "pods", env=env, entrypoint=entry) as cluster:
        result = cluster.wait(BOUND)
    if not result.outcome.is_complete:
        raise RuntimeError(f"the static job failed: {result.outcome.message}; see {directory}")
    work = directory / "work"
    stage(work, data / "0" / "data")
    model = volume / JOB / "output" / f"pass-{PASSES - 1:05d}"
    error = measure_error(work, model, ElasticTrial("static", mode=mode, data=kind))
    if error is None:
        raise RuntimeError(f"the static job's model cannot be tested; see {model.parent / 'test.log'}")
    return error
