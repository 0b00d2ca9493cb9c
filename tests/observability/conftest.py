"""What the tests of this directory share: a finished job, and a browser."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))  # for `from three_pods import run_job`

from chromium import Chromium
from three_pods import prepare, run_job

PADDLE = Path(sys.executable).with_name("paddle")


def pytest_sessionstart() -> None:
    """SIGTERM ends the tests as Ctrl-C does, with browser, Prometheus and jobs."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def digits_output(tmp_path_factory) -> Path:
    """The output of a finished job of three pods, as k8s/job.yaml starts it."""
    volume = tmp_path_factory.mktemp("volume")
    job = prepare(volume)
    result = run_job(volume, deadline=300)
    assert result.outcome.is_complete, result
    return job / "output"


@pytest.fixture(scope="session")
def local_output(digits_output, tmp_path_factory) -> Path:
    """The save directory of a run without launcher, with a line of the log after every fifth batch."""
    folder = tmp_path_factory.mktemp("local") / "digits"
    shutil.copytree(digits_output.parent / "digits", folder)
    shutil.copytree(digits_output.parent / "0" / "data", folder / "data")
    flags = [
        "--config=trainer_config.py",
        "--local=1",
        "--num_passes=4",
        "--log_period=5",
        "--save_dir=model",
        "--report",
    ]
    command = [PADDLE, "train", *flags]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    (folder / "train.log").write_text(run.stderr)
    return folder / "model"


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A running Chromium."""
    with Chromium(tmp_path_factory.mktemp("browser") / "profile") as chromium:
        yield chromium
