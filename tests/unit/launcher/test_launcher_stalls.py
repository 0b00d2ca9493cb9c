"""What `paddle status` says of a job that hangs: which trainers make no batch, since when, and what they wait for."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from paddle.utils import status
from paddle_base.runtime import status_files
from paddle_cluster.launcher.attempts import JobRecord
from paddle_cluster.launcher.control.job_record import write_record
from paddle_cluster.launcher.programs import stalls
from paddle_cluster.launcher.text import ROW_LIMIT

GLOG = "I1120 10:59:13.169946  1191 fan_out.py:142] "
PUSHES = "has waited 240 s to push batch 17 of pass 0: pserver 10.0.0.7:7164 waits for trainer"
RECORD = JobRecord("job", 10, False, 1, ["a", "b", "c"], 0, gradient_num=3)
RECORD = dataclasses.replace(
    RECORD,
    attempts=[{"name": RECORD.name, "started": "2026-01-01 00:00:00", "origin": ""}],
    pods=[{"ip": f"10.0.0.{number}", "place": f"job-{number} on node-{number}"} for number in range(3)],
)


class Hanging:
    """The output of a job of three trainers, written by hand."""

    def __init__(self, output: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.output, self._capsys = output, capsys
        output.mkdir()
        write_record(output, RECORD)
        self.begin(60.0)

    def begin(self, age: float) -> None:
        """Set how many seconds ago the attempt began."""
        os.utime(self.output / "job.json", (time.time() - age, time.time() - age))

    def tell(self, number: int, idle: float = 0.0, age: float = 1.0, phase: str = "exchange", **fields: Any) -> None:
        """Write what a trainer reports."""
        told = {"time": time.time() - age, "attempt": RECORD.name, "host": f"pod-{number}", "status": "training"}
        told |= {"pass": 0, "batch": 17, "idle_seconds": idle, "phase": phase, **fields}
        (self.output / f"node_{number}").mkdir(exist_ok=True)
        path = self.output / f"node_{number}/progress.json"
        path.write_text(json.dumps(told))
        os.utime(path, (time.time() - age, time.time() - age))
        if number == 0:
            (self.output / "progress.json").write_text(json.dumps({**told, "passes": 10}))

    def log(self, number: int, *lines: str) -> None:
        (self.output / f"node_{number}").mkdir(exist_ok=True)
        (self.output / f"node_{number}/train.log").write_text("".join(f"{line}\n" for line in lines))

    def lines(self) -> list[str]:
        """Return what `paddle status` says about trainers without a batch."""
        self._capsys.readouterr()
        assert status.main([str(self.output)]) == 0
        lines = self._capsys.readouterr().out.splitlines()
        begin = next((place for place, line in enumerate(lines) if line.startswith("no progress: ")), len(lines))
        found = [line for line in lines[begin + 1 :] if line.startswith(("  trainer ", "  and "))]
        return [*lines[begin : begin + 1], *found]


@pytest.fixture
def job(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Hanging:
    monkeypatch.setattr(stalls, "WATCH_S", 0.3)
    return Hanging(tmp_path / "output", capsys)


def test_a_hang_names_the_trainer_that_all_wait_for_and_what_that_one_waits_for(job: Hanging) -> None:
    """A newcomer saw `training: pass 0, batch 17` for ten minutes and had to read the logs of all pods."""
    for number in (0, 1):
        job.tell(number, idle=250.0)
        job.log(number, f".....{GLOG}{PUSHES} 2 at 10.0.0.9, which last asked for the start of a pass")
    job.tell(2, idle=251.0, phase="data")
    job.log(2, f"{GLOG}waiting for the data provider my_provider::process")
    assert job.lines() == [
        "no progress: trainers 0, 1, 2 of 3 complete no batch; look at trainer 2 first, because the others wait for it",
        "  trainer 2 on pod-2 has completed no batch for 0:04:11: waiting for the data provider my_provider::process",
        f"  trainer 0 on pod-0 has completed no batch for 0:04:10: {PUSHES} 2 at 10.0.0.9, which last asked for the "
        "start of a pass",
        f"  trainer 1 on pod-1 has completed no batch for 0:04:10: {PUSHES} 2 at 10.0.0.9, which last asked for the "
        "start of a pass",
    ]


def test_a_silent_pod_is_named_before_those_that_wait_for_it(job: Hanging) -> None:
    for number in (0, 2):
        job.tell(number, idle=100.0)
        job.log(number, f"{GLOG}{PUSHES} 1 at 10.0.0.9, which last pushed batch 16 of pass 0")
    job.tell(1, idle=2.0, age=101.0)
    head, first, *_ = job.lines()
    assert head.endswith(
        "trainers 0, 1, 2 of 3 complete no batch; look at trainer 1 first, because the others wait for it"
    )
    assert first == "  trainer 1 on pod-1 is silent: it has reported nothing for 0:01:40; it is frozen or gone"


@pytest.mark.parametrize("skew", [-600.0, 600.0], ids=["behind", "ahead"])
def test_the_clock_of_a_trainer_makes_it_neither_silent_nor_alive(job: Hanging, skew: float) -> None:
    """A healthy trainer whose clock was ten minutes behind was called frozen, and a frozen one ahead was not."""
    for number in range(3):
        job.tell(number, time=time.time() + skew * (number == 1))
    assert job.lines() == []
    job.tell(1, age=101.0, time=time.time() + skew)
    assert job.lines()[1] == "  trainer 1 on pod-1 is silent: it has reported nothing for 0:01:40; it is frozen or gone"


@pytest.mark.parametrize("skew", [-600.0, 600.0], ids=["behind", "ahead"])
def test_the_clock_of_who_asks_makes_no_trainer_silent(
    job: Hanging, monkeypatch: pytest.MonkeyPatch, skew: float
) -> None:
    real, rewrites = time.time, list[int]()
    for number in range(3):
        job.tell(number)

    def look_again(_: float) -> None:  # while the files are observed, trainer 0 writes
        rewrites.append(0)
        stamp = real() + len(rewrites)
        os.utime(job.output / "node_0/progress.json", (stamp, stamp))

    job.begin(60.0)
    monkeypatch.setattr(time, "time", lambda: real() + skew)
    with monkeypatch.context() as patch:
        patch.setattr(status_files.time, "sleep", look_again)
        assert job.lines() == [] and rewrites
    head, *found = job.lines()  # nobody writes
    assert head.startswith("no progress: trainers 0, 1, 2 of 3") and all("is silent" in line for line in found)


def test_what_several_servers_say_alike_is_told_once(job: Hanging) -> None:
    waits = [
        "pserver a:7164 waits for trainer 1 at b",
        "pserver a:7165 waits for trainer 1 at b",
        "pserver b:1 is gone",
    ]
    job.log(0, f"{GLOG}has waited 62 s to push batch 1 of pass 0: {'; '.join(waits)}")
    job.tell(0, idle=62.0)
    job.tell(1)
    job.tell(2)
    assert job.lines()[1].endswith(f"has waited 62 s to push batch 1 of pass 0: {waits[0]}; {waits[2]}")


def test_a_server_that_does_not_answer_is_named(job: Hanging) -> None:
    job.tell(0, idle=40.0)
    job.log(0, f"{GLOG}has waited 30 s to push batch 17 of pass 0: pserver 10.0.0.7:7164 is silent for 31 s")
    job.tell(1)
    job.tell(2)
    assert job.lines() == [
        "no progress: trainer 0 of 3 completes no batch",
        "  trainer 0 on pod-0 has completed no batch for 0:00:40: has waited 30 s to push batch 17 of pass 0: pserver "
        "10.0.0.7:7164 is silent for 31 s",
    ]


@pytest.mark.parametrize(
    ("phase", "last", "reason"),
    [
        ("data", f"{GLOG}a message of another kind", "waits for its data"),
        ("test", "", "tests"),
        ("other", f"{GLOG}a message of another kind", "the log ends with: a message of another kind"),
        ("other", "a print of the user", "its log does not say why"),
        (["odd"], "", "its log does not say why"),
    ],
)
def test_without_a_wait_in_the_log_the_phase_or_the_last_line_is_told(
    job: Hanging, phase: Any, last: str, reason: str
) -> None:
    job.log(0, last)
    job.tell(0, idle=40.0, phase=phase)
    job.tell(1)
    job.tell(2)
    assert job.lines()[1] == f"  trainer 0 on pod-0 has completed no batch for 0:00:40: {reason}"


def test_trainers_that_have_not_begun_say_what_they_wait_for(job: Hanging) -> None:
    job.log(0, f"{GLOG}has waited 4 s to join: pserver 10.0.0.7:7164 waits for trainers 1, 2 of 3 to join")
    job.log(1, f"{GLOG}has waited 4 s to join: pserver 10.0.0.7:7164 waits for trainer 2 of 3 to join")
    head, first, *others = job.lines()
    assert head.startswith("no progress: trainers 0, 1, 2 of 3 complete no batch; ")
    assert head.endswith("; look at trainer 2 first, because the others wait for it")
    assert first == (
        "  trainer 2 on job-2 on node-2 has not begun to train: the launcher has not started the trainer; see the end "
        "of the pod's log"
    )
    assert [line.partition(": ")[2][:14] for line in others] == ["has waited 4 s", "has waited 4 s"]


def test_the_log_of_an_earlier_attempt_is_not_taken_for_the_reason(job: Hanging) -> None:
    job.log(1, f"{GLOG}has waited 30 s for something of the earlier attempt")
    os.utime(job.output / "node_1/train.log", (1.0, 1.0))
    job.tell(0)
    job.tell(2)
    assert job.lines()[1].startswith("  trainer 1 on job-1 on node-1 has not begun to train: the launcher has not")


def test_a_trainer_of_an_attempt_that_has_just_begun_is_not_named(job: Hanging) -> None:
    """One second after the start of a job, status said that its trainers make no progress."""
    job.begin(1.0)
    assert job.lines() == []
    job.begin(31.0)
    assert job.lines()[0].startswith("no progress: trainers 0, 1, 2 of 3 complete no batch")


def test_a_job_that_trains_or_has_ended_has_no_such_lines(job: Hanging) -> None:
    for number in range(3):
        job.tell(number, idle=29.0)
    assert job.lines() == []
    for number in range(3):
        job.tell(number, idle=900.0, age=900.0, status="finished")
    assert job.lines() == []


def test_of_many_trainers_five_are_told_with_the_one_that_all_wait_for(job: Hanging) -> None:
    write_record(job.output, dataclasses.replace(RECORD, gradient_num=100, pods=[]))
    for number in range(100):
        job.tell(number, idle=60.0)
        if number != 57:
            job.log(number, f"{GLOG}{PUSHES} 57 at 10.0.0.9, which last pushed batch 16")
    lines = job.lines()
    assert len(lines) == 7
    assert lines[0].endswith("; look at trainer 57 first, because the others wait for it")
    assert lines[1].startswith("  trainer 57 on pod-57 ")
    assert lines[6] == f"  and 95 more: the end of {job.output}/node_<id>/train.log says why"


@pytest.mark.parametrize(
    "odd",
    [{"idle_seconds": "x"}, {"time": "x"}, {"host": {}}, {"idle_seconds": 1e400}, {"idle_seconds": 1e300}],
)
def test_an_odd_report_is_no_error(job: Hanging, odd: dict[str, Any]) -> None:
    """1e300 seconds without a batch ended `paddle status` with a traceback."""
    job.tell(0, **{"idle_seconds": 250.0, **odd})
    job.lines()


def test_a_report_of_endless_texts_fills_no_terminal(job: Hanging, capsys: pytest.CaptureFixture[str]) -> None:
    """A host and a pass of 60,000 characters made the tables of 20 trainers 1.3 MB long."""
    for number in range(3):
        job.tell(number, **{"pass": "9" * 60_000, "host": "h" * 60_000, "message": "m" * 60_000})
    assert status.main([str(job.output)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= ROW_LIMIT + 3
    assert sum(map(len, lines)) < 20_000
