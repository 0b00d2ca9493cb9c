"""The launcher as a process, with a real API over TLS and programs that are a line of shell each."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import JOB, JOB_UID
from launches import DEADLINE_S, GOODBYE, LAUNCHER, ONCE, PATIENT, SAVE_A_PASS, UNTIL_GOODBYE, Launch

from paddle_base.runtime.kubernetes.answers import REQUEST_TIMEOUT_S
from paddle_cluster.localcluster import ApiRequest, ApiResponse, ApiServer


def test_a_job_runs_to_its_end_and_leaves_its_logs(launch: Callable[..., Launch]) -> None:
    job = launch(is_whole=True)
    assert job.wait() == 0, job.said
    assert (job.node / "train.log").read_text() == "trained\n"
    assert "server up" in (job.node / "server.log").read_text()
    assert "trained\n" in job.said  # the pod's own log has it too
    assert (job.root / "work" / "data" / "train.txt").exists()
    record = json.loads((job.output / "job.json").read_text())
    assert record["finished"] and record["job_uid"] == JOB_UID  # the controller's
    probe, pserver, trainer = sorted(
        job.calls(), key=lambda call: (call.startswith("train"), "--probe" not in call)
    )  # pserver and probe start together
    assert pserver.startswith("pserver --port=7164 ") and probe.startswith("pserver --probe --pservers=127.0.0.1 ")
    assert trainer.startswith("train --nics=eth0 --port=7164 ") and "--trainer_id=0" in trainer


def test_a_late_replacement_of_a_finished_job_ends_with_0_and_trains_nothing(launch: Callable[..., Launch]) -> None:
    assert launch().wait() == 0
    late = launch()
    assert late.wait() == 0
    assert "nothing left to do" in late.said and len(late.calls()) == 3


@pytest.mark.parametrize(
    ("status", "restarts"),
    [*((status, "0") for status in (1, 69, 70, 74, 75)), *((status, "10") for status in (64, 65, 66, 77, 78))],
)
def test_S12_the_pod_ends_with_the_trainers_status(launch: Callable[..., Launch], status: int, restarts: str) -> None:
    """The original lost it in `| tee`: a crashed training was a Succeeded pod. What no retry mends has no second."""
    job = launch(TRAINER=f"echo bad line 7; exit {status}", PSERVER=PATIENT, RESTARTS=restarts)
    assert job.wait() == status
    assert sum(call.startswith("train ") for call in job.calls()) == 1
    assert job.error()["exit_code"] == status and job.error()["program"] == "trainer"
    assert "bad line 7" in job.error()["message"]


def test_S12_a_killed_trainer_is_75_and_the_signal_is_named(launch: Callable[..., Launch]) -> None:
    job = launch(TRAINER="kill -9 $$", PSERVER=PATIENT)
    assert job.wait() == 75
    # which of them, depends on what this machine shows of its cgroup; tests/unit/launcher/test_launcher_memory.py
    assert re.search(r"trainer was killed by SIGKILL \((out of memory\?|memory did not run out.*)\)", job.said)


@pytest.mark.parametrize(("end", "status"), [("exit 75", 75), ("exit 78", 78), ("kill -11 $$", 75)], ids=str)
def test_S13_a_dead_pserver_stops_the_trainer_and_its_last_lines_are_reported(
    launch: Callable[..., Launch], end: str, status: int
) -> None:
    """The original ran it unwatched in the background."""
    job = launch(
        PSERVER=f"until [ -e started ]; do read -t 1 _ <>fifo; done; echo no room; {end}",
        TRAINER="trap 'exit 143' TERM; touch started; echo 1<>fifo; while :; do read _ <>fifo2; done",
        PROBE="mkfifo fifo2",
        STOP_TIMEOUT="1",
    )
    assert job.wait() == status
    assert job.error()["program"] == "pserver" and "no room" in job.error()["message"]


def test_a_trainer_with_a_reason_of_its_own_wins_over_the_pserver_it_took_along(launch: Callable[..., Launch]) -> None:
    job = launch(
        PSERVER="until [ -e started ]; do read -t 1 _ <>fifo; done; exit 75",
        TRAINER="touch started; echo 1<>fifo; read -t 1 _ <>fifo2; echo bad data; exit 65",
        PROBE="mkfifo fifo2",
    )
    assert job.wait() == 65
    assert job.error()["program"] == "trainer"


def test_S14_the_pod_stays_until_its_pserver_has_seen_all_trainers_leave(launch: Callable[..., Launch]) -> None:
    """In the original the pserver died with its own trainer, while others still fetched parameters from it."""
    job = launch(TRAINER="echo trained", PSERVER=f"{UNTIL_GOODBYE}; echo all have left")
    job.wait_for(lambda: (job.node / "train.log").exists() and "trained" in (job.node / "train.log").read_text())
    assert job.process.poll() is None
    (job.root / "work" / "goodbye").touch()
    assert job.wait() == 0
    assert "all have left" in (job.node / "server.log").read_text()


def test_S14_a_pserver_that_lost_a_peer_after_our_training_makes_the_pod_retriable(
    launch: Callable[..., Launch],
) -> None:
    job = launch(TRAINER="touch goodbye; echo 1<>fifo", PSERVER=f"{UNTIL_GOODBYE}; echo trainer 2 is lost; exit 75")
    assert job.wait() == 75
    assert "trainer 2 is lost" in job.error()["message"]
    assert not json.loads((job.output / "job.json").read_text())["finished"]


def test_S15_the_wait_for_the_others_has_a_deadline_and_the_pserver_does_not_stay(
    launch: Callable[..., Launch],
) -> None:
    """In later launchers pservers never ended by themselves."""
    job = launch(TRAINER="true", PSERVER=f"echo $$ >pid; {PATIENT}", GOODBYE_TIMEOUT="0.2")
    assert job.wait() == 75
    assert "GOODBYE_TIMEOUT" in job.said
    assert not Path(f"/proc/{(job.root / 'work' / 'pid').read_text().strip()}").exists()


@pytest.mark.parametrize("flag", ["--local=1", "--local=True", "--local"])
def test_a_trainer_without_pservers_is_not_waited_for_by_them(launch: Callable[..., Launch], flag: str) -> None:
    """LOCAL=1 ended after GOODBYE_TIMEOUT with 75, because no trainer had ever come to say goodbye."""
    job = launch(flag, TRAINER="echo trained", PSERVER=PATIENT)
    assert job.wait() == 0, job.said


@pytest.mark.parametrize(
    "number, status", [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)], ids=["SIGTERM", "SIGINT"]
)
def test_S16_a_signal_reaches_the_trainer_and_nothing_is_left(
    launch: Callable[..., Launch], number: int, status: int
) -> None:
    """In the original a shell was process 1 and forwarded nothing: the pod was killed after its grace."""
    job = launch(
        PSERVER=f"echo $$ >pid; {PATIENT}",
        TRAINER="trap 'echo saved; exit 143' TERM; echo $$ >pid2; echo ready; while :; do read _ <>fifo; done",
    )
    job.wait_for(lambda: "ready" in job.said)
    job.process.send_signal(number)
    assert job.wait() == status
    assert "saved" in (job.node / "train.log").read_text()
    for name in ("pid", "pid2"):
        assert not Path(f"/proc/{(job.root / 'work' / name).read_text().strip()}").exists()


def test_S16_a_signal_while_waiting_for_the_pods_ends_the_launcher(launch: Callable[..., Launch]) -> None:
    job = launch(CONF_PADDLE_GRADIENT_NUM="2")
    job.wait_for(lambda: "1 of 2 Running; 1 of 2 pods exist" in job.said)
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 143
    assert "stopped by SIGTERM before the training began" in job.said


def test_S16_a_signal_while_the_others_still_train_ends_the_launcher(launch: Callable[..., Launch]) -> None:
    """It went unheard for GOODBYE_TIMEOUT: `kubectl delete job` took the whole grace period."""
    job = launch(TRAINER="echo trained", PSERVER=PATIENT)
    job.wait_for(lambda: "trained" in job.said)
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 143, job.said


def test_S16_a_signal_while_the_shard_is_copied_ends_the_launcher(launch: Callable[..., Launch]) -> None:
    """It was heard after the last file only, which may be long after the grace period."""
    job = launch(CONF_PADDLE_GRADIENT_NUM="2")
    job.process.kill()
    shard = job.output.parent / "0" / "data"
    for number in range(20000):  # takes seconds
        (shard / f"{number}").hardlink_to(shard / "train.txt")
    job = launch(PSERVER=f"echo $$ >pid; {PATIENT}")
    job.wait_for(lambda: (job.root / "work" / "data").exists())
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 143, job.said
    assert "copied" not in job.said
    assert not Path(f"/proc/{(job.root / 'work' / 'pid').read_text().strip()}").exists()


def test_S16_a_trainer_that_dies_of_the_forwarded_signal_makes_143(launch: Callable[..., Launch]) -> None:
    """One that had not got as far as its own handler made 75, as if it had crashed."""
    job = launch(TRAINER="echo ready; exec tail -f /dev/null", PSERVER=PATIENT)
    job.wait_for(lambda: "ready" in job.said)
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 143, job.said


def test_S16_a_trainer_that_ignores_the_forwarded_signal_is_asked_once(launch: Callable[..., Launch]) -> None:
    """It was given STOP_TIMEOUT twice, which is longer than the tutorial's grace period."""
    trainer = "trap 'echo asked' TERM; echo ready; while :; do read _ <>fifo; done"
    job = launch(TRAINER=trainer, PSERVER=PATIENT, STOP_TIMEOUT="0.5")
    job.wait_for(lambda: "ready" in job.said)
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 143, job.said
    assert (job.node / "train.log").read_text().count("asked") == 1 and "trainer did not end in time" in job.said


