"""Programs of ENTRY in three pods of a cluster: any program, with components/any-program, and one of `paddle.v2`."""

import json
import re
import shutil
import tarfile
from pathlib import Path

from kubernetes_cluster import (
    REPOSITORY,
    Cluster,
    Namespace,
    Overlay,
    copy_manifests,
    copy_volume,
    give,
    namespace_with_volume,
)

JOB = "paddle-cluster-job"
EPOCHS = 8
# rank 1 waits in epoch 4 of the first attempt for the loss of its pod, and the others wait for rank 1
HOLD = """    if epoch == 4 and begin == 0 and RANK == 1:
        print("holds", flush=True)
        time.sleep(1000)
"""
LOOP = "    for step in range(STEPS):\n"


def test_a_program_goes_on_from_its_checkpoint_when_a_pod_is_deleted(
    cluster: Cluster, digits: Path, overlay: Overlay, tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    copy_volume(digits, volume)
    job = volume / JOB
    shutil.copytree(REPOSITORY / "examples/any-program", job / "program")
    program = job / "program/train.py"
    assert program.read_text().count(LOOP) == 1
    program.write_text(program.read_text().replace(LOOP, HOLD + LOOP))
    give(volume)
    patch = [{"op": "add", "path": "/spec/template/spec/containers/0/args", "value": ["--seed=1"]}]
    entry = {"name": "ENTRY", "value": f'echo "seed $PADDLE_INIT_SEED"; exec python train.py {EPOCHS}'}
    manifests = copy_manifests(tmp_path, "any-program")
    component = manifests / "components/any-program/kustomization.yaml"
    component.write_text(component.read_text().replace("{name: ENTRY, value: python train.py}", json.dumps(entry)))
    with namespace_with_volume(cluster, "program", volume) as space:
        made = overlay("program", (JOB, patch), manifests=manifests)
        space.kubectl("create", "-k", made, "-l", "app.kubernetes.io/component in (access, volume)")
        space.kubectl("create", "-k", made, "-l", "app.kubernetes.io/component=training")
        space.wait_for_log(JOB, "holds")
        held = next(pod for pod in space.pods(JOB) if "holds" in space.log(pod["metadata"]["name"]))
        space.kubectl("delete", "pod", held["metadata"]["name"], "--wait=false")
        space.wait_for_success(JOB, seconds=300)
        assert "Complete" in space.conditions(JOB)
    record = json.loads((job / "output/job.json").read_text())
    assert record["finished"] and record["attempts"][-1]["origin"] == "pass-00003"
    assert record["attempts"][0]["failure"]["trainer_id"] == 1
    log = (job / "output/node_0/train.log").read_text()
    assert log.startswith("seed 1\n")
    assert re.findall(r"^epoch (\d+)", log, re.MULTILINE) == ["4", "5", "6", "7"]
    (last,) = re.findall(rf"^epoch {EPOCHS - 1}: 3 processes, test error (\S+)$", log, re.MULTILINE)
    assert float(last) < 0.15


# Dense and sparse parameters, synchronous. In the job that is disturbed, rank 1 waits for the loss of its pod (after 10
# batches of pass 2), and later rank 2 for its SIGTERM (after 5 batches of pass 4).
V2_PROGRAM = """
import os, pathlib, random, signal, sys, time
import paddle.v2 as paddle

RANK, BEGAN_FROM = os.environ["RANK"], os.path.basename(os.environ["PADDLE_CHECKPOINT"])


def read():
    for line in pathlib.Path("data/train.txt").read_text().splitlines():
        *pixels, label = map(int, line.split(","))
        yield [pixel / 8 - 1 for pixel in pixels], [17 * at + pixel for at, pixel in enumerate(pixels)], label


def hold():
    print("holds", flush=True)
    time.sleep(1000)


def hold_until_sigterm():
    told, handler = [], signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *given: (told.append(True), handler(*given)))
    print("waits for SIGTERM", flush=True)
    while not told:
        time.sleep(0.1)


def handle(event):
    if isinstance(event, paddle.event.EndPass):
        print("end of pass", event.pass_id, flush=True)
    if isinstance(event, paddle.event.EndIteration) and sys.argv[1:] == ["disturbed"]:
        place = RANK, event.pass_id, event.batch_id
        if place == ("1", 2, 9) and not BEGAN_FROM:
            hold()
        if place == ("2", 4, 4) and BEGAN_FROM < "pass-00004":
            hold_until_sigterm()


paddle.init()
pixels = paddle.layer.data(name="pixels", type=paddle.data_type.dense_vector(64))
ids = paddle.layer.data(name="ids", type=paddle.data_type.integer_value_sequence(64 * 17))
label = paddle.layer.data(name="label", type=paddle.data_type.integer_value(10))
rows = paddle.attr.Param(name="rows", sparse_update=True)
known = paddle.layer.pooling(
    input=paddle.layer.embedding(input=ids, size=8, param_attr=rows), pooling_type=paddle.pooling.Sum()
)
hidden = paddle.layer.fc(input=[pixels, known], size=32, act=paddle.activation.Tanh())
predicted = paddle.layer.fc(input=hidden, size=10, act=paddle.activation.Softmax())
cost = paddle.layer.classification_cost(input=predicted, label=label)
parameters = paddle.parameters.create(cost)
optimizer = paddle.optimizer.Momentum(momentum=0.5, learning_rate=0.002)
random.seed(int(RANK))
trainer = paddle.trainer.SGD(cost, parameters, optimizer, is_local=False)
trainer.train(
    paddle.batch(paddle.reader.shuffle(read, 300), 32), num_passes=6, event_handler=handle,
    feeding={"pixels": 0, "ids": 1, "label": 2},
)
with open(os.path.join(os.environ["PADDLE_OUTPUT"], f"final-{RANK}.tar"), "wb") as file:
    parameters.to_tar(file)
"""


def start_v2(space: Namespace, overlay: Overlay, manifests: Path, command: str) -> None:
    """Create a job of three pods that run V2_PROGRAM by a command; each is also a server.

    manifests: a copy of k8s/, whose job.yaml is edited as its comments say.
    """
    text = (REPOSITORY / "k8s/job.yaml").read_text()
    edits = {
        "# - {name: ENTRY, value: python train.py}": f"- {{name: ENTRY, value: {command}}}",
        "- {name: TRAIN_CONFIG_DIR, value: digits}": "- {name: TRAIN_CONFIG_DIR, value: program}",
        "args: []": "args: [--seed=1, --checkpoint_period_by_batches=4]",
    }
    for old, new in edits.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (manifests / "job.yaml").write_text(text)
    program = space.volume / JOB / "program"
    program.mkdir()
    (program / "train.py").write_text(V2_PROGRAM)
    give(space.volume)
    made = overlay(space.name, manifests=manifests)
    space.kubectl("create", "-k", made, "-l", "app.kubernetes.io/component in (access, volume)")
    space.kubectl("create", "-k", made, "-l", "app.kubernetes.io/component=training")


def pod_that_says(space: Namespace, line: str) -> str:
    """Wait for a line of a pod's log, and return the name of the pod."""
    space.wait_for_log(JOB, line)
    return next(name for pod in space.pods(JOB) if line in space.log(name := pod["metadata"]["name"]))


def final_values(volume: Path) -> list[dict[str, bytes]]:
    """Return the parameters that each program has saved, by their names."""

    def read(path: Path) -> dict[str, bytes]:
        with tarfile.open(path) as archive:
            found = {name: archive.extractfile(name) for name in archive.getnames()}
            return {name: file.read() for name, file in found.items() if file}

    return [read(volume / JOB / f"output/final-{rank}.tar") for rank in range(3)]


def test_a_program_of_v2_ends_with_the_same_bits_when_pods_are_deleted(
    cluster: Cluster, digits: Path, overlay: Overlay, tmp_path: Path
) -> None:
    """One pod is deleted by force, and goes on from the newest checkpoint; another one saves when it gets SIGTERM."""
    manifests = copy_manifests(tmp_path)
    found = []
    for name, run in (("disturbed", "python train.py"), ("undisturbed", "paddle run train.py")):
        volume = tmp_path / name
        copy_volume(digits, volume)
        with namespace_with_volume(cluster, f"v2-{name}", volume) as space:
            start_v2(space, overlay, manifests, f"{run} {name}")
            if name == "disturbed":
                lost = pod_that_says(space, "holds")
                space.kubectl("delete", "pod", lost, "--wait=false", "--force", "--grace-period=0")
                drained = pod_that_says(space, "waits for SIGTERM")
                space.kubectl("delete", "pod", drained, "--wait=false")
            space.wait_for_success(JOB, seconds=300)
        record = json.loads((volume / JOB / "output/job.json").read_text())
        found.append(([attempt["origin"] for attempt in record["attempts"]], final_values(volume)))
    (origins, values), (undisturbed, expected) = found
    assert (origins, undisturbed) == (["", "pass-00002-002", "pass-00004-002"], [""])
    assert values == expected
    assert values[0] == values[1] == values[2]
