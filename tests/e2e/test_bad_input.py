"""What a user can get wrong, and what is said of it: one message each.

Of each kind some are tried on a whole pod: start.sh, launcher, pserver and trainer as they are. What a launcher or a
trainer alone decides is in tests/unit/launcher, tests/integration/launcher and tests/unit/trainer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import JOB, pod, pod_environment
from reaper import MARK

from paddle_cluster.localcluster import ApiRequest, ApiResponse, ApiServer, PodStore

ROOT = Path(__file__).parents[2]
CONFIG = """
from paddle.trainer_config_helpers import *
define_py_data_sources2('data/train.list', None, module='provider', obj='process')
settings(batch_size=4, learning_rate=0.1)
pixel = data_layer('pixel', 3)
outputs(classification_cost(input=fc_layer(pixel, 2, act=SoftmaxActivation()), label=data_layer('label', 2)))
"""
PROVIDER = """
from paddle.trainer.PyDataProvider2 import *
@provider(input_types={'pixel': dense_vector(3), 'label': integer_value(2)}, should_shuffle=False, pool_size=4)
def process(settings, path):
    for number, line in enumerate(open(path)):
        yield {'pixel': [1.0, 2.0, float(line)], 'label': number % 2}
"""


@dataclasses.dataclass
class Case:
    """What is changed about a job that works, and what the user must see."""

    status: int
    said: str | tuple[str, ...]
    env: dict[str, str | None] = dataclasses.field(default_factory=dict)
    flags: tuple[str, ...] = ()
    files: dict[str, str | None] = dataclasses.field(default_factory=dict)  # below the job's directory; None: removed
    others: tuple[dict, ...] = ()  # other pods of the job
    api: Callable[[ApiRequest], ApiResponse | None] | None = None
    mount: str = ""  # options of a tmpfs over output/, or nothing
    taken: bool = False  # somebody else has the pserver's port


def config(text: str, status: int, said: str) -> Case:
    return Case(status, said, files={"conf/trainer_config.py": text})


SOON = {"START_TIMEOUT": "1"}
WHOLE_PODS = {
    # the environment
    "no JOB_NAME, and JOB_PATH is relative": Case(
        78, ("JOB_NAME is not set", "JOB_PATH is 'volume'"), {"JOB_NAME": None, "JOB_PATH": "volume"}
    ),
    "no JOB_PATH, and JOB_NAME is no name": Case(
        78, ("JOB_PATH is not set", "JOB_NAME is 'My_Job'"), {"JOB_PATH": None, "JOB_NAME": "My_Job"}
    ),
    "no TRAIN_CONFIG_DIR, and two to choose from": Case(
        78,
        "have a config: conf other",
        {"TRAIN_CONFIG_DIR": None},
        files={"other/trainer_config.py": CONFIG},
    ),
    "no TRAIN_CONFIG_DIR, and none to choose": Case(
        66, "none has a file trainer_config.py", {"TRAIN_CONFIG_DIR": None}, files={"conf/trainer_config.py": None}
    ),
    "no API server, and five wrong variables": Case(
        78,
        (
            "KUBERNETES_SERVICE_HOST",
            "KUBERNETES_SERVICE_PORT_HTTPS",
            "CONF_PADDLE_PORT is 'seven'",
            "CONF_PADDLE_PORTS_NUM is '0'",
            "CONF_PADDLE_GRADIENT_NUM is 'None'",
            "START_TIMEOUT is 'soon'",
            "RESUME is 'maybe'",
        ),
        {
            "KUBERNETES_SERVICE_HOST": None,
            "KUBERNETES_SERVICE_PORT_HTTPS": None,
            "CONF_PADDLE_PORT": "seven",
            "CONF_PADDLE_PORTS_NUM": "0",
            "CONF_PADDLE_GRADIENT_NUM": "None",
            "START_TIMEOUT": "soon",
            "RESUME": "maybe",
        },
    ),
    "an address of no pod": Case(78, "POD_IP by the downward API", {"POD_IP": "127.0.0.250"}),
    # flags
    "an unknown flag": Case(64, "learning_speed", flags=("--learning_speed=3",)),
    "TRAINER_COUNT that is no number": Case(64, "trainer_count", {"TRAINER_COUNT": "many"}),
    # what must be on the volume
    "no config directory": Case(66, "no config directory", {"TRAIN_CONFIG_DIR": "absent"}),
    "no config": Case(66, "absent.py", {"TRAIN_CONFIG": "absent.py"}),
    "no shard": Case(66, "the data job makes", files={"0/data": None}),
    "an empty shard": Case(66, "is empty", files={"0/data/train.list": None, "0/data/train.txt": None}),
    "no list in the shard": Case(66, "data/train.list", files={"0/data/train.list": None}),
    "a shard of empty files": Case(65, "names only empty files: data/train.txt", files={"0/data/train.txt": ""}),
    "a list that names a file that is not there": Case(
        66, "data/gone.txt", files={"0/data/train.list": "data/gone.txt\n"}
    ),
    # the config and the data
    "a config that raises": config("raise ValueError('no such thing')", 65, "no such thing"),
    "no settings": config(CONFIG.replace("settings(", "dict("), 78, "batch_size"),
    "an unknown name in the config": config(CONFIG.replace("fc_layer", "fx_layer"), 78, "fx_layer"),
    "no provider module": Case(66, "provider", files={"conf/provider.py": None}),
    "a provider that raises in the middle": Case(
        65, "not a number", files={"0/data/train.txt": "1\n" * 9 + "not a number\n"}
    ),
    # the cluster
    "a pserver that cannot be reached": Case(
        69, "127.250.0.251", {**SOON, "CONF_PADDLE_GRADIENT_NUM": "2"}, others=(pod("127.250.0.251", "zzz"),)
    ),
    "the port is in use": Case(75, "another process holds this port", taken=True),
    "the API says 403": Case(
        77, "verb `list`", SOON, api=lambda _: ApiResponse.failure(403, "Forbidden", "pods is forbidden")
    ),
    # the volume
    "output is read-only": Case(74, "read-only", mount="ro"),
    "the volume is full while saving": Case(74, "No space left", mount="size=16k", flags=("--saving_period=1",)),
}
NUMBERS = itertools.count(2)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A job's tree with one shard, config and provider; everything works as it is."""
    job = tmp_path / "volume" / JOB
    for directory in ("conf", "0/data", "output"):
        (job / directory).mkdir(parents=True)
    (job / "conf" / "trainer_config.py").write_text(CONFIG)
    (job / "conf" / "provider.py").write_text(PROVIDER)
    (job / "0" / "data" / "train.list").write_text("data/train.txt\n")
    (job / "0" / "data" / "train.txt").write_text("0.5\n" * 20)
    (tmp_path / "work").mkdir()
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def change(job: Path, files: dict[str, str | None]) -> None:
    for name, text in files.items():
        path = job / name
        if text is not None:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextlib.contextmanager
