"""What `status` says of a three-pod job in its middle, after the loss of whole pods, and at its end."""

import contextlib
import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from three_pods import JOB, ROOT, ends, make_launcher, open_gate, prepare, shut_gate, start

import paddle_cluster.launcher.status
from paddle_base.runtime.errors import PeerUnreachableError

# of the first attempt nobody knows more than that pod 1 is gone: whoever is named as its first failure is a bystander
WRONG = re.compile(r"^  attempt 1\.\S+, .*(from the beginning|from pass-\d+(-\d+)?): trainer [02] on ", re.MULTILINE)


def status(volume: Path) -> str:
    """What is said of the only job of a volume, without a cluster."""
    command = [sys.executable, str(ROOT / "start_paddle.py"), "status", f"--job_path={volume}"]
    done = subprocess.run(command, env={"PATH": "/nonexistent"}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{JOB}\n")
    return done.stdout


def status_at_once(volume: Path) -> str:
    """The same without a process, which would take longer than most of what it is to see."""
    with contextlib.redirect_stdout(io.StringIO()) as told:
        assert paddle_cluster.launcher.status.show_status([f"--job_path={volume}"]) == 0
    return told.getvalue()


def no_cluster(*_: str) -> None:
    raise PeerUnreachableError("no cluster answers")


def newest(said: str) -> str:
    """The number of the newest attempt."""
    found = re.search(r"^attempt (\d+)\.", said, re.MULTILINE)
    assert found, said
    return found[1]


def test_no_bystander_is_named_at_any_time_and_a_job_of_many_pods_loses_trainer_0_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only trainer 0 lists all pods; the others, and those that replace some, take the set that its record names."""
    monkeypatch.setattr(paddle_cluster.launcher.status, "list_pods_of", no_cluster)
    volume = tmp_path / "volume"
    job = prepare(volume)
    shut_gate(job, 4)
    with start(volume, make_launcher(tmp_path, FEW=1)) as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="1")
        middle = status(volume)
        cluster.kill("1")
        answers, deadline = [], time.monotonic() + 60
        while not answers or (newest(answers[-1]) == "1" and time.monotonic() < deadline):
            answers.append(status_at_once(volume))
            time.sleep(0.02)
        cluster.wait_for_output(r"starting .*paddle train .*--resume_from=", deadline=60, pod="2")
        second = status(volume)
        shut_gate(job, 8)
        cluster.wait_for_output(r"Pass=[67] ", deadline=60, pod="2")
        cluster.kill("0")
        open_gate(job)
        result = cluster.wait(deadline=100)
    end = status(volume)
    assert result.outcome.is_complete, ends(result)
    assert sorted(pod.exit_code for pod in result.pods) == [0, 0, 0, 137, 137]
    assert "training: pass " in middle and "attempt 1." in middle and "failed" not in middle
    assert newest(answers[-1]) == "2"
    for answer in [*answers, second, end]:
        assert not WRONG.search(answer), answer
    assert (
        "the last report of " in answers[-1]
        or "training: " in answers[-1]
        or "trainer 0 has not reported" in answers[-1]
    )
    told = re.search(r"^  attempt 1\.\S+, .*: trainer 1 on \S+-1-\S+ on .*: the pod was lost$", end, re.MULTILINE)
    assert told, end
    assert re.search(r"^attempt \d+\.\S+ from pass-.*; the job has finished$", end, re.MULTILINE), end
    assert re.search(r"^  attempt \d+\..*: finished$", end, re.MULTILINE), end
    for index in (0, 2):
        said = next(pod for pod in result.pods if pod.index == index).output
        assert re.search(r"first failure reported: trainer 1 on .*: the pod was lost", said), said[-3000:]
    record = json.loads((job / "output" / "job.json").read_text())
    assert record["finished"] and record["attempt"] >= 3 and len(record["pods"]) == 3
    assert "trainer 2 of 3, attempt 3." in result.pod(2).output
    assert "is still in ./data" in result.pod(2).output
