"""What is wrong with a store, a list or a secret, said by real processes in one message and an exit code."""

import os
import signal
import time
from pathlib import Path

import pytest
from etcd_process import EtcdProcess
from forked import server
from master_processes import MasterProcess

from paddle_base.messages.envelope import MemberId
from paddle_cluster.master.client import MasterClient
from paddle_cluster.master.store.choice import open_store

CONFIG = """
from paddle.trainer_config_helpers import *
define_py_data_sources2("{list}", None, "provider", "process")
settings(batch_size=10, learning_rate={rate}, learning_method=MomentumOptimizer(0.0), is_async=True)
x = data_layer("x", 2)
outputs(classification_cost(fc_layer(x, 2, act=SoftmaxActivation()), data_layer("label", 2)))
"""
PROVIDER = """
from paddle.trainer.PyDataProvider2 import *
@provider(input_types={"x": dense_vector(2), "label": integer_value(2)})
def process(settings, filename):
    yield {"x": [0.0, 1.0], "label": 0}
"""
FILES = [f"part-{number:02d}" for number in range(6)]


def fatal(text: str) -> str:
    """Return the one line of a program that says why it ends."""
    lines = [line for line in text.splitlines() if line.startswith("F")]
    assert len(lines) == 1, text
    return lines[0].partition("] ")[2]


class Trainers:
    """`paddle train` with a small config, and lists that are given."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "provider.py").write_text(PROVIDER)

    def run(self, *flags: str, names: list[str], rate: float = 0.1, secret: str = "") -> tuple[int, str]:
        """Return the exit status and the line that says why."""
        (self.directory / "some.list").write_text("".join(f"{self.directory}/{name}\n" for name in names))
        (self.directory / "config.py").write_text(CONFIG.format(list=self.directory / "some.list", rate=rate))
        environment = {**os.environ, "PADDLE_SECRET": secret, "PADDLE_JOB_NAME": "", "POD_UID": ""}
        command = ["paddle", "train", "--config=config.py", f"--save_dir={self.directory}/saved", *flags]
        done = server().run(command, self.directory, environment, timeout=100.0)
        return done.returncode, fatal(done.stderr)


@pytest.fixture
def trainers(tmp_path: Path) -> Trainers:
    (tmp_path / "trainer").mkdir()
    return Trainers(tmp_path / "trainer")


# ----- etcd


@pytest.mark.parametrize("harm", ["killed", "frozen"])
def test_an_etcd_that_is_away_for_longer_than_the_lease_ends_the_leader(
    tmp_path: Path, etcd: EtcdProcess, harm: str
) -> None:
    with MasterProcess(tmp_path / "log", f"--etcd_endpoints={etcd.endpoint}", "--ttl=2s") as process:
        process.wait_for("serving on")
        if harm == "killed":
            etcd.stop()
        else:
            etcd.signal(signal.SIGSTOP)
        began = time.monotonic()
        assert process.end() == 75
        assert time.monotonic() - began < 30
        assert f"no etcd answers: {etcd.endpoint}: " in fatal(process.text())


def test_a_text_that_is_no_endpoint_is_named(tmp_path: Path, trainers: Trainers) -> None:
    reason = "--etcd_endpoints has 'ftp://a:1'; write each endpoint as http://host:2379"
    with MasterProcess(tmp_path / "log", "--etcd_endpoints=ftp://a:1") as process:
        assert process.end() == 64
        assert fatal(process.text()) == reason
    assert trainers.run("--etcd_endpoints=ftp://a:1", names=FILES) == (64, reason)


# ----- Trainers that are none of the job's


def test_a_trainer_with_another_list_or_secret_is_refused_in_one_message(tmp_path: Path, trainers: Trainers) -> None:
    store = tmp_path / "store"
    flag = f"--store_dir={store}"
    with MasterProcess(tmp_path / "log", flag, secret="right") as process:
        process.wait_for("serving on")
        assert trainers.run(flag, names=FILES, secret="wrong")[0] == 78
        assert "the peer has another secret: PADDLE_SECRET must be the same" in process.text()
        status, reason = trainers.run(flag, names=FILES)
        assert status == 78
        assert "one side has a secret, the other has none; PADDLE_SECRET must be the same for all" in reason
        assert trainers.run(flag, names=[], secret="right")[0] == 65
        with MasterClient(open_store([], store, "job", 10.0), "job", MemberId("a", 1), secret="right") as client:
            client.set_dataset(FILES)
        status, reason = trainers.run(flag, names=FILES, secret="right")
        assert status == 78
        assert "this file list has 6 files and digest " in reason
        assert "the list of the job's first trainer has 6 files" in reason
        assert "give every trainer the same files in the same order" in reason


def test_a_trainer_with_another_config_is_refused_in_one_message(tmp_path: Path, trainers: Trainers) -> None:
    store = tmp_path / "store"
    with MasterProcess(tmp_path / "log", f"--store_dir={store}") as process:
        process.wait_for("serving on")
        first = MasterClient(open_store([], store, "job", 10.0), "job", MemberId("a", 1), config="a" * 64)
        with first as client:
            client.set_dataset(FILES)
        status, reason = trainers.run(f"--store_dir={store}", names=FILES)
        assert status == 78
        assert "; the config of the job's first trainer has digest aaaaaaaaaaaaaaaa: give every trainer the" in reason