def cluster_of(case: Case, work: Path, ip: str) -> Iterator[dict[str, str]]:
    """An API server that knows the pods of the case. Yields the environment of the pod with this address."""
    store = PodStore()
    for one in (pod(ip, "own"), *case.others):
        shown = {**one, "status": {**one["status"], "podIP": one["status"]["podIP"].replace("SAME", ip)}}
        store.put({**shown, "metadata": {**one["metadata"], "namespace": "default"}})
    with ApiServer(store, hook=case.api) as server:
        server.write_service_account(work / "account")
        environ = pod_environment(
            JOB_PATH=str(work / "volume"),
            WORK_DIR=str(work / "work"),
            TRAIN_CONFIG_DIR="conf",
            POD_IP=ip,
            CONF_PADDLE_NIC=ip,
            CONF_PADDLE_GRADIENT_NUM="1",
            CONF_PADDLE_PORTS_NUM="1",
            CONF_PADDLE_PORTS_NUM_SPARSE="0",
            KUBERNETES_SERVICE_HOST=server.host,
            KUBERNETES_SERVICE_PORT_HTTPS=str(server.port),
            SERVICE_ACCOUNT_DIR=str(work / "account"),
            STOP_TIMEOUT="5",
            RESTARTS="0",
            NUM_PASSES="2",
            PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        )
        environ |= {MARK: os.environ[MARK]}
        yield {name: value for name, value in {**environ, **case.env}.items() if value is not None}


