"""`paddle train --collective` under the driver: a worker dies, a host comes, and the model is as if none had."""

from __future__ import annotations

import gzip
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from forked import server

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 240.0
PASSES = 6
PROVIDER = """
import os, signal, time
from paddle.trainer.PyDataProvider2 import *

class Reads:
    count = 0  # of this process

def take(name):
    try:
        os.unlink(name)
        return True
    except FileNotFoundError:
        return False

def begin_read():
    Reads.count += 1
    if Reads.count == 3 and os.environ['HOROVOD_RANK'] == '1' and take('kill'):
        os.kill(os.getpid(), signal.SIGKILL)
    if Reads.count == 4 and take('add'):
        with open('hosts', 'a') as hosts:
            hosts.write('127.0.0.2:1\\n')

def slow_down():
    # lets the host join before the end: the job is slow until it has
    if Reads.count > 4 and os.path.exists('wanted') and os.environ['HOROVOD_SIZE'] != '4':
        time.sleep(0.2)

@provider(input_types={'pixel': dense_vector(64), 'label': integer_value(10)})
def process(settings, file_name):
    begin_read()
    with open(file_name) as lines:
        for number, line in enumerate(lines):
            if number % 32 == 0:
                slow_down()
            *pixels, digit = line.split(',')
            yield {'pixel': [int(p) / 8.0 - 1.0 for p in pixels], 'label': int(digit)}
"""


def lay_out(folder: Path, *marks: str) -> None:
    """Make the digits job; its test data are every fifth line."""
    (folder / "data").mkdir(parents=True)
    config = (ROOT / "examples/digits/trainer_config.py").read_text()
    (folder / "trainer_config.py").write_text(config)
    (folder / "digits_provider.py").write_text(PROVIDER)
    lines = gzip.decompress((ROOT / "examples/digits/digits.csv.gz").read_bytes()).decode().split()
    for name, some in (("test", lines[::5]), ("train", [line for k, line in enumerate(lines) if k % 5])):
        (folder / f"data/{name}.txt").write_text("".join(f"{line}\n" for line in some))
        (folder / f"data/{name}.list").write_text(f"data/{name}.txt\n")
    for mark in marks:
        (folder / mark).touch()


