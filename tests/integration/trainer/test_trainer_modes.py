"""Trainers and parameter servers as processes, in every mode of the servers."""

import re
import signal
import socket

import numpy as np
import pytest
from server_jobs import ServerJob

from paddle_base.runtime.saves import pass_name

FLAGS = ["--config=config.py", "--save_dir=out", "--dot_period=0", "--log_period=2"]
PARAMETERS = ("___fc_layer_0__.w0", "___fc_layer_0__.wbias")
SETTINGS = """
settings(batch_size=4, learning_rate=0.05, is_async=get_config_arg('is_async', bool, False),
         learning_method=MomentumOptimizer(get_config_arg('momentum', float, 0.0)))
Settings(num_batches_per_send_parameter=get_config_arg('send', int, 1),
         num_batches_per_get_parameter=get_config_arg('get', int, 1),
         center_parameter_update_method=get_config_arg('centre', str, 'average'))
x = data_layer"""


def lay_out(root, tools, shards):
    folders = []
    for number, lines in enumerate(shards):
        folder = tools.lay_out(root / f"trainer{number}", lines, tools.make_lines(9, seed=5))
        head, rest = (folder / "config.py").read_text().split("settings(", 1)
        (folder / "config.py").write_text(head + SETTINGS + rest.split("x = data_layer", 1)[1])
        folders.append(folder)
    return folders


class Job(ServerJob):
    """Servers with two ports each, and trainers whose samples are given."""

    def __init__(self, root, paddle, tools, shards, servers=1):
        super().__init__(
            paddle, root / "servers", lay_out(root, tools, shards), *FLAGS, "--num_passes=2", servers=servers, ports=2
        )

    def run(self, arguments, *flags):
        return super().run(f"--config_args=test_list=1,{arguments}", *flags)

    def saved(self, number=1):
        folder = self.folders[0] / "out" / pass_name(number)
        return {name: np.frombuffer((folder / name).read_bytes(), "<f4", offset=16) for name in PARAMETERS}

    def costs(self, number=0):
        return [float(cost) for cost in re.findall(r"Test samples=9 cost=(\S+)", self.log(number))]


@pytest.mark.parametrize(
    "arguments",
    [
        "is_async=1,get=2",
        "send=2,is_async=1,momentum=0.5",
        "send=3,centre=elastic_average,is_async=1",
    ],
)
def test_two_trainers_learn_in_every_mode_and_end_with_the_same_values(tmp_path, paddle, tools, arguments):
    lines = tools.make_lines(50)
    job = Job(tmp_path, paddle, tools, [lines[:26], lines[26:]])
    assert job.run(arguments, "--saving_period=2", "--num_passes=3") == [0] * 3, job.log(0) + job.log(1)
    assert job.costs(0) == job.costs(1)  # after a pass everybody tests the servers' values
    assert job.costs()[2] < job.costs()[0]
    assert ("the original ignored this setting" in job.log(0)) == ("get" in arguments)


@pytest.mark.parametrize("arguments", ["send=2,momentum=0.5", "send=3,centre=elastic_average,get=2"])
def test_synchronous_modes_repeat_bit_for_bit(tmp_path, paddle, tools, arguments):
    lines = tools.make_lines(30)
    found = []
    for servers in (1, 2):
        job = Job(tmp_path / str(servers), paddle, tools, [lines[:18], lines[18:]], servers)
        assert job.run(arguments) == [0] * (2 + servers), job.log(0)
        found.append(job.saved())
    for name in PARAMETERS:
        assert found[0][name].tobytes() == found[1][name].tobytes()


@pytest.mark.parametrize(
    ("arguments", "is_exact"),
    [
        ("get=2", True),
        ("is_async=1", False),
        ("send=2,momentum=0.5", True),
        ("send=3,centre=elastic_average,momentum=0.5", True),
    ],
)
def test_an_interrupted_run_goes_on_in_every_mode(tmp_path, paddle, tools, arguments, is_exact):
    """From the checkpoint inside of pass 0; the optimisers of the trainers go on, too."""
    lines = tools.make_lines(44)
    shards = [lines[:24], lines[24:]]
    whole = Job(tmp_path / "whole", paddle, tools, shards)
    assert whole.run(arguments, "--checkpoint_period_by_batches=3", "--checkpoints_kept=9") == [0, 0, 0], whole.log(0)
    state = whole.folders[0] / "out/state"
    assert "pass-00000-001" in [path.name for path in state.iterdir()]
    again = Job(tmp_path / "again", paddle, tools, shards)
    assert again.run(arguments, f"--resume_from={state / 'pass-00000-001'}") == [0, 0, 0], again.log(0)
    assert "Pass=1 Batch=6 samples=24" in again.log(0) and "Pass=1 Batch=5 samples=20" in again.log(1)
    if is_exact:
        assert all(again.saved()[name].tobytes() == whole.saved()[name].tobytes() for name in PARAMETERS)
    else:  # the order of the steps is another one in every run
        assert again.costs()[-1] < whole.costs()[0]


