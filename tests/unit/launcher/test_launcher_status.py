"""`start_paddle.py status` and `paddle status`: how a job is, from its pods and from the files of its output."""

import dataclasses
import errno
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

import start_paddle
from paddle.utils import status
from paddle_cluster.launcher.attempts import AttemptResult, JobRecord
from paddle_cluster.launcher.cluster.pods import parse_pods
from paddle_cluster.launcher.control.job_record import read_record, write_record
from paddle_cluster.launcher.failures import (
    LOST_POD,
    describe_attempts,
    describe_followers,
    find_suspects,
    make_error,
    say_first_failure,
    write_error,
)
from paddle_cluster.launcher.status import describe_job, describe_progress, name_awaited, tabulate_pods

JOB = "paddle-cluster-job"
OTHER_UID = "an earlier Job's"


def record_of(number: int, **fields: Any) -> JobRecord:
    """The record of a Job of two pods in its attempt of this number; earlier ones are 1.aa, 2.aa ..."""
    record = JobRecord("job", 10, False, number, ["job0", "job1"], 0, gradient_num=2, **fields)
    names = [*(f"{earlier}.aa" for earlier in range(1, number)), record.name]
    attempts = [{"name": name, "started": "2026-01-01 00:00:00", "origin": ""} for name in names]
    return dataclasses.replace(record, attempts=attempts)


RECORD = record_of(2, checkpoint="pass-00001")


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
        place = {"time": now - 3, "attempt": RECORD.name, "pass": 2, "batch": 70 + number}
        trainers[str(number)] = {**place, "host": f"{JOB}-{number}-jo", "samples_per_second": 100.4, "usage": usage}
        (output / f"node_{number}").mkdir(parents=True)
        (output / f"node_{number}/progress.json").write_text(json.dumps(trainers[str(number)]))
    progress = {"time": now - 3, "attempt": RECORD.name, "status": "training", "message": "", "pass": 2, "batch": 70}
    progress |= {"passes": 10, "pass_fraction": 0.5, "job_fraction": 0.25, "samples_per_second": 200.8}
    progress |= {"seconds_left": 3723.4, "cost": 0.123456, "evaluators": {"error": 0.25, "odd": None}}
    progress["slowest"] = {"trainer": 1, "host": "b", "busy_seconds": 3.5, "mean_busy_seconds": 3.0}
    (output / "progress.json").write_text(json.dumps({**progress, "trainers": trainers}))
    write_record(output, RECORD)
    outcome = AttemptResult(75, "trainer", "was killed by SIGKILL", "SIGKILL")
    write_error(output / "node_1", "1.aa", 1, f"{JOB}-1-jo", outcome)
    return output


