"""Trainers and parameter servers as processes on loopback: equal results, barriers, errors that reach everybody."""

import re
import signal

import numpy as np
import pytest
from server_jobs import ServerJob

CONFIG = ["--config=config.py", "--save_dir=out", "--num_passes=2", "--dot_period=1", "--log_period=2"]
PARAMETERS = ("___fc_layer_0__.w0", "___fc_layer_0__.wbias")


def read(path):
    return np.frombuffer(path.read_bytes(), "<f4", offset=16)


def make_job(root, paddle, tools, shards, test_lines=()):
    """A server with two ports, and trainers whose samples are given."""
    folders = [tools.lay_out(root / f"trainer{k}", lines, test_lines) for k, lines in enumerate(shards)]
    return ServerJob(paddle, root / "pserver", folders, *CONFIG, ports=2)


@pytest.mark.parametrize("options", ["", "adam=1"])
def test_one_trainer_with_servers_equals_a_local_run_bit_for_bit(tmp_path, paddle, tools, options):
    lines = tools.make_lines(23)
    job = make_job(tmp_path, paddle, tools, [lines])
    assert job.run(f"--config_args={options}") == [0, 0], job.log(0)
    local = tools.lay_out(tmp_path / "local", lines)
    paddle.trained(local, *CONFIG, f"--config_args={options}")
    for name in PARAMETERS:
        assert (local / "out/pass-00001" / name).read_bytes() == (job.folders[0] / "out/pass-00001" / name).read_bytes()


