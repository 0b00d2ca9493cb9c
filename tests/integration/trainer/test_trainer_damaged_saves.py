"""`paddle train` and a save that is damaged: it is set aside where the launcher chose it, and else not."""

import os

import pytest

FLAGS = ["--config=config.py", "--save_dir=out", "--num_passes=2", "--checkpoint_period_by_batches=100"]


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def shorten(path):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


@pytest.fixture
def saved(job, paddle):
    """The directory of a run of two passes."""
    paddle.trained(job, *FLAGS)
    return job / "out"


def parameter_of(directory):
    return next(path for path in sorted(directory.iterdir()) if path.name.startswith("_"))


def test_a_changed_bit_of_an_array_ends_training_and_names_the_older_ones(job, paddle, saved):
    """It trained on, with other numbers."""
    flip(parameter_of(saved / "state" / "pass-00001" / "parameters"))
    status, log = paddle.train(job, *FLAGS, "--num_passes=3", "--resume_from=out/state/pass-00001")
    assert status == 65 and "Traceback" not in log, log
    line = log.splitlines()[-1]
    assert (
        "has another checksum: it has changed since it was written; go on from another checkpoint: out/state/" in line
    )
    assert {path.name for path in (saved / "state").iterdir()} == {"pass-00000", "pass-00001"}


def test_one_that_the_launcher_chose_is_set_aside_and_the_attempt_may_be_repeated(job, paddle, saved, monkeypatch):
    flip(parameter_of(saved / "state" / "pass-00001" / "parameters"))
    monkeypatch.setenv("PADDLE_CHOSEN_SAVE", "./out/state/pass-00001")
    status, log = paddle.train(job, *FLAGS, "--num_passes=3", "--resume_from=out/state/pass-00001")
    assert status == 75 and "Traceback" not in log, log
    assert "the next attempt goes on from an older save" in log.splitlines()[-1]
    assert log.count("pass-00001 is damaged: its name is out/state/pass-00001.damaged now") == 1
    assert {path.name for path in (saved / "state").iterdir()} == {"pass-00000", "pass-00001.damaged"}


@pytest.mark.parametrize("trainer_id", [0, 1])
def test_the_same_holds_of_a_pass_and_for_every_trainer_that_loads_it(job, paddle, saved, monkeypatch, trainer_id):
    shorten(parameter_of(saved / "pass-00001"))
    flags = [*FLAGS, "--start_pass=2", f"--trainer_id={trainer_id}"]
    status, log = paddle.train(job, *flags)
    assert status == 65 and "is cut off" in log and "go on from another save: out/pass-00000" in log, log
    monkeypatch.setenv("PADDLE_CHOSEN_SAVE", "out/pass-00001")
    for _ in range(2):  # the second one comes when it is gone already
        status, log = paddle.train(job, *flags)
        assert status == 75 and "Traceback" not in log, log
    assert (saved / "pass-00001.damaged").is_dir() and not (saved / "pass-00001").exists()


def replace_by_a_directory(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), replace_by_a_directory, os.mkfifo])
def test_a_chosen_pass_without_one_of_its_files_is_set_aside(job, paddle, saved, monkeypatch, damage):
    """It was taken for another config's, and the Job failed for good with 66 beside an older whole pass."""
    parameter = parameter_of(saved / "pass-00001")
    if damage is os.mkfifo:
        parameter.unlink()
    damage(parameter)
    assert paddle.train(job, *FLAGS, "--start_pass=2")[0] == 66
    monkeypatch.setenv("PADDLE_CHOSEN_SAVE", "out/pass-00001")
    status, log = paddle.train(job, *FLAGS, "--start_pass=2")
    assert status == 75 and "Traceback" not in log, log
    assert (saved / "pass-00001.damaged").is_dir() and not (saved / "pass-00001").exists()


def test_a_chosen_pass_with_a_parameter_of_another_name_is_of_another_config(job, paddle, saved, monkeypatch):
    parameter = parameter_of(saved / "pass-00001")
    parameter.rename(parameter.with_name("_another.w0"))
    monkeypatch.setenv("PADDLE_CHOSEN_SAVE", "out/pass-00001")
    status, log = paddle.train(job, *FLAGS, "--start_pass=2")
    assert status == 66 and "missing, not allowed" in log, log
    assert log.rstrip().endswith("; set RESUME=0 in a new Job to start from the beginning"), log
    assert (saved / "pass-00001").is_dir()


def test_a_pass_of_another_config_is_not_damaged(job, paddle, saved, monkeypatch):
    monkeypatch.setenv("PADDLE_CHOSEN_SAVE", "out/pass-00001")

    parameter = parameter_of(saved / "pass-00001")
    data = parameter.read_bytes()
    count = int.from_bytes(data[8:16], "little") + 2
    parameter.write_bytes(data[:8] + count.to_bytes(8, "little") + data[16:] + bytes(8))
    status, log = paddle.train(job, *FLAGS, "--start_pass=2")
    assert status == 65 and "does not match the size" in log, log
    assert (saved / "pass-00001").is_dir()
