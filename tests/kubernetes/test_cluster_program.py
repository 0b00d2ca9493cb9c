"""A program of ENTRY in three pods of a cluster: examples/any-program/train.py, with components/any-program."""

import json
import re
import shutil
from pathlib import Path

from kubernetes_cluster import (
    REPOSITORY,
    Cluster,
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