def test_a_program_that_ignores_SIGTERM_is_killed(launch: Callable[..., Launch]) -> None:
    job = launch(PSERVER="trap '' TERM; while :; do read _ <>fifo; done", TRAINER="exit 65", STOP_TIMEOUT="0.2")
    assert job.wait() == 65
    assert "pserver did not end in time after SIGTERM, and gets SIGKILL" in job.said


def test_S5_the_trainer_starts_only_when_every_pserver_answers(launch: Callable[..., Launch]) -> None:
    """The original slept 20 seconds and hoped."""
    job = launch(PROBE="echo pserver 10.0.0.3:7164 does not answer; exit 69", PSERVER=PATIENT, START_TIMEOUT="1")
    assert job.wait() == 69
    assert "10.0.0.3:7164 does not answer" in job.said
    assert not any(call.startswith("train ") for call in job.calls())


def test_S16_a_signal_while_the_api_server_hangs_ends_the_launcher(
    launch: Callable[..., Launch], api: ApiServer
) -> None:
    """After a probe in vain the set of pods is looked at; that request may take its whole timeout, twice."""
    asked = threading.Event()

    def hang(_: ApiRequest) -> ApiResponse:
        asked.set()
        return ApiResponse.never()

    job = launch(
        PROBE="until [ -e hanging ]; do read -t 1 _ <>fifo2; done; exit 69", PSERVER=f"mkfifo fifo2; {PATIENT}"
    )
    job.wait_for(lambda: "waiting for all pservers" in job.said)
    api.hook = hang
    (job.root / "work" / "hanging").touch()
    assert asked.wait(DEADLINE_S)
    job.process.send_signal(signal.SIGTERM)
    assert job.process.wait(REQUEST_TIMEOUT_S / 2) == 143, job.said


