"""`paddle train --collective` under the driver: a worker dies, a host comes, and the model is as if none had."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 240.0
PASSES = 8
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
    ended = subprocess.run(
        [sys.executable, "-m", "paddle", "elastic", "run", *flags, *trainer, *more],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
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
    output = train(tmp_path / "changed", *flags, "--gloo-timeout-seconds", "60")
    assert not (tmp_path / "changed/kill").exists()
    assert "trainer 3 of 4 goes on" in output  # the host's worker
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