def test_the_files_alone_tell_how_a_job_is(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main([str(output)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("attempt 2.") and lines[0].endswith(" from pass-00001")
    assert lines[1].startswith(
        "training: pass 2 of passes 0 to 9, batch 70, 50% of the pass, 25% of the job, 201 samples/s, 1:02:03 left, "
        "trainer 0's cost 0.123456, error 0.25, said 0:00:0"
    )
    assert lines[2] == "slowest: trainer 1 on b, busy for 3.5 s, while the mean of all trainers is 3.0 s"
    assert "attempt 1.aa" in lines[3] and "trainer 1 on paddle-cluster-job-1-jo: trainer, exit status 75" in lines[3]
    assert lines[-2].split()[:7] == ["0", f"{JOB}-0-jo", "-", "-", "2", "70", "100"]


def test_a_run_of_one_trainer_that_is_over_tells_its_cost_and_its_mean_speed() -> None:
    progress = {"status": "finished", "pass": 9, "passes": 10, "samples_per_second": 50.0, "cost": 0.5}
    said = describe_progress({**progress, "batch": 5, "trainers": {"0": {}}, "time": time.time()})
    assert said.startswith("finished: pass 9 of passes 0 to 9, batch 5, 50 samples/s on average, cost 0.5, said ")


def test_what_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main([str(tmp_path / "none")]) == 66
    assert status.main([]) == 64
    assert "the following arguments are required: output" in capsys.readouterr().err
    assert status.main([str(tmp_path)]) == 1
    said = capsys.readouterr().err
    files = "tasks.json, membership.json, job.json, progress.json, records.jsonl, node_*"
    assert f"has no {files}: a pod always writes such files" in said
    (tmp_path / "output").mkdir()
    assert status.main([str(tmp_path)]) == 1
    assert f"did you mean {tmp_path}/output?" in capsys.readouterr().err


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


def test_the_pods_that_the_launchers_wait_for_are_named_with_their_state() -> None:
    """Their states stood in the table only, among those of all pods."""
    pods = parse_pods({"items": [pod(0), pod(1, "Pending", node="")]})
    assert name_awaited(pods, None) == [f"the job waits for pods: {JOB}-1-jo (Pending)"]
    assert name_awaited(pods, dataclasses.replace(RECORD, finished=True)) == []
    both = dataclasses.replace(RECORD, pods=[{"ip": "10.0.0.0"}, {"ip": "10.0.0.1"}])
    assert name_awaited(pods[:1], both) == [
        "the job waits for pods: 1 of 2 are Running, and the Job has not created the others yet"
    ]
    assert name_awaited(parse_pods({"items": [pod(0), pod(1)]}), both) == []
    assert name_awaited([], both) == []


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
        ([], 64, "the name of the job is missing"),
        ([JOB, "--color=1"], 64, "status has no flag --color"),
        ([JOB, "--namespace=there", "another"], 64, "Unknown commandline argument: another"),
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
            say_first_failure(output, RECORD)
    said = capsys.readouterr().out
    assert "\x1b" not in said and said.encode()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "1", "\0", '{"time": NaN}'], ids=repr)
def test_files_that_hold_something_else_tell_nothing(
    output: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    for file in output.glob("**/*.json"):
        file.write_text(text)
    assert status.main([str(output)]) == 0
    assert capsys.readouterr().out.startswith(("trainer 0 has not reported", "None: pass None"))


def test_a_job_that_fails_before_it_trains_says_why(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in [output / "progress.json", *output.glob("node_*/progress.json")]:
        file.unlink()
    assert status.main([str(output)]) == 0
    said = capsys.readouterr().out
    assert "trainer 0 has not reported its progress yet\n" in said and "was killed by SIGKILL" in said


# ----- What is said of attempts: record, errors as (attempt, trainer, status, signal, message), progress, ends of lines

LOST, OWN = (75, "", "trainer 1 is lost"), (65, "", "bad line 7")
FOLLOWED = "ended, which may follow from the end of another pod (trainer 0 on pod-0: trainer, exit status 75, "
SILENT = "trainer 1 has reported nothing"
UNKNOWN = "how the attempt ended is not known: no pod has left an error.json"
NOW = RECORD.name
STATES: dict[str, tuple[JobRecord, list[Any], dict[str, Any], list[str]]] = {
    "the first one forms": (record_of(1), [], {}, ["no trainer has begun, according to the files"]),
    "the second forms after a loss": (
        RECORD,
        [("1.aa", 0, *LOST)],
        {"attempt": "1.aa", "status": "failed"},
        [f"what failed first is not known: {SILENT}; trainer 0 has {FOLLOWED}", "no trainer has begun"],
    ),
    "the second trains": (
        RECORD,
        [("1.aa", 0, *LOST), ("1.aa", 1, 75, "SIGKILL", "was killed by SIGKILL")],
        {"attempt": NOW, "status": "training"},
        ["trainer 1 on pod-1: trainer, exit status 75", "training, as trainer 0 reported 0:00:0"],
    ),
    "a pod is lost as a whole": (
        RECORD,
        [(NOW, 0, *LOST)],
        {"attempt": NOW, "status": "failed"},
        [UNKNOWN, f"what failed first is not known: {SILENT}; trainer 0 has {FOLLOWED}"],
    ),
    "the cause is told after what followed": (
        RECORD,
        [(NOW, 0, *LOST), (NOW, 1, *OWN)],
        {"attempt": NOW, "status": "failed"},
        [UNKNOWN, "trainer 1 on pod-1: trainer, exit status 65"],
    ),
    "the cause stops the Job, which stops the others": (
        RECORD,
        [(NOW, 0, 143, "", "stopped by SIGTERM"), (NOW, 1, *OWN)],
        {"attempt": NOW, "status": "stopped"},
        [UNKNOWN, "trainer 1 on pod-1: trainer, exit status 65"],
    ),
    "the job has finished": (
        dataclasses.replace(RECORD, finished=True),
        [("1.aa", 1, *OWN)],
        {"attempt": NOW, "status": "finished"},
        ["trainer 1 on pod-1: trainer, exit status 65", "finished"],
    ),
    "the job has given up": (
        dataclasses.replace(RECORD, given_up=True),
        [(NOW, 1, 74, "", "the volume is full")],
        {"attempt": NOW, "status": "training"},
        [UNKNOWN, "trainer 1 on pod-1: trainer, exit status 74"],
    ),
    "all pods are gone without a word": (
        RECORD,
        [("1.aa", 1, *OWN)],
        {"attempt": NOW, "status": "training"},
        ["trainer 1 on pod-1: trainer, exit status 65", "training, as trainer 0 reported 0:00:0"],
    ),
}


def tell(output: Path, record: JobRecord, errors: list[Any], progress: dict[str, Any]) -> None:
    """Write what launchers and trainers leave; later errors have later times."""
    output.mkdir(parents=True, exist_ok=True)
    write_record(output, record)
    for number, (attempt, trainer, code, signal, message) in enumerate(errors):
        node = output / f"node_{trainer}"
        node.mkdir(exist_ok=True)
        outcome = AttemptResult(code, "trainer", message, signal)
        write_error(node, attempt, trainer, f"pod-{trainer}", outcome)
        left = json.loads((node / "error.json").read_text())
        (node / "error.json").write_text(json.dumps({**left, "time": left["time"] + number}))
    if progress:
        whole = {"time": time.time(), "pass": 2, "batch": 7, "passes": 10, **progress}
        (output / "progress.json").write_text(json.dumps(whole))


@pytest.mark.parametrize(("record", "errors", "progress", "ends"), STATES.values(), ids=STATES)
def test_nothing_wrong_is_said_of_an_attempt(
    tmp_path: Path,
    record: JobRecord,
    errors: list[Any],
    progress: dict[str, Any],
    ends: list[str],
) -> None:
    tell(tmp_path, record, errors, progress)
    lines = describe_attempts(tmp_path, record, is_over=False)
    assert len(lines) == len(ends)
    for line, end in zip(lines, ends, strict=True):
        assert end in line
    if progress:
        (told,) = [line for line in describe_job(tmp_path) if "pass 2 of passes 0 to 9, batch 7" in line]
        is_of_earlier = progress["attempt"] != record.name
        assert told.startswith("the last report of attempt 1.aa: failed") == is_of_earlier
        assert ("training:" in told) == (progress["status"] == "training")
        assert told.startswith("last report: ") == record.given_up


def test_a_pod_that_has_reported_is_not_called_silent_when_the_record_has_the_report_of_another(tmp_path: Path) -> None:
    """A frozen trainer: the record keeps what trainer 1 said of it, and trainer 0 was said to have reported nothing."""
    tell(tmp_path, RECORD, [("1.aa", 0, *LOST)], {"attempt": NOW, "status": "training"})
    failure = make_error("1.aa", 1, "pod-1", AttemptResult(75, "trainer", "trainer 0 is lost"))
    first = {**RECORD.attempts[0], "failure": failure}
    line = describe_attempts(tmp_path, dataclasses.replace(RECORD, attempts=[first, *RECORD.attempts[1:]]))[0]
    assert "what failed first is not known: trainers 0, 1 have ended, which may follow" in line
    assert "reported nothing" not in line


def test_the_program_that_most_reports_name_as_lost_is_the_suspect() -> None:
    """A frozen pserver reports nothing, and its peers' reports named it only in the middle of a long line."""
    pods = [{"ip": f"10.0.0.{number}", "place": f"job-{number} on node-{number}"} for number in range(3)]
    record = dataclasses.replace(RECORD, pods=pods, gradient_num=3, pserver_num=3)
    lost = "pserver 10.0.0.1:7164 is lost: it does not answer; its last message arrived 10.1 s ago"
    told = "error of pserver 10.0.0.2:7164: trainer 2 at 10.0.0.2 is lost: it closed its connection; it last joined"
    errors = [
        make_error(record.name, number, f"pod-{number}", AttemptResult(75, "trainer", message))
        for number, message in ((0, lost), (2, lost), (1, told))
    ]
    assert find_suspects(errors, record) == ["the pserver at 10.0.0.1 (trainer 1 on job-1 on node-1)"]
    assert find_suspects(errors[2:], record) == ["the trainer at 10.0.0.2 (trainer 2 on job-2 on node-2)"]
    assert find_suspects([{**error, "attempt": "0.old"} for error in errors], record) == ["the pserver at 10.0.0.1"]
    line = describe_followers(errors[:2], record)
    assert line.startswith(f"{find_suspects(errors, record)[0]} may have been frozen, killed or cut off; trainer 1 has")


def test_of_many_attempts_the_newest_five_are_told_and_where_the_others_are(tmp_path: Path) -> None:
    """Each of a hundred attempts had a line."""
    write_record(tmp_path, record_of(40))
    lines = [line for line in describe_job(tmp_path) if line.startswith("  ")]
    lines = [line for line in lines if "attempt" in line]
    assert lines[0] == f"  35 earlier attempts: see {tmp_path}/report.html"
    assert [line.split(",")[0] for line in lines[1:5]] == [f"  attempt {number}.aa" for number in range(36, 40)]
    assert len(lines) == 6 and lines[5].startswith("  attempt 40.")


def test_of_many_pods_those_that_do_not_run_are_told(tmp_path: Path) -> None:
    pods = parse_pods({"items": [pod(index, "Pending" if index == 30 else "Running") for index in range(40)]})
    table = tabulate_pods(pods, tmp_path)
    assert len(table) == 1 + 5 + 1
    assert table[1].split()[:2] == ["30", f"{JOB}-30-jo"]
    assert table[6] == f"and 35 more: see {tmp_path}/report.html, or kubectl get pods"


def test_of_an_attempt_that_is_over_nothing_is_said_as_if_it_went_on(tmp_path: Path) -> None:
    tell(tmp_path, RECORD, [], {"attempt": NOW, "status": "training"})
    assert describe_attempts(tmp_path, RECORD)[-1].endswith(UNKNOWN)


def test_progress_of_an_earlier_attempt_is_in_no_row_of_the_table(output: Path) -> None:
    write_record(output, record_of(3))
    lines = describe_job(output)
    assert "trainer 0 of this attempt has not reported its progress yet" in lines
    assert not any("slowest" in line for line in lines)
    assert tabulate_pods([], output) == []


CLOSING = {
    "nobody has reported": ([], ""),
    "a follower alone": ([(NOW, 0, *LOST)], f"what failed first is not known yet: {SILENT}; trainer 0 has {FOLLOWED}"),
    "all of them follow": ([(NOW, 0, *LOST), (NOW, 1, *LOST)], "not known yet: trainers 0, 1 have ended, which may"),
    "a cause": (
        [(NOW, 0, *LOST), (NOW, 1, *OWN)],
        "first failure reported: trainer 1 on pod-1: trainer, exit status 65",
    ),
    "of another attempt": ([("1.aa", 1, *OWN)], ""),
}


@pytest.mark.parametrize(("errors", "said"), CLOSING.values(), ids=CLOSING)
def test_the_last_lines_of_a_pod_name_no_bystander(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], errors: list[Any], said: str
) -> None:
    """After SIGKILL of a whole pod another one's was called the first failure, which only missed it."""
    tell(tmp_path, RECORD, errors, {})
    say_first_failure(tmp_path, RECORD)
    heard = capsys.readouterr().out
    assert said in heard and bool(said) == bool(heard)
    assert (SILENT in heard) == (len(errors) == 1 and errors[0][0] == NOW)


# ----- Without a cluster


@pytest.fixture
def no_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for name in ("KUBERNETES_SERVICE_HOST", "JOB_NAME", "JOB_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("named", [[JOB], []], ids=["named", "the only one"])
def test_without_a_cluster_the_volume_tells(
    output: Path, no_kubectl: None, capsys: pytest.CaptureFixture[str], named: list[str]
) -> None:
    assert start_paddle.main(["status", *named, f"--job_path={output.parents[1]}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == JOB and lines[1].startswith("attempt 2.")
    assert f"{JOB}-1-jo" in lines[-2]
    assert lines[-1].startswith("the pods cannot be listed here: there is no kubectl on PATH")


def test_where_the_api_refuses_the_volume_tells(
    output: Path, kubectl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start_paddle.main(["status", JOB, f"--job_path={output.parents[1]}"]) == 0
    assert "the pods cannot be listed here: kubectl get pods" in capsys.readouterr().out.splitlines()[-1]


def test_that_a_job_has_no_pods_is_said(output: Path, kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubectl.write_text(json.dumps({"items": []}))
    assert start_paddle.main(["status", JOB, f"--job_path={output.parents[1]}"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "there are no pods of this job"


def test_with_neither_cluster_nor_output_it_fails_and_says_both(
    tmp_path: Path, no_kubectl: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start_paddle.main(["status", "nobody", f"--job_path={tmp_path}"]) == 66
    said = capsys.readouterr().out
    assert "there is no kubectl on PATH" in said and f"and there is no {tmp_path}/nobody/output" in said
    assert start_paddle.main(["status", f"--job_path={tmp_path}"]) == 66
    assert f"no directory of {tmp_path} has an output/" in capsys.readouterr().out


def test_of_several_jobs_one_must_be_named(output: Path, no_kubectl: None, capsys: pytest.CaptureFixture[str]) -> None:
    (output.parents[1] / "another/output").mkdir(parents=True)
    assert start_paddle.main(["status", f"--job_path={output.parents[1]}"]) == 64
    assert f"has the jobs another, {JOB}" in capsys.readouterr().out


def test_what_trainer_0s_launcher_has_written_down_is_the_first_failure_whatever_the_files_say(tmp_path: Path) -> None:
    """A pod that is gone leaves no error.json, and those that followed it do."""
    lost = make_error(NOW, 1, "pod-1 on node-1", AttemptResult(75, LOST_POD, "its launcher is gone without a word"))
    record = RECORD.ended_by(lost)
    tell(tmp_path, record, [(NOW, 0, *LOST)], {"attempt": NOW, "status": "failed"})
    read = read_record(tmp_path)
    assert read and read.failure == lost
    line = describe_attempts(tmp_path, read, is_over=False)[-1]
    assert "trainer 1 on pod-1 on node-1: " in line and "gone without a word" in line
    assert describe_job(tmp_path)[0].endswith(
        "restarting: a pod has ended this attempt, and no other attempt has begun"
    )


@pytest.mark.parametrize(("code", "signal"), [(143, "SIGTERM"), (130, "SIGINT")])
def test_a_job_that_was_stopped_from_outside_is_stopped_and_has_no_time_left(
    tmp_path: Path, code: int, signal: str
) -> None:
    """After the end of localcluster, status said for ever that the job restarts, and how much time is left."""
    going = {"attempt": NOW, "status": "training", "pass": 1, "passes": 10, "seconds_left": 108.0}
    tell(tmp_path, RECORD, [(NOW, 0, code, "", f"stopped by {signal}")], going)
    first, second, *_ = describe_job(tmp_path)
    assert first.endswith("; stopped; the next attempt begins if its pods run again")
    assert second.startswith("last report: training: ") and " left" not in second
    write_record(tmp_path, record_of(3))
    told = [line for line in describe_job(tmp_path) if line.startswith("the last report of attempt")]
    assert "training: pass 1" in told[0] and " left" not in told[0]


@pytest.mark.parametrize("name", ["job.json", "progress.json", "node_1/progress.json"])
def test_a_file_that_may_not_be_read_does_not_count_as_absent(
    output: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Status said that trainers have not reported their progress, and that --report is missing."""
    open_file = os.open

    def refuse(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path) == str(output / name):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_file(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    assert status.main([str(output)]) == 66
    assert capsys.readouterr().err == f"paddle status: {output / name} cannot be read: Permission denied\n"


def test_a_directory_that_may_not_be_listed_does_not_count_as_empty(
    output: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refuse)
    monkeypatch.setattr(os, "scandir", refuse)
    assert status.main([str(output)]) == 66
    assert capsys.readouterr().err == f"paddle status: {output} cannot be read: Permission denied\n"


@pytest.mark.parametrize(("age", "is_killed"), [(600.0, True), (-600.0, True), (0.0, False)])
def test_a_local_run_without_lock_that_no_longer_reports_was_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], age: float, *, is_killed: bool
) -> None:
    """For a minute after SIGKILL, status said that the run trains, and how much time is left."""
    (tmp_path / ".lock").touch()
    told = {"time": time.time() - age, "attempt": "", "status": "training", "passes": 10, "seconds_left": 121.0}
    (tmp_path / "progress.json").write_text(json.dumps(told))
    assert status.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("the run seems to have been killed") == is_killed
    assert (" left" in said) != is_killed


def test_while_the_next_attempt_forms_the_job_is_restarting(tmp_path: Path) -> None:
    tell(tmp_path, RECORD, [("1.aa", 1, *OWN)], {})
    assert describe_job(tmp_path)[0].endswith("; restarting: no trainer has begun yet")


def test_a_finished_attempt_is_finished_although_no_pod_has_left_an_error(tmp_path: Path) -> None:
    finished = dataclasses.replace(RECORD, finished=True)
    tell(tmp_path, finished, [], {})
    assert describe_attempts(tmp_path, finished)[-1].endswith(": finished")


def test_a_failure_in_job_json_that_is_none_counts_for_nothing(tmp_path: Path) -> None:
    for told in ({}, {"failure": 7}, {"failure": {"time": 1, "attempt": NOW}}, {"failure": {"trainer_id": 0}}):
        attempts = [*RECORD.attempts[:-1], {**RECORD.attempts[-1], **told}]
        tell(tmp_path, dataclasses.replace(RECORD, attempts=attempts), [], {})
        record = read_record(tmp_path)
        assert record and record.failure is None
        describe_job(tmp_path)