def test_a_pserver_that_dies_during_the_probe_is_reported(launch: Callable[..., Launch]) -> None:
    job = launch(PROBE="while :; do read _ <>fifo; done", PSERVER="echo port 7164 in use; exit 75")
    assert job.wait() == 75
    assert "port 7164 in use" in job.error()["message"]


def test_S20_a_missing_shard_ends_the_pod_before_training(launch: Callable[..., Launch], tmp_path: Path) -> None:
    """The original ignored the status of cp."""
    (tmp_path / "volume" / JOB / "0" / "data" / "train.txt").unlink()
    job = launch(PSERVER=PATIENT)
    assert job.wait() == 66
    assert "the data job makes" in job.error()["message"]
    assert not any(call.startswith("train ") for call in job.calls())


def test_a_grandchild_that_keeps_the_pipe_open_does_not_hold_up_the_end(launch: Callable[..., Launch]) -> None:
    job = launch(TRAINER="(trap '' HUP; exec tail -f /dev/null) & echo $! >pid; touch goodbye; echo 1<>fifo")
    try:
        assert job.wait() == 0
    finally:
        os.kill(int((job.root / "work" / "pid").read_text()), signal.SIGKILL)


def test_S22_no_shell_reads_the_values(launch: Callable[..., Launch]) -> None:
    """The original joined the command to one string for os.system: a value could run anything."""
    job = launch("--comment=two words; touch injected", "--num_passes=3")
    assert job.wait() == 0
    assert any("--comment=two words; touch injected" in call for call in job.calls())
    assert not (job.root / "work" / "injected").exists()


