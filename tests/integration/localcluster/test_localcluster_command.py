"""The command line as a user meets it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import waiting
from forked import Forked, server

from paddle_cluster.localcluster.scratch import MARKER

ROOT = Path(__file__).parents[3]
DEADLINE = 60.0
MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: beside}
---
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  parallelism: 2
  completions: 2
  completionMode: Indexed
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: trainer
          image: x
          command: [bin/bash, -c, /root/start.sh]
          env: [{name: OUT, value: /home/jobpath/out}]
          volumeMounts: [{name: jobpath, mountPath: /home/jobpath}]
      volumes: [{name: jobpath, persistentVolumeClaim: {claimName: mfs}}]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder as ours: k8s/job.yaml and start.sh."""
    (tmp_path / "k8s").mkdir()
    (tmp_path / "k8s" / "job.yaml").write_text(MANIFEST)
    write_script(tmp_path, "echo $JOB_COMPLETION_INDEX > $OUT.$JOB_COMPLETION_INDEX; echo cost=0.5; echo dull")
    return tmp_path


def write_script(project: Path, text: str) -> None:
    (project / "start.sh").write_text(f"#!/bin/sh\n{text}\n")
    (project / "start.sh").chmod(0o755)


def start(project: Path, *arguments: str) -> Forked:
    return server().open(["paddle", "localcluster", "run", *arguments], project, {**os.environ, "TMPDIR": str(project)})


def run(project: Path, *arguments: str) -> tuple[int, str, str]:
    with start(project, *arguments) as process:
        out, err = process.communicate(timeout=DEADLINE)
        return process.wait(), out, err


def test_a_job_runs_as_its_manifest_stands(project: Path):
    code, out, err = run(project, "k8s/job.yaml", "--volume", "mfs=vol", "--follow", "0@cost", "--logs", "logs")
    assert (code, err) == (0, "")
    assert (project / "vol" / "out.0").read_text() == "0\n"
    lines = out.splitlines()
    assert f"mount: /home/jobpath -> {project}/vol" in lines
    assert f"script: /root/start.sh -> {project}/start.sh" in lines
    assert [line.partition("| ")[2] for line in lines if "| " in line] == ["cost=0.5"]
    statuses = [line.split()[2] for line in lines if line.startswith("j-1-")]
    assert statuses == ["ContainerCreating", "Running", "Completed"]
    assert lines[-1].startswith(
        "job/j: Complete (CompletionsReached: Reached expected number of succeeded pods); 2 of 2"
    )
    assert sorted(path.read_text() for path in (project / "logs").iterdir()) == ["cost=0.5\ndull\n"] * 2


def test_quiet_says_how_it_ended_only(project: Path):
    code, out, _ = run(project, "k8s/job.yaml", "--volume", "mfs=vol", "--quiet")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["job/j:", "job/j:"]


def test_a_job_goes_on_when_nobody_reads_any_more(project: Path):
    write_script(project, "while [ ! -e $OUT.go ]; do sleep 0.01; done; echo x > $OUT.$JOB_COMPLETION_INDEX")
    with start(project, "k8s/job.yaml", "--volume", "mfs=vol") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        (project / "vol" / "out.go").touch()
        assert process.stderr.read() == ""
        assert process.wait(DEADLINE) == 0
    assert (project / "vol" / "out.1").read_text() == "x\n"


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full"])
def test_a_job_goes_on_without_a_stdout(project: Path, redirection: str):
    command = f'exec "$@" {redirection}'
    arguments = [sys.executable, "-m", "paddle", "localcluster", "run", "k8s/job.yaml", "--volume", "mfs=vol"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(project)}
    run = subprocess.run(
        ["sh", "-c", command, "sh", *arguments],
        cwd=project,
        env=env,
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, b"")
    assert (project / "vol" / "out.1").read_text() == "1\n"


INIT = """      initContainers:
        - name: first
          image: x
          args: [first]
          env: [{name: OUT, value: /home/jobpath/first}]
          volumeMounts: [{name: jobpath, mountPath: /home/jobpath}]
      containers:
"""


def test_the_init_container_runs_to_its_end_before_the_pods_own(project: Path):
    (project / "k8s" / "job.yaml").write_text(MANIFEST.replace("      containers:\n", INIT))
    write_script(project, 'if [ "$1" = first ]; then echo made > $OUT; else cat ${OUT%out}first; fi')
    code, out, _ = run(project, "k8s/job.yaml", *VOLUME, "--follow", "made")
    assert code == 0
    assert [line.partition("| ")[2] for line in out.splitlines() if "| " in line] == ["made", "made"]


def test_after_an_init_container_that_fails_the_pods_own_does_not_start(project: Path):
    (project / "k8s" / "job.yaml").write_text(MANIFEST.replace("      containers:\n", INIT))
    write_script(project, '[ "$1" = first ] && exit 66; touch $OUT')
    code, out, _ = run(project, "k8s/job.yaml", *VOLUME)
    assert (code, list((project / "vol").iterdir())) == (66, [])
    assert " Running " not in out


