"""Ctrl-C and a reader that is gone, at every command as a shell starts it."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from forked import server

from paddle.command import COMMANDS

PADDLE = Path(sys.executable).with_name("paddle")
ROOT = Path(__file__).parents[3]
DEADLINE_S = 60
MOMENTS_MS = (0, 2, 5, 10, 20, 40, 70, 100)
WHOLE = {"--help", "train", "version"}  # commands that are started as a shell starts them; the others are forked
# a reader that is gone does not end them
NO_SIGPIPE = {
    "autoscaler",
    "elastic",
    "follow",
    "launch",
    "localcluster",
    "master",
    "prepare",
    "pserver",
    "run",
    "serve",
    "train",
}


def start(*arguments, cwd):
    return subprocess.Popen(
        [PADDLE, *arguments], cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def pair_all() -> list[Any]:
    """Every command at every moment; what is not nightly has each command once, and each moment twice or thrice."""
    pairs = []
    for (number, command), (place, moment) in itertools.product(enumerate(sorted(COMMANDS)), enumerate(MOMENTS_MS)):
        is_chosen = number % len(MOMENTS_MS) == place
        pairs.append(pytest.param(command, moment, marks=[] if is_chosen else [pytest.mark.nightly]))
    return pairs


@pytest.mark.parametrize(("command", "milliseconds"), pair_all())
def test_ctrl_c_at_any_moment_of_the_start_prints_no_traceback(command, milliseconds, tmp_path):
    """Python answers with a traceback of its imports; the assertion holds however far the start has come."""
    with start(command, "--help", cwd=tmp_path) as process:
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=DEADLINE_S)
    assert said == b""
    assert process.returncode in (0, -signal.SIGINT)


def test_a_ctrl_c_before_python_has_started_is_not_lost(tmp_path):
    """bin/paddle blocks SIGINT until the command can take it: one that waits since then ends the command."""
    blocked = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, {2}); os.kill(os.getpid(), 2);"
    done = subprocess.run(
        [sys.executable, "-c", f"{blocked} os.execv(sys.argv[1], sys.argv[1:])", PADDLE, "version"],
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_a_command_that_a_parent_protects_from_ctrl_c_goes_on(tmp_path):
    """nohup and background jobs of scripts ignore SIGINT."""
    ignored = "import os, signal, sys; signal.signal(2, signal.SIG_IGN); os.kill(os.getpid(), 2);"
    done = subprocess.run(
        [sys.executable, "-c", f"{ignored} os.execv(sys.argv[1], sys.argv[1:])", PADDLE, "version"],
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stdout[:12]) == (0, b"PaddlePaddle")


@pytest.mark.parametrize("command", sorted({*COMMANDS, "--help"}))
def test_a_reader_that_is_gone_is_no_error(command, tmp_path):
    """`paddle ... | head` printed a BrokenPipeError."""
    readable, writable = os.pipe()
    os.close(readable)
    try:
        with (tmp_path / "err").open("wb") as err:
            if command in WHOLE:
                process = subprocess.Popen([PADDLE, command, "--help"], cwd=tmp_path, stdout=writable, stderr=err)
            else:
                process = server().start(["paddle", command, "--help"], tmp_path, os.environ, [writable, err.fileno()])
    finally:
        os.close(writable)
    assert process.wait(DEADLINE_S) == (0 if command in NO_SIGPIPE else -signal.SIGPIPE)
    assert (tmp_path / "err").read_bytes() == b""


def test_ctrl_c_before_the_job_of_localcluster_begins_prints_no_traceback(tmp_path):
    fifo = tmp_path / "job.yaml"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "paddle", "localcluster", "run", str(fifo)]
    # the FIFO opens when localcluster reads it
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process, fifo.open("w"):
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, said) == (-signal.SIGINT, b"", b"")


@pytest.mark.parametrize(
    "milliseconds", [0, 20, 100, *(pytest.param(ms, marks=pytest.mark.nightly) for ms in (5, 60, 200))]
)
def test_ctrl_c_at_any_moment_of_prepare_prints_no_traceback(milliseconds, tmp_path):
    """It met the imports of the data job's program."""
    command = [PADDLE, "prepare", "--data_source=synthetic", "--split_count=1", f"--out_dir={tmp_path}/job"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=DEADLINE_S)
    assert b"Traceback" not in said
    assert process.returncode in (0, -signal.SIGINT, 130)


def test_ctrl_c_ends_the_demo_after_its_pods(tmp_path):
    """It killed localcluster a quarter of a second later, and ended with a traceback."""
    copy = tmp_path / "project"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "demo", "tests", "docs", "build"))
    environ = {**os.environ, "PYTHONPATH": str(copy), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "examples/demo.py"], cwd=copy, env=environ, process_group=0,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        shown = iter(process.stdout.readline, "")
        assert any("Running" in line for line in shown)
        os.killpg(process.pid, signal.SIGINT)
        out, said = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, said) == (-signal.SIGINT, "")
    assert out.splitlines()[-1] == "demo: interrupted"


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["train", "--help"]])
def test_a_disk_without_room_for_what_is_printed_is_one_line(arguments, tmp_path):
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [PADDLE, *arguments], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, timeout=DEADLINE_S
        )
    assert ended.stderr == b"paddle: cannot write to stdout: No space left on device; make room, or redirect stdout\n"
    assert ended.returncode == 74