def train(folder: Path, *flags: str) -> str:
    """Train to the end, and return what all have written."""
    trainer = [sys.executable, "-m", "paddle", "train", "--config=trainer_config.py", "--collective", "--save_dir=out"]
    more = [f"--num_passes={PASSES}", "--log_period=10", "--commit_period_by_batches=7", "--dot_period=0"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    command = ["paddle", "elastic", "run", *flags, *trainer, *more]
    ended = server().run(command, folder, environ, merged=True, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def read_values(folder: Path) -> dict[str, np.ndarray]:
    last = folder / f"out/pass-{PASSES - 1:05d}"
    names = [path for path in last.iterdir() if path.name.startswith("___fc")]
    assert len(names) == 4
    return {path.name: np.frombuffer(path.read_bytes(), "<f4", offset=16) for path in names}


def test_digits_lose_a_worker_and_get_a_host_and_the_model_is_that_of_an_undisturbed_run(tmp_path: Path) -> None:
    lay_out(tmp_path / "changed", "kill", "add", "wanted")
    (tmp_path / "changed/hosts").write_text("localhost:3\n")
    flags = ["-np", "3", "--min-np", "2", "--max-np", "4", "--host-discovery-script", "cat hosts"]
    output = train(tmp_path / "changed", *flags, "--failures-per-host", "2", "--gloo-timeout-seconds", "60")
    assert not (tmp_path / "changed/kill").exists()
    assert "trainer 3 of 4 continues" in output  # the host's worker
    errors = re.findall(r"Test samples=.*classification_error_evaluator=(\S+)", output)
    assert len(errors) == PASSES  # trainer 0 alone tests
    assert float(errors[-1]) < 0.06
    saves = re.findall(r"Saving parameters to \./out/(pass-\d+)", output)
    assert saves == [f"pass-{number:05d}" for number in range(PASSES)]  # each pass once
    lay_out(tmp_path / "alone")
    train(tmp_path / "alone", "-np", "1", "--min-np", "1", "-H", "localhost:1")
    alone = read_values(tmp_path / "alone")
    for name, values in read_values(tmp_path / "changed").items():
        np.testing.assert_allclose(values, alone[name], rtol=0, atol=1e-4, err_msg=name)


SMALL_CONFIG = """
from paddle.trainer_config_helpers import *
define_py_data_sources2('data/train.list', 'data/test.list', module='small_provider', obj='process')
settings(batch_size=7, learning_rate=0.05, learning_method=AdamOptimizer())
x, y = data_layer('x', 3), data_layer('y', 2)
outputs(classification_cost(input=fc_layer(x, 2, act=SoftmaxActivation()), label=y))
"""
SMALL_PROVIDER = """
import os, signal
from paddle.trainer.PyDataProvider2 import *

def take(name):
    try:
        os.unlink(name)
        return True
    except FileNotFoundError:
        return False

@provider(input_types={'x': dense_vector(3), 'y': integer_value(2)}, should_shuffle=False)
def process(settings, path):
    is_test = path == 'test'
    settings.reads = getattr(settings, 'reads', 0) + 1
    for number in range(30 if is_test else 100):
        if is_test and settings.reads == 2 and number == 20 and take('kill-in-test'):
            os.kill(os.getpid(), signal.SIGKILL)
        if not is_test and settings.reads == 2 and number == 50 and os.environ.get('HOROVOD_RANK') == '1':
            if take('stop'):
                os.kill(os.getpid(), signal.SIGTERM)
        if number == 99 and os.environ.get('HOROVOD_RANK') == '1' and os.path.exists('less'):
            return
        yield {'x': [number % 3, number % 5 - 2, number % 7 - 3], 'y': number % 2}
"""
SMALL = ["--config=config.py", "--save_dir=out", "--num_passes=4", "--log_period=5", "--commit_period_by_batches=4"]


def lay_out_small(folder: Path, *marks: str) -> Path:
    (folder / "data").mkdir(parents=True)
    (folder / "config.py").write_text(SMALL_CONFIG)
    (folder / "small_provider.py").write_text(SMALL_PROVIDER)
    for name in ("train", "test", *marks):
        (folder / name).touch()
        (folder / f"data/{name}.list").write_text(f"{name}\n")
    return folder


def run_small(folder: Path, *command: str) -> tuple[int, str]:
    more = {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "HOROVOD_ELASTIC_TIMEOUT": "60"}
    ended = server().run(["paddle", *command], folder, {**os.environ, **more}, merged=True, timeout=LIMIT_S)
    return ended.returncode, ended.stdout


def train_small(folder: Path, size: int) -> tuple[int, str]:
    driver = ["elastic", "run", "-np", str(size), "--min-np", "1", "-H", f"localhost:{size}"]
    driver += ["--failures-per-host", "2"]
    return run_small(folder, *driver, sys.executable, "-m", "paddle", "train", "--collective", *SMALL)


def read_small(folder: Path) -> list[np.ndarray]:
    """The values of every pass but for rounding."""
    passes = sorted(folder.glob("out/pass-*"))
    assert [one.name for one in passes] == [f"pass-{number:05d}" for number in range(4)]
    return [np.frombuffer((one / "___fc_layer_0__.w0").read_bytes(), "<f4", offset=16) for one in passes]


@pytest.mark.parametrize("mark", ["", "kill-in-test", "stop"])
def test_the_model_of_every_pass_is_that_of_one_trainer_alone(tmp_path: Path, mark: str) -> None:
    """Also where trainer 0 is lost while it tests, before it saves, and where a trainer is stopped politely."""
    folder = lay_out_small(tmp_path / "elastic", *filter(None, [mark]))
    status, output = train_small(folder, 3)
    assert status == 0, output
    assert not mark or not (folder / mark).exists()
    saves = re.findall(r"Saving parameters to \./out/(pass-\d+)", output)
    assert saves == [f"pass-{number:05d}" for number in range(4)]
    alone = lay_out_small(tmp_path / "alone")
    status, output = run_small(alone, "train", *SMALL[:-1])
    assert status == 0, output
    for values, wanted in zip(read_small(folder), read_small(alone), strict=True):
        np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-5)


def test_an_earlier_run_moves_away_and_data_that_differ_end_all_with_65(tmp_path: Path) -> None:
    folder = lay_out_small(tmp_path / "job")
    assert train_small(folder, 1)[0] == 0
    (folder / "less").touch()
    status, output = train_small(folder, 2)
    assert status == 65, output
    assert "the trainers do not have the same batch" in output
    assert len(list(folder.glob("out/run-1/pass-*"))) == 4