def test_a_job_gets_a_secret_that_only_its_pods_read(project: Path):
    """On a cluster a command of the pages makes it; without it the programs end."""
    volumes = "      volumes: [{name: secret, secret: {secretName: paddle-secret, optional: true}}, "
    text = MANIFEST.replace("      volumes: [", volumes).replace(
        "volumeMounts: [", "volumeMounts: [{name: secret, mountPath: /etc/paddle-secret}, "
    )
    (project / "k8s" / "job.yaml").write_text(
        text.replace("value: /home/jobpath/out", "value: /etc/paddle-secret/secret")
    )
    write_script(project, "stat -c %a ${OUT%/*}; cat $OUT")
    code, out, _ = run(project, "k8s/job.yaml", *VOLUME, "--follow", "^[0-9a-f]*$")
    lines = [line.partition("| ")[2] for line in out.splitlines() if "| " in line]
    secrets = set(lines) - {"700"}
    assert (code, len(lines), len(secrets)) == (0, 4, 1) and len(secrets.pop()) == 64
    assert "mount: /etc/paddle-secret -> <a secret that this run has made>" in out
    assert temporary(project) == []


def test_a_failed_job_ends_with_the_pods_code_and_its_last_lines(project: Path):
    write_script(project, "[ $JOB_COMPLETION_INDEX = 1 ] && exec sleep 99; printf 'a\\nb\\n\\nc\\nlast\\n\\n'; exit 66")
    code, out, _ = run(project, "k8s/job.yaml", "--volume", "mfs=vol")
    assert code == 66
    end, *cause = out.splitlines()[-4:]
    assert end.startswith("job/j: Failed (BackoffLimitExceeded")
    assert [line.partition("| ")[2] for line in cause] == ["b", "c", "last"]
    assert all(line.startswith("j-0-") for line in cause)


def test_a_failed_job_with_a_save_says_how_to_go_on(project: Path):
    """After a fault in a later row of the test data, nothing said that the passes before it count."""
    write_script(project, "mkdir -p $OUT/output/pass-00000; echo > $OUT/output/pass-00000/done; exit 65")
    names = ("--env", "JOB_PATH=/home/jobpath", "--env", "JOB_NAME=out")
    code, out, _ = run(project, "k8s/job.yaml", "--volume", "mfs=vol", *names)
    told = "job/j: without the fault, the same command goes on from its newest save"
    assert (code, out.splitlines()[-1]) == (65, told)


def test_the_timeout_ends_everything(project: Path):
    write_script(project, "exec sleep 1000")
    code, out, _ = run(project, "k8s/job.yaml", "--volume", "mfs=vol", "--timeout", "0.3")
    assert code == 75
    assert "job/j: Failed (Timeout: the Job did not end within 0.3 s)" in out


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_ends_all_pods_in_order(project: Path, signum: int, code: int):
    training = "mkdir -p $OUT/output; echo {} > $OUT/output/job.json"
    write_script(project, f"{training}; trap 'echo saved; exit 143' TERM; echo pid=$$; while :; do sleep 0.05; done")
    names = ("--env", "JOB_PATH=/home/jobpath", "--env", "JOB_NAME=out")
    with start(project, "k8s/job.yaml", "--volume", "mfs=vol", "--follow", "pid=|saved", *names) as process:
        assert process.stdout is not None
        pods = []
        while len(pods) < 2:
            line = process.stdout.readline()
            assert line, "localcluster ended too early"
            if "| pid=" in line:
                pods.append(int(line.partition("pid=")[2]))
        process.send_signal(signum)
        out, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == code
    assert out.count("| saved") == 2
    assert "job/j: to go on from its newest save, run the same command again\n" in out
    assert not any(Path(f"/proc/{pod}").exists() for pod in pods)


JOB = "k8s/job.yaml"
VOLUME = ("--volume", "mfs=vol")
BAD_INPUT = {
    "no command": ((), 64, "the following arguments are required"),
    "missing file": (("none.yaml", *VOLUME), 66, "none.yaml: cannot be read: No such file or directory"),
    "directory": (("k8s", *VOLUME), 66, "k8s: cannot be read: Is a directory"),
    "no manifest": (("start.sh", *VOLUME), 65, "start.sh: a document is a str, expected an object"),
    "unknown volume": ((JOB, *VOLUME, "--volume", "efs=x"), 64, "--volume efs: the pods have no such volume"),
    "volume without directory": ((JOB, "--volume", "mfs"), 64, "--volume mfs: the form is NAME=DIR"),
    "volume is a file": ((JOB, "--volume", "mfs=start.sh"), 64, "--volume jobpath=start.sh: this is no directory"),
    "env without value": ((JOB, *VOLUME, "--env", "A"), 64, "--env A: the form is NAME=VALUE"),
    "follow form": ((JOB, *VOLUME, "--follow", "("), 64, "--follow (: '(' is no regular expression"),
    "seconds": ((JOB, *VOLUME, "--timeout", "soon"), 64, "argument --timeout: invalid"),
    "misspelt flag": ((JOB, *VOLUME, "--tmeout", "3"), 64, "--tmeout 3; did you mean --timeout? (see --help)"),
    "unknown flag": ((JOB, *VOLUME, "--fast"), 64, "unrecognized arguments: --fast"),
    "entrypoint given": ((JOB, *VOLUME, "--entrypoint", "x.sh"), 66, "--entrypoint x.sh: no such file"),
    "entrypoint not executable": ((JOB, *VOLUME, "--entrypoint", JOB), 64, "--entrypoint k8s/job.yaml: not executable"),
}


