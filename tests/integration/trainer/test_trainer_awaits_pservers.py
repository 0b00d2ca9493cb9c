"""A trainer that a launcher has started begins nothing before every pserver of the job has answered."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest

CONFIG = "open('config-was-read', 'w').close()\nraise RuntimeError('far enough')\n"
DEADLINE_S = 60.0


@pytest.fixture
def train(tmp_path):
    """Start a trainer that is to wait for a port of 127.0.0.1; its config says no more than that it is read."""
    (tmp_path / "config.py").write_text(CONFIG)
    started = []

    def start(port, timeout_s, ready):
        flags = {"pservers": "127.0.0.1", "port": str(port), "ports_num": "1", "ports_num_for_sparse": "0"}
        environ = {"PADDLE_AWAIT": json.dumps(flags | {"timeout": str(timeout_s)}), "PADDLE_READY_FD": str(ready)}
        process = subprocess.Popen(
            [sys.executable, "-m", "trainer", "--config=config.py"],
            cwd=tmp_path,
            env={**os.environ, **environ},
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[ready],
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def pipe():
    """Return the two ends of what the launcher hears the trainer by."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_a_pserver_that_does_not_answer_is_named_and_the_config_is_not_read(train, pipe, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    process = train(port, 0.5, pipe[1])
    said = process.communicate(timeout=DEADLINE_S)[1]
    assert process.returncode == 69, said
    assert f"pserver 127.0.0.1:{port} does not answer (Connection refused)" in said
    assert not (tmp_path / "config-was-read").exists()
    os.set_blocking(pipe[0], False)
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1)


def test_the_config_is_read_when_the_last_pserver_has_answered(train, pipe, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    process = train(port, DEADLINE_S, pipe[1])
    server = subprocess.Popen(
        [sys.executable, "-m", "pserver", f"--port={port}", "--nics=127.0.0.1"], stderr=subprocess.DEVNULL
    )
    watchdog = threading.Timer(DEADLINE_S, os.write, (pipe[1], b"late"))
    watchdog.start()
    try:
        assert os.read(pipe[0], 8) == b"x"
        said = process.communicate(timeout=DEADLINE_S)[1]
        assert (tmp_path / "config-was-read").exists() and "far enough" in said
    finally:
        watchdog.cancel()
        server.kill()
        server.wait()
