"""What `status` says of a three-pod job in its middle, after the loss of a whole pod, and at its end."""

import contextlib
import io
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from three_pods import JOB, ROOT, ends, open_gate, prepare, shut_gate

import launcher.status
from localcluster import Cluster, load_job
from runtime.errors import PeerUnreachableError

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
        assert launcher.status.show_status([f"--job_path={volume}"]) == 0
    return told.getvalue()


def no_cluster(*_: str) -> None:
    raise PeerUnreachableError("no cluster answers")


def newest(said: str) -> str:
    """The number of the newest attempt."""
    found = re.search(r"^attempt (\d+)\.", said, re.MULTILINE)
    assert found, said
    return found[1]


def test_no_bystander_is_named_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher.status, "list_pods_of", no_cluster)
    job = prepare(tmp_path)
    shut_gate(job, 6)
    env = {"NUM_PASSES": "10", "PADDLE_PEER_TIMEOUT": "3"}
    manifest = load_job(str(ROOT / "k8s" / "job.yaml"))
    with Cluster(
        manifest, volumes={"mfs": tmp_path}, entrypoint=ROOT / "start.sh", env=env, logs=tmp_path / "pods"
    ) as cluster:
        cluster.wait_for_output(r"Pass=3 ", deadline=60, pod="1")
        middle = status(tmp_path)
        cluster.kill("1")
        open_gate(job)
        answers, deadline = [], time.monotonic() + 60
        while not answers or (newest(answers[-1]) == "1" and time.monotonic() < deadline):
            answers.append(status_at_once(tmp_path))
            time.sleep(0.02)
        cluster.wait_for_output(r"starting .*paddle train .*--resume_from=", deadline=60, pod="0")
        answers.append(status(tmp_path))
        result = cluster.wait(deadline=100)
    end = status(tmp_path)
    assert result.outcome.is_complete, ends(result)
    assert "training: pass " in middle and "attempt 1." in middle and "failed" not in middle
    assert newest(answers[-2]) == "2"
    for answer in [*answers, end]:
        assert not WRONG.search(answer), answer
    assert (
        "the last report of " in answers[-2]
        or "training: " in answers[-2]
        or "trainer 0 has not reported" in answers[-2]
    )
    told = re.search(r"^  attempt 1\.\S+, .*: trainer 1 on \S+-1-\S+ on .*: the pod was lost$", end, re.MULTILINE)
    assert told, end
    assert re.search(r"^attempt 2\.\S+ from pass-.*; the job has finished$", end, re.MULTILINE), end
    assert re.search(r"^  attempt 2\..*: finished$", end, re.MULTILINE), end
    for index in (0, 2):
        said = result.pod(index).output
        assert re.search(r"first failure reported: trainer 1 on .*: the pod was lost", said)