@pytest.mark.parametrize("end", ["exit 75", "exit 69", "exit 74", "exit 70", "exit 1", "exit 143", "kill -9 $$"])
def test_a_program_that_fails_is_started_again_in_the_same_pod(launch: Callable[..., Launch], end: str) -> None:
    """Every incident cost the pod, and with it those of all peers: back-off, scheduling, copying the shard again."""
    job = launch(TRAINER=ONCE.format(f"{SAVE_A_PASS}; {end}") + GOODBYE, RESTARTS="1")
    assert job.wait() == 0, job.said
    trainer = [call for call in job.calls() if call.startswith("train ")][-1]
    assert "--start_pass=2" in trainer and "--num_passes=1" in trainer
    assert "shard 0 is still in ./data" in job.said
    assert (job.node / "error.json.1").exists() and (job.node / "train.log.1").exists()
    assert not (job.node / "error.json").exists()
    record = json.loads((job.output / "job.json").read_text())
    assert (record["attempt"], record["finished"], record["fruitless"]) == (2, True, 0)


def test_a_pserver_that_is_killed_is_started_again_in_the_same_pod(launch: Callable[..., Launch]) -> None:
    job = launch(
        PSERVER=ONCE.format("until [ -e started ]; do read -t 1 _ <>fifo; done; kill -9 $$") + UNTIL_GOODBYE,
        TRAINER=f"[ -e started ] && {{ {GOODBYE}; exit; }}; touch started; echo 1<>fifo; read _ <>fifo2; exit 70",
        PROBE="[ -e fifo2 ] || mkfifo fifo2",
        RESTARTS="1",
        STOP_TIMEOUT="1",
    )
    assert job.wait() == 0, job.said
    assert "pserver was killed by SIGKILL" in job.said and "attempt 2." in job.said


def test_training_goes_on_from_the_newest_checkpoint(launch: Callable[..., Launch]) -> None:
    save = (
        f"""d=$JOB_PATH/{JOB}/output/state/pass-00002-004; mkdir -p "$d"; """
        """printf '{"version": 1, "files": {}}' >"$d/job.json"; """
        """sha256sum "$d/job.json" | cut -c-64 | tr -d '\\n' >"$d/done\""""
    )
    job = launch(TRAINER=ONCE.format(f"{SAVE_A_PASS}; {save}; exit 75") + GOODBYE, RESTARTS="1")
    assert job.wait() == 0, job.said
    first, second = [call for call in job.calls() if call.startswith("train ")]
    assert "--resume_from=" not in first and f"--resume_from={job.output}/state/pass-00002-004" in second
    assert "--num_passes=3" in second and "--start_pass" not in second
    assert "going on from state/pass-00002-004 of an earlier attempt" in job.said


