"""Programs of ENTRY in three pods of localcluster, as k8s/job.yaml starts them, and what is reported of them."""

from __future__ import annotations

import dataclasses
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import until

from paddle_cluster.launcher.status import describe_job, read_trainers, tabulate_pods
from paddle_cluster.localcluster import Cluster, load_job
from trainer.records.records import read_records

ROOT = Path(__file__).parents[3]
JOB = "paddle-cluster-job"
PODS, DEADLINE_S = 3, 100.0
# a program in the syntax of Python 2; trainer 1 of the first attempt holds the pass 1
PROGRAM = """
import os, random, time
import paddle.v2 as paddle

def reader():
    samples = [map(float, line.split()) for line in open("data/train.txt")]
    random.shuffle(samples)
    for number, (a, b, c) in enumerate(samples):
        if number == 12 and passes == [0] and os.environ.get("HOLDS") and holds:
            print "holds"
            time.sleep(1000)
        yield [a, b], [c]
    passes.append(len(passes))

random.seed(int(os.environ["RANK"]))
passes, holds = [], os.environ["RANK"] == "1" and os.environ["PADDLE_ATTEMPT"].startswith("1.")
paddle.init(seed=3, log_period=2)
x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(2))
y = paddle.layer.data(name="y", type=paddle.data_type.dense_vector(1))
cost = paddle.layer.square_error_cost(input=paddle.layer.fc(input=x, size=1), label=y)
optimizer = paddle.optimizer.Momentum(momentum=0.5, learning_rate=0.002)
parameters = paddle.parameters.create(cost)
trainer = paddle.trainer.SGD(cost, parameters, optimizer, is_local=False)
trainer.train(paddle.batch(reader, 4), num_passes=3)
if os.environ["RANK"] == "0":
    with open(os.path.join(os.environ["PADDLE_OUTPUT"], "model.tar"), "wb") as file:
        parameters.to_tar(file)
print "trained", passes
"""
# a program that knows nothing of this project
PLAIN = """
import os, sys, time
for batch in range(1, 4):
    print(f"Pass=0 Batch={batch} AvgCost={1 / batch} samples={8 * batch} Passes=2 error=0.5", flush=True)
if os.environ["RANK"] == "1":
    print("holds", flush=True)
    sys.stdin.read()
    while not os.path.exists(os.path.join(os.environ["PADDLE_OUTPUT"], "go")):
        time.sleep(0.05)
print("Pass=1 Batch=3 AvgCost=0.125 samples=24 Passes=2 error=0.25", flush=True)
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Cluster]:
    """A function that makes the cluster of a job with a program."""

    def make(name: str, program: str, entry: str, **environ: str) -> Cluster:
        job = tmp_path / name / JOB
        (job / "program").mkdir(parents=True)
        (job / "program" / "train.py").write_text(program)
        for number in range(PODS):
            (job / str(number) / "data").mkdir(parents=True)
            rows = [(k % 5 / 5, k % 3 / 3, (k % 5 / 5 - number * k % 3 / 3)) for k in range(20)]
            (job / str(number) / "data" / "train.txt").write_text("".join(f"{a} {b} {c}\n" for a, b, c in rows))
        spec = dataclasses.replace(load_job(str(ROOT / "k8s" / "job.yaml")), parallelism=PODS, completions=PODS)
        env = {"ENTRY": entry, "TRAIN_CONFIG_DIR": "program", "CONF_PADDLE_METRICS_PORT": "0", **environ}
        return Cluster(
            spec,
            volumes={"mfs": tmp_path / name},
            entrypoint=ROOT / "start.sh",
            env=env,
            logs=tmp_path / name / "pods",
            backoff_seconds=0.1,
        )

    return make


def finish(cluster: Cluster) -> None:
    result = cluster.wait(DEADLINE_S)
    assert result.outcome.is_complete, [pod.output[-3000:] for pod in result.pods]


def values_of(path: Path) -> dict[str, bytes]:
    """{name: content} of a tar file of parameters."""
    with tarfile.open(path) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]


def test_a_killed_trainer_of_a_python_2_program_costs_no_bit(tmp_path: Path, start: Callable[..., Cluster]) -> None:
    """The job reports as one of `paddle train` does: in its middle, and at its end."""
    with start("whole", PROGRAM, "paddle run train.py") as cluster:
        finish(cluster)
    output = tmp_path / "again" / JOB / "output"
    with start("again", PROGRAM, "paddle run train.py", HOLDS="1") as cluster:
        cluster.wait_for_output("holds", DEADLINE_S, pod="1")
        until(lambda: {*read_trainers(output)} == {"0", "1", "2"}, seconds=DEADLINE_S)
        table = tabulate_pods([], output)
        cluster.kill("1")
        finish(cluster)
    assert [row.split()[0] for row in table] == ["ID", "0", "1", "2"]
    record = json.loads((output / "job.json").read_text())
    first, second = record["attempts"]
    assert (first["failure"]["trainer_id"], second["origin"]) == (1, "pass-00000")
    assert values_of(output / "model.tar") == values_of(tmp_path / "whole" / JOB / "output" / "model.tar")
    assert describe_job(output)[1].startswith("finished: pass 2 of passes 0 to 2, batch 5, 100% of the pass")
    page, passes = (output / "report.html").read_text(), [r for r in read_records(output) if r["kind"] == "pass"]
    assert [one["pass"] for one in passes] == [0, 1, 2]
    assert all(f"{one['cost']:g}" in page for one in passes)
    assert " Pass=2 Batch=5 samples=20 AvgCost=" in (output / "node_2" / "train.log").read_text()


def test_the_lines_of_a_program_of_another_library_are_its_progress(
    tmp_path: Path, start: Callable[..., Cluster]
) -> None:
    output = tmp_path / "plain" / JOB / "output"
    with start("plain", PLAIN, "python train.py", CONF_PADDLE_PSERVER_NUM="0") as cluster:
        cluster.wait_for_output("holds", DEADLINE_S, pod="1")
        until(lambda: "1" in read_trainers(output), seconds=DEADLINE_S)
        held = read_trainers(output)["1"]
        (output / "go").touch()
        finish(cluster)
    assert (held["status"], held["batch"]) == ("training", 3)
    told = describe_job(output)[1]
    assert told.startswith("finished: pass 1 of passes 0 to 1, batch 3") and "cost 0.125, error 0.25," in told
    assert "0.125" in (output / "report.html").read_text()