@pytest.mark.parametrize(("arguments", "code", "message"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_one_line_and_the_right_exit_code(
    project: Path, arguments: tuple[str, ...], code: int, message: str
):
    status, out, err = run(project, *arguments)
    assert (status, out) == (code, "")
    assert err.startswith("localcluster: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("module", ["trustme", "yaml"])
def test_a_plain_installation_names_the_extra(project: Path, module: str):
    """It was a traceback."""
    text = f"import runpy, sys; sys.modules['{module}'] = None; runpy.run_module('paddle', run_name='__main__')"
    command = [sys.executable, "-c", text, "localcluster", "run", "k8s/job.yaml"]
    done = subprocess.run(command, cwd=project, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    told = f"localcluster: no module {module}: pip install 'paddle-on-kubernetes[localcluster]'\n"
    assert (done.returncode, done.stderr) == (78, told)


def temporary(project: Path) -> list[str]:
    """What is left in the place for temporary files, without its random letters."""
    return sorted(path.name.rpartition("-")[0] for path in project.glob("localcluster-*"))


def is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_nothing_stays_behind_a_job_that_completes(project: Path):
    code, out, _ = run(project, "k8s/job.yaml", *VOLUME)
    assert (code, temporary(project)) == (0, [])
    assert "logs are in" not in out.splitlines()[-1]
    assert "made the directory vol for a volume\n" in out


def test_behind_a_job_that_fails_its_output_stays_and_is_named(project: Path):
    write_script(project, "echo why; exit 65")
    code, out, _ = run(project, "k8s/job.yaml", *VOLUME)
    assert (code, temporary(project)) == (65, ["localcluster-logs"])
    [logs] = project.glob("localcluster-logs-*")
    assert f"; the pods' logs are in {logs}\n" in out
    assert {path.suffix for path in logs.iterdir()} == {".log"}


def test_what_a_killed_run_has_left_goes_at_the_next_start(project: Path):
    """Three directories stayed in /tmp after each SIGKILL."""
    write_script(project, "echo > $OUT.$JOB_COMPLETION_INDEX; exec sleep 60")
    with start(project, "k8s/job.yaml", *VOLUME) as process:
        assert process.stdout is not None
        assert any(" Running " in line for line in process.stdout)
    assert temporary(project) == ["localcluster", "localcluster-ca", "localcluster-logs"]
    # a child that was forked just before the kill shares the locks until its exec
    waiting.until(
        lambda: not any(is_locked(marker) for marker in project.glob(f"localcluster-*/{MARKER}")), "the locks"
    )
    write_script(project, "exit 0")
    code, out, _ = run(project, "k8s/job.yaml", *VOLUME)
    assert (code, temporary(project)) == (0, [])
    assert out.count(", the temporary directory of a localcluster that was killed\n") == 3


TRAINING = """
mkdir -p $OUT/output
echo "I1122 10:00:00.000000 1 TrainerInternal.cpp:165]  Batch=10 samples=80 AvgCost=0.5"
echo "I1122 10:00:00.000000 1 TrainerInternal.cpp:181]  Pass=0 Batch=15 samples=120 AvgCost=0.4 Eval: "
echo "I1122 10:00:00.000000 1 Tester.cpp:115]  Test samples=30 cost=0.3 Eval: "
echo page > $OUT/output/report.html
"""


@pytest.mark.parametrize(
    ("flags", "wanted"), [((), ["Pass=0", "Test"]), (("--follow", "0@Batch=10"), ["Batch=10"]), (("--quiet",), [])]
)
def test_without_follow_a_training_has_a_line_a_pass(project: Path, flags: tuple[str, ...], wanted: list[str]):
    write_script(project, TRAINING)
    code, out, _ = run(project, "k8s/job.yaml", *VOLUME, *flags)
    shown = [
        line.partition("]  ")[2].split()[0] for line in out.splitlines() if line.startswith("j-0-") and "]  " in line
    ]
    assert (code, shown) == (0, wanted)
    assert not any("]  " in line for line in out.splitlines() if line.startswith("j-1-"))


def test_the_end_says_where_the_report_is(project: Path):
    write_script(project, TRAINING)
    names = ("--env", "JOB_PATH=/home/jobpath", "--env", "JOB_NAME=out")
    _, out, _ = run(project, "k8s/job.yaml", *VOLUME, *names)
    assert out.splitlines()[-1] == f"job/j: the report is an HTML page: {project}/vol/out/output/report.html"
    report = project / "vol" / "out" / "output" / "report.html"
    write_script(project, "exit 65")
    os.utime(report, (1e9, 1e9))  # of an earlier job
    _, out, _ = run(project, "k8s/job.yaml", *VOLUME, *names)
    assert "report" not in out
