"""Whatever is killed behind the save of the last pass: the next launcher leaves output/ as after an undisturbed end.

The windows are those of a real training: before everything that it does to the volume from then on, a picture of
output/ is taken by an audit hook, which is what a SIGKILL at that place leaves.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import responses
from builders import JOB, PodBuilder, pod, pod_environment, podlist
from launching import make_launcher

import start_paddle
from paddle.utils import status
from paddle_cluster.launcher.attempts import JobRecord, Meeting
from paddle_cluster.launcher.cluster.waiting import WaitPolicy
from paddle_cluster.launcher.control.job_record import write_record
from paddle_cluster.launcher.settings import LauncherConfig

URL = "https://10.96.0.1:443/api/v1/namespaces/default/pods"
PASSES = 2
HOOK = """
import os, shutil, sys, threading
output, pictures = os.environ["WATCHED"], os.environ["PICTURES"]
own, seen, one_picture = threading.local(), [], threading.Lock()  # a change of another thread waits: it is seen, too
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
def look(event, arguments):
    is_change = event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & 3)
    if getattr(own, "busy", False) or not is_change or output not in str(arguments[0]) + str(arguments[-1]):
        return
    own.busy = True
    try:
        with one_picture:
            if seen or os.path.isdir(output + "/pass-00001"):
                seen.append(event)
                shutil.copytree(output, f"{pictures}/{len(seen):03d} {event}")
    finally:
        own.busy = False
sys.addaudithook(look)
"""
CONFIG = """
from paddle.trainer_config_helpers import *
define_py_data_sources2('train.list', None, module='numbers_provider', obj='process')
settings(batch_size=4, learning_rate=0.05, learning_method=AdamOptimizer())
x, y = data_layer('x', 2), data_layer('y', 1)
outputs(regression_cost(fc_layer(x, 1, act=LinearActivation()), y))
"""
PROVIDER = """
from paddle.trainer.PyDataProvider2 import *
@provider(input_types={'x': dense_vector(2), 'y': dense_vector(1)})
def process(settings, path):
    for number in range(8):
        yield {'x': [number / 8, 1.0], 'y': [number / 4]}
"""


def write_first_record(output: Path, pods: list[PodBuilder]) -> JobRecord:
    ids = start_paddle.getIdMap(podlist(*pods))
    record = JobRecord(ids.job_uid, PASSES, False, 1, ids.pod_uids, 0, config="quick_start")
    attempt = {"name": record.name, "started": "2026-11-22 10:00:00", "origin": ""}
    record.attempts.append(attempt)
    output.mkdir(parents=True)
    write_record(output, record)
    return record


PODS = [pod(f"10.0.0.{number + 1}").indexed(number) for number in range(3)]
REPLACED = pod("10.0.0.9", f"{JOB}-0-new").indexed(0)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Pictures of output/, in their order; the last one is that of the end."""
    root = tmp_path_factory.mktemp("training")
    output, taken, hook = root / "output", root / "pictures", root / "hook"
    record = write_first_record(output, PODS)
    for folder in (taken, hook):
        folder.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    (root / "config.py").write_text(CONFIG)
    (root / "numbers_provider.py").write_text(PROVIDER)
    (root / "train.list").write_text("none\n")
    identity = {"PADDLE_ATTEMPT": record.name, "PADDLE_OUTPUT": str(output), "OPENBLAS_NUM_THREADS": "1"}
    watch = {"PYTHONPATH": str(hook), "WATCHED": str(output), "PICTURES": str(taken)}
    flags = [f"--num_passes={PASSES}", f"--save_dir={output}", "--checkpoint_period_by_batches=1"]
    (output / "node_0").mkdir()
    command = [sys.executable, "-m", "paddle", "train", "--config=config.py", *flags, "--report=1", "--seed=1"]
    ended = subprocess.run(
        command, cwd=root, env={**os.environ, **identity, **watch}, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    shutil.copytree(output, taken / "999 the end")
    return sorted(taken.iterdir())


def lay_out(root: Path, picture: Path) -> LauncherConfig:
    """A launcher in the pod that replaces pod 0."""
    environ = {"JOB_PATH": str(root), "POD_IP": "10.0.0.9", "POD_NAME": REPLACED["metadata"]["name"]}
    config = LauncherConfig.from_env(pod_environment(**environ))
    shutil.rmtree(config.job_dir, ignore_errors=True)
    shutil.copytree(picture, config.output)
    return config


def come_back(config: LauncherConfig, *pods: PodBuilder) -> Meeting | None:
    with responses.RequestsMock() as answers:
        answers.get(URL, json=podlist(*pods))
        return start_paddle.meet(make_launcher(config, WaitPolicy(5.0), num_passes=str(PASSES)))


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def left_over(output: Path) -> list[str]:
    return [str(path.relative_to(output)) for path in output.rglob(".*") if path.name != ".job.json"]


def test_a_kill_anywhere_behind_the_last_pass_leaves_a_job_that_says_it_has_finished(
    tmp_path: Path, pictures: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """job.json said `finished: false`, state/.pass-...writing stayed, and status said "training" for ever."""
    reports: list[Path] = []
    monkeypatch.setattr("paddle_cluster.launcher.control.ending.make_report", lambda output, *_: reports.append(output))
    kinds = {picture.name[4:] for picture in pictures}
    assert len(pictures) > 20 and {"os.rename", "os.mkdir", "open", "os.remove"} <= kinds
    assert any(left_over(picture) for picture in pictures)
    unfinished = 0
    for picture in pictures:
        config = lay_out(tmp_path, picture)
        output = config.output
        was_told = read(output / "progress.json").get("status") if (output / "progress.json").exists() else None
        unfinished += was_told == "training"
        reports.clear()
        assert come_back(config, REPLACED, *PODS[1:]) is None, picture
        assert read(output / "job.json")["finished"] is True, picture
        assert left_over(output) == [], picture
        assert [path.name for path in (output / "state").glob("*") if not (path / "done").exists()] == [], picture
        capsys.readouterr()
        assert status.main([str(output)]) == 0
        said = capsys.readouterr().out
        assert "training:" not in said and "the job has finished" in said, picture
        if was_told is not None:
            assert "finished: pass 1" in said and bool(reports) == (was_told != "finished"), picture
        assert (output / "pass-00001" / "done").exists()
    assert unfinished > 5


def test_while_pod_0_may_still_write_the_others_touch_nothing(tmp_path: Path, pictures: list[Path]) -> None:
    """It is in the middle of the checkpoint behind the last pass, on a slow volume."""
    picture = next(picture for picture in pictures if left_over(picture))
    config = lay_out(tmp_path, picture)
    before = left_over(config.output)
    own = pod("10.0.0.9", f"{JOB}-1-new").indexed(1)
    assert come_back(config, PODS[0], own, PODS[2]) is None
    assert left_over(config.output) == before and read(config.output / "job.json")["finished"] is False
    assert come_back(config, PODS[0].phase("Failed"), own, PODS[2]) is None
    assert left_over(config.output) == [] and read(config.output / "job.json")["finished"] is True


def test_what_a_killed_launcher_was_writing_goes_and_what_a_live_one_writes_stays(
    tmp_path: Path, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddle_cluster.launcher.control.ending.make_report", lambda *_: None)
    config = lay_out(tmp_path, pictures[-1])
    live = PODS[1]["metadata"]["name"]
    for name in (".job.json.7.gone", "..job.json.7.gone", f".job.json.7.{live}"):
        (config.output / name).write_text("{")
    come_back(config, REPLACED, *PODS[1:])
    assert left_over(config.output) == [f".job.json.7.{live}"]
