"""`paddle train --collective`: trainers that add up their gradients themselves, against parameter servers."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from paddle_cluster.elastic.http_server import RendezvousServer
from paddle_cluster.elastic.process.placement import ProcessPlacement

CONFIG = ["--config=config.py", "--save_dir=out", "--num_passes=2", "--log_period=2"]
PARAMETERS = ("___fc_layer_0__.w0", "___fc_layer_0__.wbias")
SECRET = "s3cret"


def read(path):
    return np.frombuffer(path.read_bytes(), "<f4", offset=16)


class CollectiveJob:
    """Trainers of one group, each with samples and a directory of its own."""

    def __init__(self, root, paddle, tools, monkeypatch, shards):
        self.paddle, self.monkeypatch = paddle, monkeypatch
        self.folders = [tools.lay_out(root / f"collective{k}", lines) for k, lines in enumerate(shards)]
        self.store = RendezvousServer(secret=SECRET)
        monkeypatch.setenv("PADDLE_SECRET", SECRET)
        monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1")
        monkeypatch.setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", "60")

    def start(self, *arguments):
        self.monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_PORT", str(self.port))
        started = []
        for rank, folder in enumerate(self.folders):
            size = len(self.folders)
            for name, value in ProcessPlacement("localhost", rank, size, rank, size, 0, 1).variables().items():
                self.monkeypatch.setenv(name, value)
            started.append(self.paddle.start(folder, "train", *CONFIG, "--collective", *arguments))
        return started

    def __enter__(self):
        self.port = self.store.start()
        return self

    def __exit__(self, *_):
        self.store.stop()

    def run(self, *arguments):
        return [one.wait(100) for one in self.start(*arguments)]

    def log(self, rank):
        return (self.folders[rank] / "log").read_text()


@pytest.mark.parametrize("options", ["", "adam=1"])
def test_unequal_data_give_the_parameters_of_a_job_with_servers(tmp_path, paddle, tools, monkeypatch, options):
    shards = [tools.make_lines(24), tools.make_lines(9, seed=5), tools.make_lines(16, seed=6)]
    with CollectiveJob(tmp_path, paddle, tools, monkeypatch, shards) as job:
        assert job.run(f"--config_args={options}") == [0, 0, 0], job.log(0) + job.log(1)
    port = tools.free_port(1)
    server_folder = tmp_path / "pserver"
    server_folder.mkdir()
    common = [f"--port={port}", "--num_gradient_servers=3"]
    paddle.start(server_folder, "pserver", "--nics=127.0.0.1", *common)
    folders = [tools.lay_out(tmp_path / f"served{k}", lines) for k, lines in enumerate(shards)]
    served = [
        paddle.start(
            folder,
            "train",
            *CONFIG,
            "--local=0",
            "--pservers=127.0.0.1",
            f"--trainer_id={k}",
            *common,
            f"--config_args={options}",
        )
        for k, folder in enumerate(folders)
    ]
    assert [one.wait(100) for one in served] == [0, 0, 0]
    for name in PARAMETERS:
        np.testing.assert_allclose(
            read(job.folders[0] / "out/pass-00001" / name),
            read(folders[0] / "out/pass-00001" / name),
            rtol=1e-5,
            atol=1e-7,
        )
    assert not (job.folders[1] / "out").exists()


def test_a_killed_trainer_ends_the_others_with_its_number(tmp_path, paddle, tools, monkeypatch):
    shards = [tools.make_lines(20) for _ in range(3)]
    with CollectiveJob(tmp_path, paddle, tools, monkeypatch, shards) as job:
        trainers = job.start("--config_args=obj=endless")
        tools.wait_for(lambda: " Batch=20 " in job.log(0), 60.0)
        trainers[1].send_signal(signal.SIGKILL)
        assert [trainers[k].wait(60) for k in (0, 2)] == [75, 75]
    for rank in (0, 2):
        assert "rank 1 is lost" in job.log(rank)


def test_a_job_goes_on_from_its_checkpoint_bit_for_bit(tmp_path, paddle, tools, monkeypatch):
    shards = [tools.make_lines(24), tools.make_lines(24, seed=5)]
    adam = "--config_args=adam=1"
    with CollectiveJob(tmp_path / "whole", paddle, tools, monkeypatch, shards) as whole:
        assert whole.run(adam, "--checkpoint_period_by_batches=4", "--checkpoints_kept=99") == [0, 0], whole.log(0)
    first = min(path for path in (whole.folders[0] / "out/state").iterdir() if (path / "done").exists())
    with CollectiveJob(tmp_path / "resumed", paddle, tools, monkeypatch, shards) as resumed:
        assert resumed.run(adam, f"--resume_from={first}") == [0, 0], resumed.log(0)
    for name in PARAMETERS:
        wanted = (whole.folders[0] / "out/pass-00001" / name).read_bytes()
        assert (resumed.folders[0] / "out/pass-00001" / name).read_bytes() == wanted