def run_pod(case: Case, work: Path, ip: str) -> subprocess.CompletedProcess:
    with cluster_of(case, work, ip) as environ:
        command = [str(ROOT / "start.sh"), *case.flags]
        if case.mount:  # in a mount namespace, so that nothing of it outlives the pod
            output = work / "volume" / JOB / "output"
            mount, look = f"mount -t tmpfs -o {case.mount} none {output}", f"ls -R {output} >{work}/left"
            script = f'{mount}; "$@"; status=$?; {look}; exit $status'
            command = ["unshare", "--mount", "sh", "-c", script, "sh", *command]
        return subprocess.run(
            command,
            env=environ,
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
            check=False,
        )


def own_address(worker: str) -> str:
    """A loopback address of this test alone, also beside other workers and runs."""
    while True:
        address = f"127.{101 + int(worker.lstrip('gw') or 0)}.{os.getpid() % 250}.{next(NUMBERS)}"
        with socket.socket() as probe:
            if probe.connect_ex((address, 7164)) != 0:
                return address


def complete_passes(work: Path) -> list[Path]:
    return list((work / "volume" / JOB / "output").glob("pass-*/done"))


def test_the_job_of_this_table_works_when_nothing_is_wrong(work: Path, worker_id: str) -> None:
    run = run_pod(Case(0, ""), work, own_address(worker_id.removeprefix("master")))
    assert run.returncode == 0, run.stdout
    assert len(complete_passes(work)) == 2


def test_the_number_of_pods_is_the_jobs_parallelism_where_none_is_set(work: Path, worker_id: str) -> None:
    job = ApiResponse(200, b'{"kind": "Job", "spec": {"parallelism": 1, "completions": 1}}')
    path = f"/apis/batch/v1/namespaces/default/jobs/{JOB}"
    unknown = {"CONF_PADDLE_GRADIENT_NUM": None, "JOB_COMPLETION_INDEX": "0"}
    case = Case(0, "", unknown, api=lambda request: job if request.path == path else None)
    run = run_pod(case, work, own_address(worker_id.removeprefix("master")))
    assert run.returncode == 0, run.stdout
    assert "CONF_PADDLE_GRADIENT_NUM is not set: this Job has 1 pod\n" in run.stdout
    assert len(complete_passes(work)) == 2


def check(case: Case, status: int, output: str, work: Path) -> None:
    said = (case.said,) if isinstance(case.said, str) else case.said
    assert status == case.status, output
    assert [text for text in said if text not in output] == [], output
    assert "Traceback" not in output, output
    assert not complete_passes(work)


@pytest.mark.parametrize("case", WHOLE_PODS.values(), ids=WHOLE_PODS.keys())
def test_one_message_and_the_right_exit_status(case: Case, work: Path, worker_id: str) -> None:
    if case.mount and os.geteuid():
        pytest.skip("mounting a small tmpfs needs root")
    change(work / "volume" / JOB, case.files)
    ip = own_address(worker_id.removeprefix("master"))
    with socket.socket() as other:
        if case.taken:
            other.bind((ip, 7164))
            other.listen()
        run = run_pod(case, work, ip)
    check(case, run.returncode, run.stdout, work)
    if case.mount:
        assert "done" not in (work / "left").read_text()