def test_a_checkpoint_that_the_trainer_found_damaged_costs_no_attempt_and_the_one_before_it_is_taken(
    launch: Callable[..., Launch],
) -> None:
    """What only a sum tells is found by trainer 0, which sets the checkpoint aside and ends with 75."""
    seal = """printf '{"version": 1, "files": {}}' >job.json; sha256sum job.json | cut -c-64 | tr -d '\\n' >done"""
    save = f'for k in 1 2; do mkdir -p "$state/pass-00000-00$k"; (cd "$state/pass-00000-00$k"; {seal}); done'
    find = 'mv "$PADDLE_CHOSEN_SAVE" "$PADDLE_CHOSEN_SAVE.damaged"; echo "is damaged"; exit 75'
    first = f"[ -e one ] || {{ touch one; {save}; exit 75; }}; "
    second = f"[ -e two ] || {{ touch two; {find}; }}; "
    job = launch(TRAINER=f"state=$JOB_PATH/{JOB}/output/state; {first}{second}{GOODBYE}", RESTARTS="0")
    assert job.wait() == 0, job.said
    origins = [re.findall(r"--resume_from=\S*/(pass-\S+)", call) for call in job.calls() if call.startswith("train ")]
    assert origins == [[], ["pass-00000-002"], ["pass-00000-001"]]
    assert (job.output / "state" / "pass-00000-002.damaged").is_dir()


@pytest.mark.parametrize("victim", ["$$", "$PPID"], ids=["the trainer", "its launcher"])
def test_a_kill_between_the_last_pass_and_its_checkpoint_leaves_a_job_that_has_finished(
    launch: Callable[..., Launch], victim: str
) -> None:
    """The Job was Complete, but job.json said that it is not finished, and progress.json that it trains, for ever."""
    save = (
        f"cd $JOB_PATH/{JOB}/output; for k in 0 1 2; do mkdir pass-0000$k; touch pass-0000$k/done; done; "
        "mkdir -p state/.pass-00002.writing/parameters; "
        """echo '{"status": "training", "pass": 2, "batch": 7, "passes": 3}' >progress.json; """
    )
    job = launch(TRAINER=f"touch goodbye; echo 1<>fifo; {save} kill -9 {victim}", RESTARTS="1")
    assert job.wait() == (0 if victim == "$$" else -9), job.said
    if victim == "$PPID":
        job = launch(RESTARTS="1")
        assert job.wait() == 0, job.said
    assert "this Job has trained all its passes: nothing left to do" in job.said
    assert json.loads((job.output / "job.json").read_text())["finished"]
    assert json.loads((job.output / "progress.json").read_text())["status"] == "finished"
    assert not list(job.output.glob("**/.*writing"))
    assert sum(call.startswith("train ") for call in job.calls()) == 1
    assert job.calls()[-1] == f"report {job.output}"


def test_a_signal_while_a_failure_is_put_down_changes_nothing_of_it(launch: Callable[..., Launch]) -> None:
    """Who fails first of a reason that no retry mends has the Job stop all the others."""
    job = launch(TRAINER="exit 65", REPORT='kill -TERM $PPID; sleep 0.2; echo page >"$2/report.html"')
    assert job.wait() == 65, job.said
    assert job.error()["exit_code"] == 65
    assert (job.output / "report.html").read_text() == "page\n"


def test_attempts_in_vain_end_with_a_report_and_then_the_job(launch: Callable[..., Launch]) -> None:
    """The pod ends with the last failure's status; one that the Job makes after that with one that fails the Job."""
    job = launch(TRAINER="echo no room; exit 74", PSERVER=PATIENT, RESTARTS="1")
    assert job.wait() == 74
    assert sum(call.startswith("train ") for call in job.calls()) == 2
    report = job.said.partition("giving up: 2 attempts in a row")[2]
    assert "attempt 1." in report and "attempt 2." in report and report.count("exit status 74") == 2
    assert report.count("no room") == 2
    late = launch(RESTARTS="1")
    assert late.wait() == 78
    assert late.said.count("giving up") == 2 and "delete the Job and create it again" in late.said
    assert sum(call.startswith("train ") for call in job.calls()) == 2


def test_S16_a_signal_between_two_attempts_ends_the_launcher(launch: Callable[..., Launch]) -> None:
    job = launch(TRAINER="exit 75", PSERVER=PATIENT)
    assert job.wait() == 75  # with RESTARTS=0; so the next ones pause
    record = json.loads((job.output / "job.json").read_text())
    (job.output / "job.json").write_text(json.dumps({**record, "given_up": False, "fruitless": 9}))
    job = launch(TRAINER="exit 75", PSERVER=PATIENT, RESTARTS="100")
    job.wait_for(lambda: "for the next attempt, in 60 s" in job.said)
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 143, job.said