@pytest.mark.parametrize(("options", "tells_count"), [("", True), ("adam=1", False)])
def test_two_trainers_equal_a_local_run_on_the_union_of_their_batches(tmp_path, paddle, tools, options, tells_count):
    """The tutorial's script gives --num_gradient_servers to the server only; both trainers were refused."""
    lines = tools.make_lines(24)
    shards = [[line for i, line in enumerate(lines) if i // 4 % 2 == k] for k in range(2)]
    job = make_job(tmp_path, paddle, tools, shards)
    job.tells_count = tells_count
    assert job.run(f"--config_args={options}") == [0, 0, 0], job.log(0) + job.log(1)
    local = tools.lay_out(tmp_path / "local", lines)
    paddle.trained(local, *CONFIG, f"--config_args=batch=8,{options}".rstrip(","))
    for name in PARAMETERS:
        np.testing.assert_allclose(
            read(job.folders[0] / "out/pass-00001" / name), read(local / "out/pass-00001" / name), rtol=1e-5, atol=1e-7
        )
    assert not (job.folders[1] / "out").exists()


def test_every_trainer_tests_with_the_same_values_and_names_the_services(tmp_path, paddle, tools):
    lines = tools.make_lines(24)
    job = make_job(tmp_path, paddle, tools, [lines[:12], lines[12:]], test_lines=tools.make_lines(9, seed=5))
    assert job.run("--config_args=test_list=1") == [0, 0, 0], job.log(0) + job.log(1)
    tests = [re.findall(r" Test samples=9 .*", job.log(k)) for k in range(2)]
    assert len(tests[0]) == 2
    assert tests[0] == tests[1]
    assert re.findall(r"ParameterClient2\.cpp:114\] (pserver .*)", job.log(1)) == [
        f"pserver 0 127.0.0.1:{job.port}",
        f"pserver 1 127.0.0.1:{job.port + 1}",
    ]


@pytest.mark.parametrize("empty", [0, 1])
def test_a_trainer_without_a_batch_joins_the_barriers_and_the_job_ends(tmp_path, paddle, tools, empty):
    """The original returned before the barrier: all the others waited for ever (spec/distributed.md 3.13)."""
    shards = [tools.make_lines(10), tools.make_lines(10)]
    shards[empty] = []
    job = make_job(tmp_path, paddle, tools, shards)
    assert job.run() == [0, 0, 0], job.log(0) + job.log(1)
    assert "delivers no sample in pass 0" in job.log(empty)
    local = tools.lay_out(tmp_path / "local", shards[1 - empty])
    paddle.train(local, *CONFIG)
    for name in PARAMETERS:
        np.testing.assert_allclose(
            read(job.folders[0] / "out/pass-00001" / name), read(local / "out/pass-00001" / name), rtol=1e-6
        )


def test_trainers_with_different_numbers_of_batches_all_end(tmp_path, paddle, tools):
    job = make_job(tmp_path, paddle, tools, [tools.make_lines(40), tools.make_lines(5)])
    assert job.run() == [0, 0, 0], job.log(0) + job.log(1)
    assert " Pass=1 Batch=10 samples=40" in job.log(0)
    assert " Pass=1 Batch=2 samples=5" in job.log(1)


def test_a_provider_that_raises_ends_every_trainer_with_its_reason(tmp_path, paddle, tools):
    """The original's other trainers blocked in a barrier for ever (S31)."""
    job = make_job(tmp_path, paddle, tools, [tools.make_lines(20), tools.make_lines(20)])
    sound, raising = job.start(each=[[], ["--config_args=obj=raising"]])
    assert raising.wait(60) == 65, job.log(1)
    assert sound.wait(60) == 75, job.log(0)
    assert "the tenth line is odd" in job.log(0)
    assert "trainer 1" in job.log(0)
    assert "Traceback" not in job.log(0) + job.log(1)


def test_a_trainer_killed_in_the_middle_is_named_by_the_other(tmp_path, paddle, tools, monkeypatch):
    monkeypatch.setenv("PADDLE_PEER_TIMEOUT", "2")
    job = make_job(tmp_path, paddle, tools, [tools.make_lines(20), tools.make_lines(20)])
    trainers = job.start("--config_args=obj=endless")
    tools.wait_for(lambda: "Batch=" in job.log(0) and "Batch=" in job.log(1))
    trainers[1].kill()
    assert trainers[0].wait(60) == 75, job.log(0)
    assert "trainer 1" in job.log(0).splitlines()[-1]


def test_a_lost_server_is_noticed_while_the_provider_is_waited_for(tmp_path, paddle, tools):
    job = make_job(tmp_path, paddle, tools, [tools.make_lines(4)])
    (trainer,) = job.start("--config_args=obj=stuck")
    tools.wait_for(lambda: "the provider is stuck" in job.log(0))
    job.servers[0].kill()
    assert trainer.wait(30) == 75
    assert re.search(r"F\d{4} .* pserver 127\.0\.0\.1:\d+ is lost: its connection closed", job.log(0))


def test_a_trainer_with_a_server_of_its_own_trains_like_a_local_one(tmp_path, paddle, tools):
    results = []
    for name, options in (("local", []), ("own", ["--local=0", "--start_pserver", f"--port={tools.free_port()}"])):
        folder = tools.lay_out(tmp_path / name, tools.make_lines(20))
        log = paddle.trained(folder, *CONFIG, *options)
        results.append(read(folder / "out" / "pass-00001" / PARAMETERS[0]))
        assert ("parameterServer instances: 1" in log) == (name == "own")
    assert np.array_equal(*results)


def test_a_signal_ends_a_waiting_trainer_with_143_and_the_other_hears_why(tmp_path, paddle, tools):
    job = make_job(tmp_path, paddle, tools, [tools.make_lines(20), tools.make_lines(20)])
    trainers = job.start("--config_args=obj=endless")
    tools.wait_for(lambda: "Batch=" in job.log(0) and "Batch=" in job.log(1))
    trainers[0].send_signal(signal.SIGTERM)
    assert trainers[0].wait(60) == 143, job.log(0)
    assert trainers[1].wait(60) == 75, job.log(1)
    assert "SIGTERM" in job.log(1)
    assert [path.name for path in (job.folders[0] / "out").iterdir()] == ["state"]
    assert [path.name for path in (job.folders[0] / "out" / "state").rglob("pass-*")] == ["pass-00000-001"]
    assert (job.folders[0] / "out" / "state" / "pass-00000-001" / "done").exists()


def test_a_signal_ends_a_trainer_that_waits_for_its_servers(tmp_path, paddle, tools):
    folder = tools.lay_out(tmp_path / "job", tools.make_lines(8))
    port = tools.free_port()
    flags = ["--local=0", "--pservers=127.0.0.1", f"--port={port}", "--num_gradient_servers=1"]
    process = paddle.start(folder, "train", *CONFIG, *flags)
    tools.wait_for(lambda: f"pserver 0 127.0.0.1:{port}" in (folder / "log").read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143


def test_a_trainer_of_the_launcher_does_not_wait_for_servers_that_are_gone_again(tmp_path, paddle, tools, monkeypatch):
    """The launcher had waited for all servers; one that ended before the trainer joined was waited for a minute."""
    monkeypatch.setenv("PADDLE_ATTEMPT", "1.abcdef01")
    monkeypatch.setenv("PADDLE_PEER_TIMEOUT", "1")
    folder = tools.lay_out(tmp_path / "trainer", tools.make_lines(8))
    flags = ["--local=0", "--pservers=127.0.0.1", f"--port={tools.free_port()}", "--num_gradient_servers=1"]
    assert paddle.start(folder, "train", *CONFIG, *flags).wait(40) == 69
    assert "does not answer" in (folder / "log").read_text()
