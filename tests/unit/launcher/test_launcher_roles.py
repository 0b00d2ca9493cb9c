"""Roles of a task job: environment and arguments -> a command, and what follows the end of the program."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import responses
from forked import Forked, server
from responses import matchers

from paddle_base.runtime.errors import ApiForbiddenError
from paddle_base.runtime.network.redaction import Secrets
from paddle_cluster.launcher.errors import ApiError
from paddle_cluster.launcher.roles.plan import FLAGS, ROLES, RoleError, find_etcd, list_places, plan_role
from paddle_cluster.launcher.roles.scaling import scale_to_zero
from paddle_cluster.master.flags import FLAGS as MASTER_FLAGS
from pserver.flags import FLAGS as PSERVER_FLAGS
from trainer.flags import FLAGS as TRAINER_FLAGS

ELASTIC = {"JOB_NAME": "digits", "JOB_PATH": "/home/jobpath", "ETCD_ENDPOINTS": "http://paddle-etcd:2379"}
OF_2017 = {
    "PADDLE_JOB_NAME": "mnist",
    "NAMESPACE": "science",
    "POD_IP": "10.0.0.3",
    "TRAINERS": "3",
    "PSERVERS": "2",
    "TOPOLOGY": "train.py",
    "TRAINER_PACKAGE": "/pfs/package",
    "OUTPUT": "/pfs/out",
    "ETCD_IP": "10.0.0.9",
    "MASTER_IP": "10.0.0.9",
    "PADDLE_INIT_PORT": "7170",
    "PADDLE_INIT_PORTS_NUM": "3",
    "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
    "PADDLE_INIT_NUM_GRADIENT_SERVERS": "3",
    "PADDLE_INIT_NUM_PASSES": "5",
    "PADDLE_INIT_TRAINER_COUNT": "4",
    "PADDLE_INIT_USE_GPU": "0",
    "PADDLE_INIT_NICS": "eth1",
    "PADDLE_INIT_SEED": "7",
}


def test_the_manifests_settings_become_flags() -> None:
    settings = {**ELASTIC, "NUM_PASSES": "10", "PSERVERS": "2", "CHECKPOINT_INTERVAL": "60s", "TRAIN_CONFIG": "a.py"}
    assert plan_role("master", [], settings).command == (
        *("paddle", "master", "--etcd_endpoints=http://paddle-etcd:2379", "--job=digits", "--num_passes=10"),
        "--output=/home/jobpath/digits/output",
    )
    assert plan_role("pserver", [], settings).command == (
        *("paddle", "pserver", "--etcd_endpoints=http://paddle-etcd:2379", "--job=digits", "--num_pservers=2"),
        *("--port=7164", "--checkpoint_path=/home/jobpath/digits/servers", "--checkpoint_interval=60s"),
    )
    assert plan_role("trainer", ["--seed=1"], settings).command == (
        *("paddle", "train", "--etcd_endpoints=http://paddle-etcd:2379", "--job_name=digits", "--config=a.py"),
        *("--save_dir=/home/jobpath/digits/output", "--seed=1"),
    )
    assert plan_role("autoscaler", ["--dry_run"], {}).command == ("paddle", "autoscaler", "--dry_run")
    driver = {"JOB_NAME": "j", "JOB_PATH": "/v", "NUM_PROC": "3", "MAX_NP": "8", "DRIVER_PORT": "7170"}
    assert plan_role("driver", ["--verbose", "python", "t.py", "--port=1"], driver).command == (
        *(
            "paddle",
            "elastic",
            "run",
            "--num-proc=3",
            "--max-np=8",
            "--discovery=kubernetes",
            "--store-dir=/v/j/driver",
            "--output-filename=/v/j/output",
        ),
        *("--port=7170", "--verbose", "python", "t.py", "--port=1"),
    )


def test_the_environment_of_2017_is_understood() -> None:
    etcd = "--etcd_endpoints=http://10.0.0.9:2379"
    assert plan_role("master", ["--output="], OF_2017).command == (
        *("paddle", "master", etcd, "--job=mnist", "--num_passes=5", "--nics=eth1", "--output="),
    )
    assert plan_role("pserver", ["--checkpoint_path=/ckpt"], OF_2017).command == (
        *("paddle", "pserver", etcd, "--job=mnist", "--num_pservers=2", "--port=7170", "--ports_num=3"),
        *("--ports_num_for_sparse=1", "--nics=eth1", "--checkpoint_path=/ckpt"),
    )
    assert plan_role("trainer", [], OF_2017).command == (
        *("paddle", "train", etcd, "--job_name=mnist", "--config=train.py", "--save_dir=/pfs/out"),
        *("--trainer_count=4", "--use_gpu=0", "--seed=7"),
    )


@pytest.mark.parametrize(
    ("role", "known"), [("master", MASTER_FLAGS), ("pserver", PSERVER_FLAGS), ("trainer", TRAINER_FLAGS)]
)
def test_every_flag_of_a_role_is_one_of_its_program(role: str, known: dict[str, object]) -> None:
    assert {flag.name for flag in FLAGS[role]} <= known.keys()


def test_every_variable_of_a_role_is_in_the_help_of_start_sh() -> None:
    text = (Path(__file__).parents[3] / "start.sh").read_text()
    names = {name for flags in FLAGS.values() for flag in flags for name in flag.variables}
    missing = [name for name in sorted(names) if f"\n{name} " not in text and not name.startswith("PADDLE_INIT_")]
    assert missing == []


@pytest.mark.parametrize("argument", [["--num_passes=3"], ["-num_passes", "3"]], ids=" ".join)
def test_an_argument_wins_over_its_variable(argument: list[str]) -> None:
    command = plan_role("master", argument, {**ELASTIC, "NUM_PASSES": "10"}).command
    assert [word for word in command if "num_passes" in word] == argument[:1]


def test_all_that_is_missing_is_said_at_once() -> None:
    with pytest.raises(RoleError) as said:
        plan_role("pserver", [], {"AT_END": "sleep", "SCALE_TO_ZERO": "pods/x", "ETCD_TIMEOUT": "soon"})
    lines = str(said.value).splitlines()
    assert [line.split()[0] for line in lines] == [
        "CHECKPOINT_PATH", "ETCD_ENDPOINTS", "AT_END", "SCALE_TO_ZERO", "ETCD_TIMEOUT",
    ]  # fmt: skip


def test_a_list_of_files_is_not_needed() -> None:
    (note,) = plan_role("trainer", [], {**ELASTIC, "TRAIN_LIST": "/pfs/list"}).notes
    assert "the master distributes" in note


def test_a_program_of_paddle_v2_finds_what_2017_gave_it() -> None:
    """ENTRY was refused."""
    plan = plan_role(
        "trainer", ["--seed", "9"], {**OF_2017, "ENTRY": "cd sub && python train.py", "PYTHONPATH": "/lib"}
    )
    assert plan.command[:2] == ("sh", "-c") and plan.command[2].endswith("cd sub && python train.py")
    assert plan.variables == {
        "ETCD_ENDPOINTS": "http://10.0.0.9:2379",
        "ETCD_IP": "10.0.0.9",
        "MASTER_IP": "10.0.0.9",
        "PADDLE_INIT_ETCD_ENDPOINTS": "http://10.0.0.9:2379",
        "PADDLE_INIT_JOB_NAME": "mnist",
        "PADDLE_INIT_SAVE_DIR": "/pfs/out",
        "PADDLE_INIT_TRAINER_COUNT": "4",
        "PADDLE_INIT_USE_GPU": "0",
        "PADDLE_INIT_SEED": "9",
        "PADDLE_JOB_NAME": "mnist",
        "PADDLE_OUTPUT": "/pfs/out",
        "PYTHONPATH": "/pfs/package:/lib",
    }
    own = plan_role("trainer", [], {**ELASTIC, "ENTRY": "x"}).variables
    assert (own["ETCD_IP"], own["MASTER_IP"]) == ("paddle-etcd", "paddle-etcd")
    for role in ("master", "pserver"):  # the pods of a job often share their variables
        assert plan_role(role, ["--output=/o"], {**ELASTIC, "ENTRY": "x"}).command[:2] == ("paddle", role)


def test_etcd_is_where_2017_had_it() -> None:
    assert find_etcd({"MASTER_IP": "10.0.0.2"}) == "http://10.0.0.2:2379"
    assert find_etcd({}) == ""
    assert list_places("http://a:1, b,https://c") == (("a", 1), ("b", 2379), ("c", 2379))
    assert list_places("http://a:x") == ()


# ----- scaling


@pytest.fixture
def scale(tmp_path: Path) -> Callable[[], bool]:
    (tmp_path / "token").write_text("the-token-of-this-pod\n")
    (tmp_path / "namespace").write_text("science\n")
    environ = {"SERVICE_ACCOUNT_DIR": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    return lambda: scale_to_zero("statefulsets/paddle-pserver", environ, Secrets())


SCALE = "https://10.96.0.1:443/apis/apps/v1/namespaces/science/statefulsets/paddle-pserver/scale"


@responses.activate
def test_one_patch_of_the_scale_is_all_that_is_asked(scale: Callable[[], bool]) -> None:
    wanted = [
        matchers.header_matcher(
            {"Authorization": "Bearer the-token-of-this-pod", "Content-Type": "application/merge-patch+json"}
        ),
        matchers.body_matcher(json.dumps({"spec": {"replicas": 0}})),
    ]
    responses.patch(SCALE, json={"kind": "Scale"}, match=wanted)
    assert scale() is True


@responses.activate
def test_what_is_not_there_needs_no_scaling(scale: Callable[[], bool]) -> None:
    responses.patch(SCALE, status=404)
    assert scale() is False


@responses.activate
@pytest.mark.parametrize(("status", "final"), [(403, ApiForbiddenError), (401, ApiForbiddenError)])
def test_missing_rights_are_named(scale: Callable[[], bool], status: int, final: type) -> None:
    responses.patch(SCALE, status=status, json={"message": "no the-token-of-this-pod"})
    with pytest.raises(ApiError, match="verb patch on statefulsets/scale") as said:
        scale()
    assert said.value.final is final and "the-token" not in str(said.value)


@responses.activate
@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_an_api_server_in_trouble_is_asked_again(scale: Callable[[], bool], status: int) -> None:
    responses.patch(SCALE, status=status)
    with pytest.raises(ApiError) as said:
        scale()
    assert said.value.final is not ApiForbiddenError


@pytest.mark.parametrize("missing", ["KUBERNETES_SERVICE_HOST", "namespace"])
def test_a_role_outside_a_cluster_is_told_what_is_missing(tmp_path: Path, missing: str) -> None:
    environ = {"SERVICE_ACCOUNT_DIR": str(tmp_path)}
    environ |= {"KUBERNETES_SERVICE_HOST": "10.96.0.1"} if missing == "namespace" else {}
    with pytest.raises(ApiError, match=f"SCALE_TO_ZERO is set, but .*{missing}") as said:
        scale_to_zero("statefulsets/paddle-pserver", environ, Secrets())
    assert said.value.final is ApiForbiddenError


# ----- the whole program


class RolePod:
    """A directory with a stand-in for `paddle`, and an etcd that takes connections."""

    def __init__(self, root: Path, etcd: str) -> None:
        self.root = root
        (root / "bin").mkdir()
        self.env = {**os.environ, **ELASTIC, "PATH": f"{root / 'bin'}:{os.environ['PATH']}", "ETCD_ENDPOINTS": etcd}

    def start(self, role: str, script: str, **env: str) -> Forked:
        paddle = self.root / "bin/paddle"
        paddle.write_text(f"#!/bin/sh\n{script}\n")
        paddle.chmod(0o755)
        return server().open(["paddle_cluster.launcher.roles", role], self.root, {**self.env, **env}, merged=True)


@pytest.fixture
def pod(tmp_path: Path) -> RolePod:
    with socket.create_server(("127.0.0.1", 0)) as etcd:
        yield RolePod(tmp_path, f"http://127.0.0.1:{etcd.getsockname()[1]}")


def read_until(process: Forked, text: str) -> None:
    for line in process.stdout or ():
        if text in line:
            return
    raise AssertionError(f"no {text!r}")


def test_a_server_whose_job_is_done_waits_until_it_is_scaled_away(pod: RolePod) -> None:
    with pod.start("pserver", "exit 0", AT_END="wait") as process:
        read_until(process, "waits until it is scaled to 0")
        process.terminate()
        assert process.wait(60) == 0


def test_a_server_that_fails_ends_with_its_status(pod: RolePod) -> None:
    with pod.start("pserver", "exit 75", AT_END="wait") as process:
        assert process.wait(60) == 75


def test_a_signal_goes_to_the_program_whose_status_is_the_pods(pod: RolePod) -> None:
    script = "trap 'exit 143' TERM; echo began; while :; do sleep 0.1; done"
    with pod.start("master", script, AT_END="wait") as process:
        read_until(process, "began")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143


def test_a_trainer_becomes_its_program(pod: RolePod) -> None:
    with pod.start("trainer", 'echo "pid $$ $1 $*"') as process:
        said, _ = process.communicate(timeout=60)
    assert f"pid {process.pid} train" in said and process.returncode == 0


# what it says after the signal is more than a pipe holds
SAVES = "trap 'seq 20000; echo saved; exit 143' TERM; echo began; while :; do sleep 0.1; done"


def test_a_trainer_runs_the_program_of_entry_and_passes_signals_on(pod: RolePod) -> None:
    with pod.start("trainer", SAVES, ENTRY='echo "etcd $ETCD_IP"; paddle; echo went on') as process:
        read_until(process, "etcd 127.0.0.1")
        read_until(process, "began")
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 143 and "saved" in said and "went on" not in said


def test_python_2_given_to_python_in_a_task_job_is_told_of_paddle_run(pod: RolePod) -> None:
    (pod.root / "train.py").write_text("print 1\n")
    with pod.start("trainer", "", ENTRY=f"{sys.executable} train.py") as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 65 and 'set ENTRY to "paddle run PROGRAM.py"' in said.strip().splitlines()[-1]


@pytest.mark.parametrize(("entry", "status"), [("exit 65", 65), ("sh -c 'kill -9 $$'", 75), ("exit 3", 3)])
def test_the_status_of_a_program_of_entry_is_the_pods(pod: RolePod, entry: str, status: int) -> None:
    with pod.start("trainer", "", ENTRY=entry) as process:
        assert process.wait(60) == status


def test_a_job_that_has_failed_is_over_too(pod: RolePod, tmp_path: Path) -> None:
    env = {"SCALE_TO_ZERO": "deployments/paddle-master", "SERVICE_ACCOUNT_DIR": str(tmp_path)}
    with pod.start("master", "exit 65", AT_END="wait", KUBERNETES_SERVICE_HOST="127.0.0.1", **env) as process:
        read_until(process, "waits until it is scaled to 0")
        process.terminate()
        assert process.wait(60) == 65


def test_workers_of_a_driver_have_no_pods_when_its_job_has_failed_and_keep_them_for_the_next_driver(
    pod: RolePod, tmp_path: Path
) -> None:
    env = {"SCALE_TO_ZERO": "statefulsets/paddle-worker", "SERVICE_ACCOUNT_DIR": str(tmp_path)}
    for status, is_over in ((1, True), (0, True), (75, False), (143, False)):
        with pod.start("driver", f"exit {status}", KUBERNETES_SERVICE_HOST="127.0.0.1", **env) as process:
            said, _ = process.communicate(timeout=60)
        assert process.returncode == status
        assert ("statefulsets/paddle-worker is not scaled to 0" in said) is is_over


def test_a_role_without_rights_says_what_to_do_and_waits(pod: RolePod, tmp_path: Path) -> None:
    env = {"SCALE_TO_ZERO": "deployments/paddle-master", "SERVICE_ACCOUNT_DIR": str(tmp_path)}
    with pod.start("master", "exit 0", AT_END="wait", KUBERNETES_SERVICE_HOST="127.0.0.1", **env) as process:
        read_until(process, "the pod needs a service account")
        read_until(process, "waits until it is scaled to 0")
        process.terminate()
        assert process.wait(60) == 0


def test_etcd_that_does_not_come_up_is_named(tmp_path: Path) -> None:
    pod = RolePod(tmp_path, "http://127.0.0.1:1")
    with pod.start("master", "exit 0", ETCD_TIMEOUT="0") as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 69 and "127.0.0.1:1: Connection refused" in said


def test_a_missing_secret_is_told_before_etcd_is_waited_for(tmp_path: Path) -> None:
    """Without it etcd's Secrets are missing too: the pod waited ten minutes, and said that etcd did not answer."""
    pod = RolePod(tmp_path, "http://127.0.0.1:1")
    secret = {"PADDLE_SECRET_FILE": str(tmp_path / "absent"), "PADDLE_ETCD_CA": str(tmp_path / "ca.crt")}
    with pod.start("master", "exit 0", ETCD_TIMEOUT="600", **secret) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 78 and "run k8s/tasks/make-secrets | kubectl create -f -" in said


def test_an_unknown_role_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "paddle_cluster.launcher.roles", "worker"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 64 and all(role in done.stdout for role in ROLES)