def test_the_first_to_fail_in_this_attempt_is_named(launch: Callable[..., Launch]) -> None:
    first = {"time": 1, "trainer_id": 7, "host": "far", "program": "trainer", "exit_code": 65, "message": "bad line"}
    # the attempt's name is known inside the job only
    code = (
        "import json, os, sys; print(json.dumps({**json.loads(sys.argv[1]), 'attempt': os.environ['PADDLE_ATTEMPT']}))"
    )
    write = f"python3 -c \"{code}\" '{json.dumps(first)}'"
    job = launch(TRAINER=f"d=$JOB_PATH/{JOB}/output/node_7; mkdir $d; {write} >$d/error.json; exit 75", PSERVER=PATIENT)
    assert job.wait() == 75
    assert re.search(r"first failure reported: trainer 7 on far: trainer, exit status 65, 1970-.*: bad line", job.said)


def test_dry_run_prints_the_plan_and_starts_nothing(launch: Callable[..., Launch]) -> None:
    job = launch("--dry_run", "--config=config.py")
    assert job.wait() == 0
    assert "trainer 0: 127.0.0.1 (this pod)" in job.said and "paddle train --nics=eth0" in job.said
    assert "paddle pserver --port=7164" in job.said
    assert not (job.root / "calls").exists() and not job.output.exists()


BAD_START = {
    "a variable is missing: 78": ({"KUBERNETES_SERVICE_HOST": ""}, (), 78, "KUBERNETES_SERVICE_HOST is not set"),
    "no paddle program: 78": ({"PATH": "/usr/bin:/bin"}, (), 78, "there is no program 'paddle' on PATH"),
    "a stray argument: 64": ({}, ("train",), 64, "Unknown commandline argument: train"),
    "no such config: 66": ({}, ("--config=absent.py",), 66, "absent.py: there is no such file"),
    "no passes: 64": ({}, ("--num_passes=0",), 64, "--num_passes=0"),
    "a program that cannot be executed: 78": ({"PATH": "../odd"}, (), 78, "no program 'paddle' on PATH"),
    "an address of no pod: 78": ({"POD_IP": "127.0.0.9"}, (), 78, "POD_IP by the downward API"),
    "a wrong CA: 69": (
        {"SERVICE_ACCOUNT_DIR": "/nonexistent", "START_TIMEOUT": "0.5"},
        (),
        69,
        "CERTIFICATE_VERIFY_FAILED",
    ),
}


@pytest.mark.parametrize(("environ", "flags", "status", "said"), BAD_START.values(), ids=BAD_START.keys())
def test_a_bad_start_has_one_message_and_no_traceback(
    launch: Callable[..., Launch],
    tmp_path: Path,
    environ: dict[str, str],
    flags: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    """S11: a certificate of another authority is not accepted; the original did not look (verify=False)."""
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "paddle").touch(0o644)
    job = launch(*flags, **environ)
    assert job.wait() == status, job.said
    assert said in job.said and "Traceback" not in job.said


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full", "| true"])
def test_a_stdout_that_cannot_be_written_does_not_change_the_status(
    launch: Callable[..., Launch], redirection: str
) -> None:
    """The trainer lost its launcher with a traceback, or the pod ended with 120 from the interpreter's last flush."""
    job = launch("--dry_run")
    assert job.wait() == 0
    command = [sys.executable, str(LAUNCHER), "--num_passes=3", "--config=config.py"]
    environ = {**job.environ, "TRAINER": "seq 20000; touch goodbye; echo 1<>fifo; exit 65", "PYTHONUNBUFFERED": ""}
    script = f'{{ "$@"; echo $? >status; }} {redirection}'
    run = subprocess.run(
        ["bash", "-c", script, "bash", *command], cwd=job.root / "work", env=environ, timeout=DEADLINE_S, check=False,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert (job.root / "work" / "status").read_text() == "65\n", run.stderr
    assert (job.node / "train.log").read_text().endswith("20000\n")