def test_one_asynchronous_trainer_is_a_local_run_at_a_constant_rate(tmp_path, paddle, tools):
    lines = tools.make_lines(23)
    job = Job(tmp_path / "remote", paddle, tools, [lines])
    assert job.run("is_async=1,momentum=0.5") == [0, 0], job.log(0)
    folder = job.folders[0]
    flags = [*FLAGS, "--num_passes=2", "--config_args=momentum=0.5", "--save_dir=local"]
    paddle.trained(folder, *flags)
    for name in PARAMETERS:
        assert (folder / "local/pass-00001" / name).read_bytes() == (folder / "out/pass-00001" / name).read_bytes()


def test_a_server_of_its_own_serves_every_mode(tmp_path, paddle, tools):
    (folder,) = lay_out(tmp_path, tools, [tools.make_lines(20)])
    flags = [*FLAGS, "--num_passes=2", "--local=0", "--start_pserver", f"--port={tools.free_port()}"]
    servers = ["--async_lagged_ratio_default=4", "--pserver_num_threads=2"]
    log = paddle.trained(folder, *flags, "--config_args=is_async=1", *servers)
    started = next(line for line in log.splitlines() if "paddle pserver" in line)
    assert all(flag.partition("=")[0] in started for flag in servers), started
    assert "discard lagged async gradient ratio: 1.5 asyncLaggedhreshold: 2" in log


def test_a_signal_ends_a_trainer_and_the_server_of_its_own(tmp_path, paddle, tools):
    (folder,) = lay_out(tmp_path, tools, [tools.make_lines(20)])
    config = (folder / "config.py").read_text()
    (folder / "config.py").write_text(config.replace("'process'", "'endless'"))
    port = tools.free_port()
    flags = [*FLAGS, "--local=0", "--start_pserver", f"--port={port}", "--config_args=is_async=1"]
    process = paddle.start(folder, "train", *flags)
    tools.wait_for(lambda: " Batch=" in (folder / "log").read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143, (folder / "log").read_text()
    with socket.socket() as probe:  # nobody listens any more
        assert probe.connect_ex(("127.0.0.1", port))
    assert "pass-00000-001" in [path.name for path in (folder / "out/state").iterdir()]


def test_an_impossible_mode_ends_before_any_server_is_asked(tmp_path, paddle, tools):
    (folder,) = lay_out(tmp_path, tools, [tools.make_lines(8)])
    flags = ["--local=0", "--num_gradient_servers=1", "--config_args=send=2"]
    status, log = paddle.train(folder, *FLAGS, *flags)
    assert status == 78 and "num_batches_per_send_parameter is 2, which needs more than one trainer" in log


def test_only_trainer_0s_first_values_count(tmp_path, paddle, tools):
    """With init_model_path, and with start_pass; whatever the others draw or load."""
    lines = tools.make_lines(24)
    shards = [lines[:12], lines[12:]]
    whole = Job(tmp_path / "whole", paddle, tools, shards)
    assert whole.run("momentum=0") == [0, 0, 0], whole.log(0)
    for name, flags in (
        ("model", [f"--init_model_path={whole.folders[0] / 'out/pass-00000'}"]),
        ("pass", ["--start_pass=1", f"--save_dir={whole.folders[0] / 'out'}"]),
    ):
        job = Job(tmp_path / name, paddle, tools, shards)
        before = whole.saved()
        assert job.run("momentum=0", *flags, "--num_passes=1") == [0, 0, 0], job.log(0)
        saved = whole.saved() if name == "pass" else job.saved(0)
        for parameter in PARAMETERS:
            np.testing.assert_array_equal(saved[parameter], before[parameter])
