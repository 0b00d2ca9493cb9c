"""start.sh as the entrypoint of a role of a task job."""

import shutil
import subprocess

import pytest
from script_pod import Pod


@pytest.fixture
def elastic(pod: Pod) -> Pod:
    """A pod of k8s/tasks: the data beside the config, and a stand-in for `paddle`."""
    paddle = pod.root / "path/paddle"
    paddle.parent.mkdir()
    paddle.write_text('#!/bin/sh\necho "cwd $(pwd -P)"\ncat data/train.list\necho "RUN $*"\n')
    paddle.chmod(0o755)
    (pod.volume / "job/0/data").mkdir(parents=True)
    (pod.volume / "job/0/data/train.list").write_text("data/train-0\n")
    pod.env = {
        "PATH": f"{paddle.parent}:{pod.env['PATH']}",
        "HOME": str(pod.root),
        "JOB_PATH": str(pod.volume),
        "JOB_NAME": "job",
        "WORK_DIR": str(pod.work),
    }
    return pod


STORE = "--store_dir=/store"


def test_a_trainer_runs_in_its_staged_config_beside_all_data(elastic: Pod) -> None:
    done = elastic.start("trainer", STORE, TRAIN_CONFIG_DIR="digits/")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"cwd {elastic.work}/job\ndata/train-0\n" in done.stdout
    words = done.stdout.rpartition("RUN ")[2].split()
    assert words == [
        "train", "--job_name=job", "--config=trainer_config.py", f"--save_dir={elastic.volume}/job/output", STORE,
    ]  # fmt: skip


def test_data_inside_of_the_config_directory_is_taken_first(elastic: Pod) -> None:
    (elastic.config / "data").mkdir()
    (elastic.config / "data/train.list").write_text("data/own\n")
    assert "data/own\n" in elastic.start("trainer", STORE).stdout


def test_a_trainer_waits_for_the_data_job(elastic: Pod) -> None:
    data = elastic.volume / "job/0"
    data.rename(elastic.root / "later")
    command = [str(elastic.root / "bin/start.sh"), "trainer", STORE]
    with subprocess.Popen(command, env=elastic.env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "waiting for the config and the data" in process.stdout.readline()
        (elastic.root / "later").rename(data)
        assert "RUN train" in process.stdout.read()


def test_a_trainer_does_not_wait_for_ever(elastic: Pod) -> None:
    shutil.rmtree(elastic.volume / "job")
    done = elastic.start("trainer", STORE, VOLUME_TIMEOUT="0")
    assert done.returncode == 66 and "run the data job of k8s/tasks" in done.stderr


def test_a_trainer_that_waits_in_vain_is_told_the_likely_spelling(elastic: Pod) -> None:
    done = elastic.start("trainer", STORE, VOLUME_TIMEOUT="0", TRAIN_CONFIG_DIR="digit")
    assert done.returncode == 66
    assert "has digits; did you mean TRAIN_CONFIG_DIR=digits?\n" in done.stderr


def test_the_trainer_package_of_2017_is_run_in_place(elastic: Pod) -> None:
    package = elastic.root / "package"
    shutil.copytree(elastic.volume / "job/0", package)
    done = elastic.start(
        "trainer", STORE, TRAINER_PACKAGE=str(package), TOPOLOGY="net.py", OUTPUT="/out", JOB_PATH=None
    )
    assert f"cwd {package}\n" in done.stdout
    assert done.stdout.endswith(f"RUN train --job_name=job --config=net.py --save_dir=/out {STORE}\n")


def test_a_trainer_runs_the_program_of_entry_beside_all_data(elastic: Pod) -> None:
    (elastic.config / "trainer_config.py").rename(elastic.config / "train.py")
    told = 'ls train.py; cat data/train.list; echo "path $PYTHONPATH store $PADDLE_INIT_STORE_DIR"'
    done = elastic.start("trainer", STORE, ENTRY=told, PYTHONPATH=None)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"train.py\ndata/train-0\npath {elastic.work}/job store /store\n")


def test_the_variables_of_a_role_that_are_missing_are_named(elastic: Pod) -> None:
    assert elastic.start("trainer", JOB_PATH=None).returncode == 78
    done = elastic.start("pserver")
    assert done.returncode == 78 and "ETCD_ENDPOINTS is not set" in done.stdout


def test_a_master_has_the_name_that_2017_gave_the_job(elastic: Pod) -> None:
    (elastic.root / "path/paddle").write_text('#!/bin/sh\necho "RUN $*"\n')
    done = elastic.start("master", STORE, JOB_NAME=None, PADDLE_JOB_NAME="old")
    assert f"RUN master --job=old --num_passes=10 --output={elastic.volume}/old/output {STORE}\n" in done.stdout
