"""A program of ENTRY in place of `paddle train`: the launcher and the shell are processes, as in a pod."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from launches import DEADLINE_S, PATIENT, UNTIL_GOODBYE, Launch
from waiting import until

from paddle_cluster.launcher.entry import TRAP
from paddle_cluster.launcher.programs.shell import ShellProgram

ALONE = {"CONF_PADDLE_PSERVER_NUM": "0"}
PRINT_ALL = "import json, os; json.dump({**os.environ, 'cwd': os.getcwd()}, open('told.json', 'w'))"
# saves when it gets SIGTERM
SAVING = """
import signal, sys
def save(*_):
    print('saved', flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print('ready', flush=True)
while True:
    signal.pause()
"""
# lets the pserver end, and tests for a second
TESTING = """
import os, pathlib, time
pathlib.Path('goodbye').touch()
os.write(os.open('fifo', os.O_RDWR), b'1')
while pathlib.Path('/proc', pathlib.Path('pid').read_text().strip()).exists():
    time.sleep(0.01)
time.sleep(1)
print('tested')
"""


def write(root: Path, text: str) -> str:
    """Write a program into the directory of the job, and return its command."""
    (root / "work" / "train.py").write_text(text)
    return f"{sys.executable} train.py"


def test_a_program_runs_to_its_end_with_its_shard_and_its_environment(
    launch: Callable[..., Launch], tmp_path: Path
) -> None:
    job = launch("--num_passes=3", ENTRY=write(tmp_path, PRINT_ALL), is_whole=True, **ALONE)
    assert job.wait() == 0, job.said
    told = json.loads((tmp_path / "work" / "told.json").read_text())
    assert told["cwd"] == str(tmp_path / "work") and (tmp_path / "work" / "data" / "train.txt").exists()
    assert (told["RANK"], told["WORLD_SIZE"], told["PADDLE_INIT_NUM_PASSES"]) == ("0", "1", "3")
    assert (told["PADDLE_OUTPUT"], told["PADDLE_CHECKPOINT"]) == (str(job.output), "")
    record = json.loads((job.output / "job.json").read_text())
    assert record["finished"] and told["PADDLE_ATTEMPT"] == record["attempts"][0]["name"]
    assert not [call for call in job.calls() if call.startswith(("pserver", "train"))]


def test_a_program_that_never_meets_its_pserver_ends_the_job(launch: Callable[..., Launch]) -> None:
    """The pod waited for GOODBYE_TIMEOUT, because no trainer had said goodbye to the pserver."""
    job = launch(ENTRY="echo trained", PSERVER=PATIENT)
    assert job.wait() == 0, job.said
    assert "trained\n" in job.said


def test_a_program_may_go_on_after_its_pserver_has_ended(launch: Callable[..., Launch], tmp_path: Path) -> None:
    """It was stopped STOP_TIMEOUT after the pserver had seen all trainers leave: a test or a save follows then."""
    entry = write(tmp_path, TESTING)
    job = launch(ENTRY=entry, PSERVER=f"echo $$ >pid; {UNTIL_GOODBYE}; exit 0", STOP_TIMEOUT="0.1")
    assert job.wait() == 0, job.said
    assert "tested\n" in job.said


def start_shell(entry: str, log: Path) -> ShellProgram:
    return ShellProgram("trainer", ["sh", "-c", f"{TRAP}{entry}"], os.environ, log, copied=False)


@pytest.mark.parametrize(
    "shape", ["{}", "{}; echo went on", "echo first && {}", "(echo first; {})", "sh run.sh", "sh own.sh"]
)
def test_sigterm_reaches_the_program_behind_the_shell(shape: str, tmp_path: Path) -> None:
    """A shell that is not replaced by its last command dies of the signal alone, and its program is killed unsaved."""
    (tmp_path / "train.py").write_text(SAVING)
    command = f"{sys.executable} {tmp_path / 'train.py'}"
    (tmp_path / "run.sh").write_text(f"{command}\n")
    (tmp_path / "own.sh").write_text(f"trap 'kill $!; wait $!; exit 143' TERM; {command} & wait\n")
    log = tmp_path / "log"
    program = start_shell(f"cd {tmp_path}; {shape.format(command)}", log)
    until(lambda: b"ready" in log.read_bytes(), log=log)
    program.stop(DEADLINE_S)
    program.close()
    assert log.read_bytes().split()[-2:] == [b"ready", b"saved"]
    assert program.status == -signal.SIGTERM


def test_nothing_that_the_command_has_started_is_left(tmp_path: Path) -> None:
    """A process that stayed behind would hold MASTER_PORT in the next attempt."""
    log = tmp_path / "log"
    waiting = f"{sys.executable} -c 'import os, signal; print(os.getpid(), flush=True); signal.pause()'"
    program = start_shell(f"{waiting} & wait", log)
    pid = until(lambda: log.read_text().strip(), log=log)
    program.process.kill()
    program.process.wait()
    program.close()
    status = Path(f"/proc/{pid}/status")
    until(lambda: not status.exists() or "Z (zombie)" in status.read_text())


def test_python_2_given_to_python_is_told_of_paddle_run(launch: Callable[..., Launch], tmp_path: Path) -> None:
    """It was tried RESTARTS times, and the reader of the log found only the SyntaxError."""
    command = write(tmp_path, "try:\n    pass\nexcept IOError, e:\n    print 'no'\n")
    job = launch(ENTRY=command, RESTARTS="5", **ALONE)
    assert job.wait() == 65
    assert 'set ENTRY to "paddle run PROGRAM.py"' in job.said.strip().splitlines()[-1]
    assert len(json.loads((job.output / "job.json").read_text())["attempts"]) == 1


def test_the_second_attempt_gets_the_save_of_the_first(launch: Callable[..., Launch]) -> None:
    save = 'mkdir -p "$PADDLE_OUTPUT/state/pass-00004"; touch "$PADDLE_OUTPUT/state/pass-00004/done"; exit 3'
    entry = f'[ "$PADDLE_CHECKPOINT" ] || {{ {save}; }}; echo "from $PADDLE_CHECKPOINT"'
    job = launch(ENTRY=entry, RESTARTS="1", **ALONE)
    assert job.wait() == 0, job.said
    assert f"from {job.output}/state/pass-00004\n" in (job.node / "train.log").read_text()
    assert "going on from state/pass-00004 of an earlier attempt" in job.said


ABORT = f"{sys.executable} -c 'import os; os.abort()'"


@pytest.mark.parametrize(
    ("entry", "status"), [("exit 3", 3), ("exit 77", 77), ("kill -9 $$", 75), (ABORT, 75), ("nothing-like-this", 78)]
)
def test_the_pods_status_is_the_programs(launch: Callable[..., Launch], entry: str, status: int) -> None:
    job = launch(ENTRY=entry, **ALONE)
    assert job.wait() == status, job.said
