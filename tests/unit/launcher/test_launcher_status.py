"""`start_paddle.py status` and `paddle status`: how a job is, from its pods and from the files of its output."""

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

import start_paddle
from paddle.utils import status

JOB = "paddle-cluster-job"
OTHER_UID = "an earlier Job's"


def pod(index: int, phase: str = "Running", uid: str = "job", node: str = "node-1") -> dict[str, Any]:
    labels = {"batch.kubernetes.io/job-completion-index": str(index), "batch.kubernetes.io/controller-uid": uid}
    metadata = {"name": f"{JOB}-{index}-{uid[:2]}", "uid": f"{uid}{index}", "labels": labels}
    status = {"phase": phase, "podIP": f"10.0.0.{index}"}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": status}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """The output of a job in its second attempt, in mid-pass."""
    output = tmp_path / JOB / "output"
    now = time.time()
    usage = {"samples": 64, "data_seconds": 1.0, "compute_seconds": 2.0}
    trainers = {}
    for number in (0, 1):
        place = {"time": now - 3, "attempt": "2.ab", "pass": 2, "batch": 70 + number}
        trainers[str(number)] = {**place, "host": f"{JOB}-{number}-jo", "samples_per_second": 100.4, "usage": usage}
        (output / f"node_{number}").mkdir(parents=True)
        (output / f"node_{number}/progress.json").write_text(json.dumps(trainers[str(number)]))
    progress = {"time": now - 3, "attempt": "2.ab", "status": "training", "message": "", "pass": 2, "batch": 70}
    progress |= {"passes": 10, "pass_fraction": 0.5, "job_fraction": 0.25, "samples_per_second": 200.8}
    progress |= {"seconds_left": 3723.4, "cost": 0.123456, "evaluators": {"error": 0.25, "odd": None}}
    progress["slowest"] = {"trainer": 1, "host": "b", "busy_seconds": 3.5, "mean_busy_seconds": 3.0}
    (output / "progress.json").write_text(json.dumps({**progress, "trainers": trainers}))
    attempts = [{"name": name, "started": "2026-01-01 00:00:00", "origin": ""} for name in ("1.aa", "2.ab")]
    record = start_paddle.JobRecord(
        "job", 10, False, 2, ["job0", "job1"], 0, checkpoint="pass-00001", attempts=attempts
    )
    start_paddle.write_record(output, record)
    outcome = start_paddle.Outcome(75, "trainer", "was killed by SIGKILL", "SIGKILL")
    start_paddle.write_error(output / "node_1", "1.aa", 1, f"{JOB}-1-jo", outcome)
    return output


def test_the_files_alone_tell_how_a_job_is(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main([str(output)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("attempt 2.") and lines[0].endswith(" from pass-00001")
    assert lines[1].startswith(
        "training: pass 2, batch 70 of passes 0 to 9, 50% of the pass, 25% of the job, 201 samples/s, 1:02:03 left, "
        "cost 0.123456, error 0.25, said 0:00:0"
    )
    assert lines[2] == "slowest: trainer 1 on b, busy for 3.5 s where the mean of all is 3.0 s"
    assert "attempt 1.aa" in lines[3] and "trainer 1 on paddle-cluster-job-1-jo: trainer, exit status 75" in lines[3]
    assert lines[-2].split()[:7] == ["0", f"{JOB}-0-jo", "-", "-", "2", "70", "100"]


def test_what_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main([str(tmp_path / "none")]) == 66
    assert status.main([]) == 64
    assert "the following arguments are required: output" in capsys.readouterr().err
    assert status.main([str(tmp_path)]) == 0
    hint = "outside of pods trainers say so with --report"
    assert capsys.readouterr().out == f"no trainer has said yet how far it is; {hint}\n"


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl on PATH that answers with pods.json, or fails without it."""
    program = tmp_path / "bin/kubectl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/asked\ncat {tmp_path}/pods.json\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    for name in ("KUBERNETES_SERVICE_HOST", "JOB_NAME", "JOB_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "pods.json"


