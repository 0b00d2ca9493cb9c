"""Programs of ENTRY in three pods of localcluster: those of examples/any-program, as k8s/job.yaml starts them."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest

from paddle_cluster.localcluster import Cluster, load_job

ROOT = Path(__file__).parents[3]
JOB = "paddle-cluster-job"
PODS, EPOCHS, DEADLINE_S = 3, 6, 100.0
# holds the epoch 3 of the first attempt until a process is lost
HOLD = """    if epoch == 3 and begin == 0 and os.environ["RANK"] == "1":
        import time
        print("holds", flush=True)
        time.sleep(1000)
"""


def make_volume(root: Path, name: str) -> Path:
    """Return the directory of the job, with three shards and the program `name`, whose first attempt is held."""
    job = root / JOB
    shutil.copytree(ROOT / "examples" / "any-program", job / "program")
    program = job / "program" / name
    loop = "    for step in range(STEPS):\n"
    assert program.read_text().count(loop) == 1
    program.write_text(program.read_text().replace(loop, HOLD + loop))
    for number in range(PODS):
        (job / str(number) / "data").mkdir(parents=True)
        rows = "".join(",".join([*(["16"] * digit + ["0"] * (64 - digit)), str(digit)]) + "\n" for digit in range(10))
        for name in ("train.txt", "test.txt"):
            (job / str(number) / "data" / name).write_text(rows * 5)
    return job


WITH_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is no package of this project")


@pytest.mark.parametrize("name", ["train.py", pytest.param("train_ddp.py", marks=WITH_TORCH)])
def test_a_program_of_three_pods_goes_on_from_its_checkpoint_when_one_is_killed(name: str, tmp_path: Path) -> None:
    job = make_volume(tmp_path, name)
    spec = dataclasses.replace(load_job(str(ROOT / "k8s" / "job.yaml")), parallelism=PODS, completions=PODS)
    env = {"ENTRY": f"python {name} {EPOCHS}", "CONF_PADDLE_PSERVER_NUM": "0", "TRAIN_CONFIG_DIR": "program"}
    env["OMP_NUM_THREADS"] = "1"  # of torch: three processes share this machine
    cluster = Cluster(
        spec,
        volumes={"mfs": tmp_path},
        entrypoint=ROOT / "start.sh",
        env={**env, "CONF_PADDLE_METRICS_PORT": "0"},
        logs=tmp_path / "pods",
        backoff_seconds=0.1,
    )
    with cluster:
        cluster.wait_for_output("holds", DEADLINE_S, pod="1")
        cluster.kill("1")
        result = cluster.wait(DEADLINE_S)
    assert result.outcome.is_complete, [pod.output[-3000:] for pod in result.pods]
    assert sorted(pod.exit_code for pod in result.pods) == [0, 0, 0, 137]  # the pods 0 and 2 have stayed
    record = json.loads((job / "output" / "job.json").read_text())
    first, second = record["attempts"]
    assert record["finished"] and (first["origin"], second["origin"]) == ("", "pass-00002")
    assert first["failure"]["trainer_id"] == 1
    epochs = re.findall(r"^epoch (\d+)", (job / "output" / "node_0" / "train.log").read_text(), re.MULTILINE)
    assert epochs == ["3", "4", "5"]