def test_pods_have_their_ids_nodes_and_progress(
    output: Path, kubectl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [pod(1, node="node-2"), pod(0), pod(1, "Failed"), pod(0, "Failed", OTHER_UID)]
    kubectl.write_text(json.dumps({"items": pods}))
    flags = ["--namespace=there", "--job_path", str(output.parents[1])]
    assert start_paddle.main(["status", JOB, *flags]) == 0
    said = capsys.readouterr().out
    assert start_paddle.main(["status", *flags, JOB]) == 0
    assert [line.split()[:6] for line in capsys.readouterr().out.splitlines()][-5:] == [
        line.split()[:6] for line in said.splitlines()
    ][-5:]
    assert (kubectl.parent / "asked").read_text().split()[-1] == "--namespace=there"
    rows = [line.split() for line in said.splitlines() if line[:1].isdigit()]
    running = [f"{JOB}-{number}-jo" for number in (0, 1)]
    assert ["0", running[0], "node-1", "Running", "2", "70", "100"] in [row[:7] for row in rows]
    assert ["1", running[1], "node-2", "Running", "2", "71", "100"] in [row[:7] for row in rows]
    assert [row[3:6] for row in rows if "Failed" in row] == [["Failed", "-", "-"]]  # of this Job only


def test_without_the_volume_the_pods_are_shown_and_where_the_rest_is(
    kubectl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.write_text(json.dumps({"items": [pod(0, "Pending", node="")]}))
    assert start_paddle.main(["status", JOB, f"--job_path={tmp_path}"]) == 0
    said = capsys.readouterr().out
    assert "no trainer has said" not in said  # who cannot look does not know
    assert "Pending" in said and "kubectl exec POD -- /root/start_paddle.py status" in said


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([], 64, "status of which job?"),
        ([JOB, "--color=1"], 64, "status knows no flag --color"),
        ([JOB, "--namespace=there", "another"], 64, "argument 'another' is neither a flag"),
        ([JOB], 69, "kubectl get pods --selector=job-name=paddle-cluster-job --output=json failed: "),
    ],
)
def test_a_status_that_cannot_be_had_ends_with_a_code(
    kubectl: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, text: str
) -> None:
    assert start_paddle.main(["status", *arguments]) == code
    assert text in capsys.readouterr().out


def test_no_pods_and_no_output_is_an_error(kubectl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubectl.write_text(json.dumps({"items": []}))
    assert start_paddle.main(["status", "nobody", f"--job_path={tmp_path}"]) == 66
    assert "there are no pods of a job 'nobody' here" in capsys.readouterr().out


def places_of(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to everything inside of a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [each for key, one in inside for each in [(*way, key), *places_of(one, (*way, key))]]


ODD = (None, True, -1, 10**400, 1e308, math.nan, math.inf, "x", "\ud800", "a\n\x1b[31mb", [None], {"a": None})


@pytest.mark.parametrize(
    "name", ["progress.json", "job.json", "node_0/progress.json", "node_1/error.json"], ids=lambda name: name
)
def test_whatever_a_file_says_is_no_traceback(output: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    file = output / name
    told = file.read_text()
    for way in places_of(json.loads(told)):
        for odd in ODD:
            whole = inner = json.loads(told)
            for key in way[:-1]:
                inner = inner[key]
            inner[way[-1]] = odd
            file.write_text(json.dumps(whole))
            assert status.main([str(output)]) == 0, (way, odd)
            start_paddle.say_first_failure(output, "1.aa")
    said = capsys.readouterr().out
    assert "\x1b" not in said and said.encode()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "1", "\0", '{"time": NaN}'], ids=repr)
def test_files_that_hold_something_else_tell_nothing(
    output: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    for file in output.glob("**/*.json"):
        file.write_text(text)
    assert status.main([str(output)]) == 0
    assert capsys.readouterr().out.startswith(("no trainer has said yet", "None: pass None"))


def test_a_job_that_fails_before_it_trains_says_why(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in [output / "progress.json", *output.glob("node_*/progress.json")]:
        file.unlink()
    assert status.main([str(output)]) == 0
    said = capsys.readouterr().out
    assert "no trainer has said yet how far it is\n" in said and "was killed by SIGKILL" in said
